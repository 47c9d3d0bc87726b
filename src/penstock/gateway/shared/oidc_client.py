"""The console as a client of an identity provider: OpenID Connect's authorization code flow with PKCE (RFC 7636).

    browser   /session/oidc --> the provider's page --> /session/oidc/callback?code=...
    node                        discovery document      code and verifier --> the token endpoint --> id token

What must come back with the browser (`Attempt`) is in a signed cookie, so nothing is kept for those who never do. The
id token is checked like any bearer token: signature, issuer, times and the claim that names the user; its audience
must be the console, and its nonce the one that was sent.

The provider is asked on a thread, with a bounded number of requests, bytes and seconds.
"""

import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps, beside, sleep
from penstock.base.world import World
from penstock.gateway.shared.login import (
    AuthorizationCode,
    Login,
    LoginRefused,
    LoginUndecided,
    TooManyLogins,
)
from penstock.security.bearer import BearerToken, InvalidToken, KeysPending, TokenValidator
from penstock.security.jwt import decode_part

logger = logging.getLogger(__name__)

OAUTHBEARER: Final = "OAUTHBEARER"

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
DISCOVERED_NS: Final = 3_600_000_000_000
"""After this time the discovery document is fetched again."""

EXCHANGES_MAX: Final = 2
"""Codes that are exchanged at the same time: each may hold a thread for some seconds."""

_REFUSALS: Final = (400, 401, 403)
"""Statuses of a token endpoint that does not accept a code or this client (RFC 6749, 5.2)."""

KEY_LOOK_MS: Final = 100
KEY_LOOKS_MAX: Final = 50
"""While the provider's keys are being fetched."""

Fetch = Callable[[str, bytes | None, Mapping[str, str]], bytes]
"""The content at a URL, by GET or by POST with a body, and with headers. Runs on a thread."""


@dataclass(frozen=True, slots=True)
class OidcClient:
    """Who the console is at the provider."""

    issuer: str
    client_id: str
    client_secret: str | None = field(repr=False)
    """None for a public client, which PKCE alone secures."""
    scopes: str
    redirect_url: str | None
    """Where the provider sends the browser back to; None for the address that the browser has used."""


class Attempt(msgspec.Struct, array_like=True):
    """A log-in that has begun: what the browser brings back in a cookie."""

    state: str
    nonce: str
    verifier: str
    redirect_url: str
    back_to: str
    """The page that the user wants."""
    until_ms: int


class _Discovered(msgspec.Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: list[str] = []


class _Tokens(msgspec.Struct):
    id_token: str


class ProviderFailed(LoginUndecided):
    """The provider did not answer, or not as it should."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`status` is that of its answer, if there was one."""
        super().__init__(message)
        self.status = status


class OidcProvider:
    """The provider, as this node asks it."""

    def __init__(self, world: World, client: OidcClient, tokens: TokenValidator, fetch: Fetch) -> None:
        self.client = client
        self._world = world
        self._tokens = tokens
        self._fetch = fetch
        self._discovered: tuple[_Discovered, int] | None = None
        """With the time of the fetch."""
        self._discovering: Promise[bytes] | None = None
        self._exchanging = 0

    # -- to the provider ---------------------------------------------------------------------------------

    def authorization_url(self, attempt: Attempt) -> Steps[str]:
        """Where the browser goes to log in. Raises `ProviderFailed`."""
        found = yield from self._discovery()
        parameters = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": attempt.redirect_url,
            "scope": self.client.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        endpoint = found.authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    def _discovery(self) -> Steps[_Discovered]:
        known = self._discovered
        if known is not None and self._world.clock_ns() - known[1] < DISCOVERED_NS:
            return known[0]
        if self._discovering is None:
            self._discovering = self._asked(self.client.issuer.rstrip("/") + DISCOVERY_PATH, None, {})
        try:
            content: bytes = yield self._discovering
        except ProviderFailed:
            if known is None:
                raise
            return known[0]
        finally:
            self._discovering = None
        found: _Discovered = _decoded(content, _Discovered, "its discovery document")
        if found.issuer != self.client.issuer:
            raise _failed(f"its discovery document is of the issuer {found.issuer[:200]!r}")
        for url in (found.authorization_endpoint, found.token_endpoint):
            if not url.startswith(("https://", "http://")) or not url.isascii() or not url.isprintable():
                raise _failed(f"its discovery document has the endpoint {url[:200]!r}")
        self._discovered = found, self._world.clock_ns()
        return found

    # -- back from the provider --------------------------------------------------------------------------

    def log_in(self, given: AuthorizationCode) -> Steps[Login]:
        """The user whom the provider has logged in. Raises `LoginRefused`, `ProviderFailed` or `TooManyLogins`."""
        if self._exchanging >= EXCHANGES_MAX:
            raise TooManyLogins("too many clients log in at the same time")
        self._exchanging += 1
        try:
            token = yield from self._exchange(given)
        finally:
            self._exchanging -= 1
        found = yield from self._validated(token)
        claims: dict[str, Any] = decode_part(token.split(".")[1], dict[str, Any], "claims")
        if claims.get("nonce") != given.nonce:
            raise LoginRefused(
                "the id token is that of another log-in: its nonce is not the one that was sent"
            )
        if claims.get("azp", self.client.client_id) != self.client.client_id:
            raise LoginRefused("the id token was made for another client")
        return Login(found.user, OAUTHBEARER, expires_ms=found.expires_ms)

    def _validated(self, token: str) -> Steps[BearerToken]:
        """What the token says. If its key is new, wait until the keys are fetched: a code can be used only once."""
        for _ in range(KEY_LOOKS_MAX):
            try:
                return self._tokens.validate(token, self._world.now_ms())
            except KeysPending:
                yield sleep(self._world, KEY_LOOK_MS)
            except InvalidToken as error:
                raise LoginRefused(str(error)) from None
        raise _failed("the key that signed its id token is not among its keys")

    def _exchange(self, given: AuthorizationCode) -> Steps[str]:
        found = yield from self._discovery()
        client = self.client
        form = {
            "grant_type": "authorization_code",
            "code": given.code,
            "redirect_uri": given.redirect_url,
            "code_verifier": given.verifier,
            "client_id": client.client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        methods = found.token_endpoint_auth_methods_supported
        if client.client_secret is not None:
            if "client_secret_post" in methods and "client_secret_basic" not in methods:
                form["client_secret"] = client.client_secret
            else:  # RFC 6749, 2.3.1: both are encoded as in a form first
                both = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
                headers["Authorization"] = f"Basic {b64encode(both.encode()).decode()}"
        try:
            content = yield self._asked(found.token_endpoint, urlencode(form).encode(), headers)
        except ProviderFailed as error:
            if error.status in _REFUSALS:
                raise LoginRefused(f"the identity provider refused the code with {error.status}") from None
            raise
        tokens: _Tokens = _decoded(content, _Tokens, "the answer of its token endpoint")
        return tokens.id_token

    def _asked(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Promise[bytes]:
        return beside(
            self._world, lambda: self._answer(url, body, headers), lambda error: _failed(type(error).__name__)
        )

    def _answer(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """On a thread."""
        try:
            return self._fetch(url, body, headers)
        except KafkaError as error:
            raise _failed(str(error), getattr(error.__cause__, "code", 0)) from None


def _challenge(verifier: str) -> str:
    import hashlib  # noqa: PLC0415  (loads OpenSSL)

    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _decoded(content: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # The error's own text may have a part of a token.
        raise _failed(f"{what} is not what it should be ({type(error).__name__})") from None


def _failed(why: str, status: int = 0) -> ProviderFailed:
    logger.warning("the identity provider of the console cannot be used: %s", why)
    return ProviderFailed(
        "the identity provider did not answer as it should; the node's log has more", status
    )
