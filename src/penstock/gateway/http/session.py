"""/session: who the caller is, what the console may do here, and the log-ins of the console.

The console asks `GET /session` before anything else. It is answered before a log-in too, and then says only whether
one is needed and with what: nothing about the node. A log-in with `POST /session` makes the browser keep a cookie
(`gateway/shared/console_sessions.py`), which stands for the user until it expires, or the user logs out.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from penstock import __version__
from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.protocol import console_requests
from penstock.gateway.http.protocol.messages import HttpError, Request, Response, Routes, json
from penstock.gateway.shared.access import ANYONE
from penstock.gateway.shared.console_mode import OFF, console_mode
from penstock.gateway.shared.login import Login, Password, SessionOver
from penstock.handlers.support.context import ANONYMOUS, Context

if TYPE_CHECKING:
    from penstock.gateway.http.protocol.authentication import HttpLogins
    from penstock.gateway.shared.console_sessions import ConsoleSessions

ROUTES = Routes("session")

PASSWORD, OIDC, CERTIFICATE = "password", "oidc", "certificate"


class SessionInfo(msgspec.Struct):
    principal: str | None
    """Who the caller is, such as `User:alice`; null before a log-in."""
    mode: str
    """`console.mode`: `full`, `read-only` or `off`."""
    login_required: bool
    """Whether this node asks its clients to log in."""
    schemes: list[str]
    """How the caller can log in at the console: `password`, `oidc`; `certificate` if its certificate has named it."""
    expires_in_ms: int | None = None
    """After this time the session is over unless it is renewed; null without a session."""
    node_id: int | None = None
    cluster_id: str | None = None
    version: str | None = None
    """Of this node; null before a log-in."""


class LogIn(msgspec.Struct):
    user: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    """A user of PLAIN or SCRAM, or the id of a delegation token."""
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """The user's password, or the HMAC of the token."""


@ROUTES.add(
    "GET",
    "/session",
    "Who the caller is, how to log in, and the console's mode. Answered before a log-in too.",
    answer=SessionInfo,
    rule=ANYONE,
)
def _show(gateway: Any, request: Request) -> Response:
    logins: HttpLogins | None = gateway.http_logins
    cookie = None if logins is None else logins.session_cookie(request.headers)
    lasts_ms = None
    if logins is not None and logins.sessions is not None and cookie is not None:
        with suppress(SessionOver):
            lasts_ms = logins.sessions.lasts_ms(cookie)
    return json(describe(gateway, request.session.principal, lasts_ms))


@ROUTES.add(
    "POST",
    "/session",
    "Log in at the console: the response sets a cookie. Needs the header `X-Penstock-Console: 1`. A program sends its "
    "password with each request instead, in the Authorization header.",
    body=LogIn,
    answer=SessionInfo,
    errors=(401, 409, 429),
    rule=ANYONE,
    changes=False,
)
def _log_in(gateway: Any, request: Request) -> Steps[Response]:
    console_requests.check_header(request.headers)
    logins, sessions = sessions_of(gateway)
    if "basic" not in logins.schemes:
        raise HttpError(409, "no_passwords", "users of this node have no passwords: log in with OIDC")
    given: LogIn = request.body
    try:
        login: Login = yield logins.check(Password(given.user, given.password), request.session)
        cookie, lasts_ms = sessions.begin(login)
    except KafkaError as error:
        raise logins.refusal(error, request.headers) from None
    return _with_cookie(gateway, request, logins, login.user, cookie, lasts_ms)


@ROUTES.add(
    "PUT",
    "/session",
    "Renew the console's session: its idle time begins again. The console does so while its user is active.",
    answer=SessionInfo,
    errors=(401, 409),
    rule=ANYONE,
    changes=False,
)
def _renew(gateway: Any, request: Request) -> Response:
    console_requests.check_header(request.headers)
    logins, sessions = sessions_of(gateway)
    given = logins.session_cookie(request.headers)
    if given is None:
        raise HttpError(401, "login_required", "the request has no session", (console_requests.CHALLENGE,))
    try:
        user, cookie, lasts_ms = sessions.renew(given)
    except KafkaError as error:
        raise logins.refusal(error, request.headers) from None
    return _with_cookie(gateway, request, logins, user, cookie, lasts_ms)


@ROUTES.add(
    "DELETE",
    "/session",
    "Log out: the console's session ends, and the browser forgets its cookie.",
    status=204,
    rule=ANYONE,
    changes=False,
)
def _log_out(gateway: Any, request: Request) -> Response:
    console_requests.check_header(request.headers)
    logins: HttpLogins | None = gateway.http_logins
    if logins is None or logins.sessions is None:
        return Response(204)
    given = logins.session_cookie(request.headers)
    if given is not None:
        logins.sessions.end(given)
    return Response(204, headers=(logins.cookies.set_session(request.headers, "", 0),))


def sessions_of(gateway: Any) -> "tuple[HttpLogins, ConsoleSessions]":
    """Raise if there is nothing to log in at."""
    logins: HttpLogins | None = gateway.http_logins
    if console_mode(gateway.context) == OFF:
        raise HttpError(403, "console_off", "the console is off: console.mode is off")
    if logins is None or logins.sessions is None:
        raise HttpError(409, "no_log_in", "this node asks for no log-in")
    return logins, logins.sessions


def _with_cookie(
    gateway: Any, request: Request, logins: "HttpLogins", user: str, cookie: str, lasts_ms: int
) -> Response:
    answer = json(describe(gateway, f"User:{user}", lasts_ms))
    return answer._replace(headers=(logins.cookies.set_session(request.headers, cookie, lasts_ms),))


def _schemes(logins: "HttpLogins | None") -> list[str]:
    if logins is None:
        return []
    offered = ((PASSWORD, logins.door.takes_passwords), (OIDC, logins.door.oidc is not None))
    return [name for name, is_offered in offered if is_offered]


def describe(gateway: Any, principal: str, expires_in_ms: int | None = None) -> SessionInfo:
    """A caller, as it is known at this request."""
    context: Context = gateway.context
    login_required = bool(gateway.http_schemes)
    mode = console_mode(context)
    schemes = _schemes(gateway.http_logins) if mode != OFF else []
    if not login_required and principal != ANONYMOUS:
        schemes.append(CERTIFICATE)
    if login_required and principal == ANONYMOUS:
        return SessionInfo(None, mode, login_required, schemes)
    return SessionInfo(
        principal,
        mode,
        login_required,
        schemes,
        expires_in_ms,
        context.node_id,
        context.cluster_id,
        __version__,
    )
