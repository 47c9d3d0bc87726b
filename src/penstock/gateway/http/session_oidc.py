"""Log-ins at the console through an identity provider: the browser goes there, and comes back.

    GET /session/oidc            --> 303 to the provider, with a cookie that has the attempt
    GET /session/oidc/callback   --> 303 to the page that the user wanted, with the session's cookie

Both are visited by the browser itself, so what fails is told by the console's log-in page, not by an error response.
"""

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes
from penstock.gateway.http.session import sessions_of
from penstock.gateway.shared.access import ANYONE
from penstock.gateway.shared.login import AuthorizationCode, Login, LoginRefused, TooManyLogins
from penstock.gateway.shared.signed_text import CHARS_MAX, sign, verified

if TYPE_CHECKING:
    from penstock.gateway.http.protocol.authentication import HttpLogins
    from penstock.gateway.shared.console_sessions import ConsoleSessions
    from penstock.gateway.shared.oidc_client import OidcProvider

ROUTES = Routes("session")

CALLBACK: Final = "/session/oidc/callback"
ATTEMPT_MS: Final = 600_000
"""How long a user may take at the provider."""

BACK_TO_DEFAULT: Final = "/console/"
_BACK_TO: Final = r"^/console(/[!-\[\]-~]*)?$"
"""A page of the console: a path of this server, so that nobody is sent elsewhere."""

_PURPOSE: Final = "oidc"

# What became of a log-in, for the log-in page.
REFUSED, EXPIRED, UNREACHABLE, BUSY = "refused", "expired", "unreachable", "busy"

_FROM_PROVIDERS: Final = (
    "error_description",
    "error_uri",
    "session_state",
    "iss",
    "scope",
    "authuser",
    "prompt",
    "hd",
    "client_info",
)


@ROUTES.add(
    "GET",
    "/session/oidc",
    "For browsers: log in at the console through the identity provider (`console.oidc.issuer`).",
    query=(
        Query(
            "return", str, "The console's page to come back to.", BACK_TO_DEFAULT, max=1000, pattern=_BACK_TO
        ),
    ),
    status=303,
    errors=(409,),
    rule=ANYONE,
)
def _begin(gateway: Any, request: Request) -> Steps[Response]:
    logins, sessions, provider = _provider(gateway)
    redirect_url = provider.client.redirect_url or logins.cookies.address(request.headers) + CALLBACK
    from penstock.gateway.shared.oidc_client import Attempt  # noqa: PLC0415  # loaded with the provider

    attempt = Attempt(
        sessions.draw("state"),
        sessions.draw("nonce"),
        sessions.draw("verifier"),
        redirect_url,
        request.query["return"],
        gateway.context.world.now_ms() + ATTEMPT_MS,
    )
    cookie = sign(sessions.key, _PURPOSE, msgspec.json.encode(attempt))
    if len(cookie) > CHARS_MAX:
        raise HttpError(400, "bad_parameter", "the page to come back to has a name that is too long")
    try:
        url = yield from provider.authorization_url(attempt)
    except KafkaError:
        return _failed(UNREACHABLE, attempt.back_to)
    return _to(url, logins.cookies.set_oidc(request.headers, cookie, ATTEMPT_MS))


@ROUTES.add(
    "GET",
    CALLBACK,
    "For browsers: the identity provider sends them back here.",
    query=(
        Query("state", str, "As it was sent to the provider.", "", max=200),
        Query("code", str, "What the user is known by, once.", "", max=8192),
        Query("error", str, "Why the provider did not log the user in.", "", max=200),
        *(Query(each, str, "Of the provider; ignored.", "", max=4096) for each in _FROM_PROVIDERS),
    ),
    status=303,
    errors=(409,),
    rule=ANYONE,
)
def _finish(gateway: Any, request: Request) -> Steps[Response]:
    import hmac  # noqa: PLC0415  (loads OpenSSL)

    logins, sessions, provider = _provider(gateway)
    from penstock.gateway.shared.oidc_client import Attempt  # noqa: PLC0415  # loaded with the provider

    content = verified(sessions.key, _PURPOSE, logins.cookies.oidc(request.headers) or "")
    attempt = None if content is None else msgspec.json.decode(content, type=Attempt)
    forgotten = logins.cookies.set_oidc(request.headers, "", 0)
    if attempt is None or attempt.until_ms <= gateway.context.world.now_ms():
        return _failed(EXPIRED, BACK_TO_DEFAULT, forgotten)
    if not hmac.compare_digest(attempt.state.encode(), request.query["state"].encode()):
        return _failed(EXPIRED, attempt.back_to, forgotten)
    if request.query["error"] or not request.query["code"]:
        return _failed(REFUSED, attempt.back_to, forgotten)
    code = AuthorizationCode(request.query["code"], attempt.verifier, attempt.nonce, attempt.redirect_url)
    try:
        login: Login = yield logins.check(code, request.session)
        cookie, lasts_ms = sessions.begin(login)
    except KafkaError as error:
        return _failed(_code(error), attempt.back_to, forgotten)
    is_secure = (provider.client.redirect_url or "").startswith("https://")
    return _to(
        attempt.back_to,
        logins.cookies.set_session(request.headers, cookie, lasts_ms, is_secure=is_secure),
        forgotten,
    )


def _provider(gateway: Any) -> "tuple[HttpLogins, ConsoleSessions, OidcProvider]":
    logins, sessions = sessions_of(gateway)
    if logins.door.oidc is None:
        raise HttpError(
            409, "no_oidc", "there is no identity provider to log in at: console.oidc.issuer is not set"
        )
    return logins, sessions, logins.door.oidc


def _code(error: KafkaError) -> str:
    if isinstance(error, TooManyLogins):
        return BUSY
    return REFUSED if isinstance(error, LoginRefused) else UNREACHABLE


def _failed(why: str, back_to: str, *headers: tuple[str, str]) -> Response:
    """To the log-in page, which knows pages by their paths within the console."""
    then = back_to.removeprefix("/console") or "/"
    return _to(f"/console/login?{urlencode({'failed': why, 'then': then})}", *headers)


def _to(url: str, *headers: tuple[str, str]) -> Response:
    return Response(303, headers=(("Location", url), ("Cache-Control", "no-store"), *headers))
