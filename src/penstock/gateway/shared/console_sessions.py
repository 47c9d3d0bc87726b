"""Sessions of the console: what a cookie says, and whether it still holds.

    log-in --> begin --> cookie --> check, with each new connection --> Login, as of any other client
                           |  ^
                           +--+ renew: the user is at the page

The cookie has everything: the user, how they logged in, a proof of the password that they had, and three times. It is
signed, so nodes keep nothing for a session, and nodes with the same `console.session.secret` accept each other's
cookies. It holds no longer than

- `console.session.idle.ms` after it was made or renewed,
- `console.session.max.ms` after the log-in,
- the bearer token or delegation token that the user logged in with,
- the user's password: the proof is a keyed hash of what the node keeps of it, and is compared with each request.

A user who logs out ends the session at this node at once; its id is kept until the session would have ended.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.gateway.shared.door_logins import DoorLogins, promised
from penstock.gateway.shared.login import Login, SessionOver
from penstock.gateway.shared.signed_text import CHARS_MAX, sign, verified
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting

ENDED_MAX: Final = 10_000
"""Sessions of users who logged out, and that would not have ended yet."""

_PURPOSE: Final = "session"


class Claims(msgspec.Struct, array_like=True):
    """What a cookie says."""

    id: str
    user: str
    mechanism: str
    token_id: str
    """Of the delegation token that the user logged in with; else empty."""
    proof: bytes
    began_ms: int
    renewed_ms: int
    until_ms: int
    """When what the user logged in with expires; 0 for never."""


_decode = msgspec.json.Decoder(Claims).decode


class ConsoleSessions:
    def __init__(self, context: Context, logins: DoorLogins, changed: Callable[[], None]) -> None:
        """`changed` is called when a session has ended: streams of its user end too."""
        self._context = context
        self._logins = logins
        self._changed = changed
        self.key = logins.console_key()
        self._count = 0
        self._ended: OrderedDict[str, int] = OrderedDict()
        """By the id of a session whose user logged out: when it would have ended."""
        self._valid_from_ms = 0
        """Sessions that began before have ended: more users logged out than are kept."""

    def begin(self, login: Login) -> tuple[str, int]:
        """The cookie of a new session, and for how many milliseconds it holds."""
        now_ms = self._context.world.now_ms()
        claims = Claims(
            self.draw("session"),
            login.user,
            login.mechanism,
            login.token_id,
            self._proof(login),
            now_ms,
            now_ms,
            login.expires_ms or 0,
        )
        return self._signed(claims)

    def draw(self, what: str) -> str:
        """An unguessable text that is never drawn again."""
        self._count += 1
        return self._logins.fingerprint(f"{what} {self._count}")[:24].hex()

    def renew(self, cookie: str) -> tuple[str, str, int]:
        """The user, the cookie of the same session for another idle time, and for how many milliseconds it holds.
        Raises `SessionOver`."""
        claims = self._claims(cookie)
        self._login(claims)
        renewed = msgspec.structs.replace(claims, renewed_ms=self._context.world.now_ms())
        return claims.user, *self._signed(renewed)

    def lasts_ms(self, cookie: str) -> int:
        """For how long a cookie holds; raises `SessionOver`."""
        return self._expires_ms(self._claims(cookie)) - self._context.world.now_ms()

    def end(self, cookie: str) -> None:
        """The user has logged out."""
        try:
            claims = self._claims(cookie)
        except SessionOver:
            return
        now_ms = self._context.world.now_ms()
        self._ended[claims.id] = claims.began_ms + self._setting("console.session.max.ms")
        while self._ended and next(iter(self._ended.values())) <= now_ms:
            self._ended.popitem(last=False)
        if len(self._ended) > ENDED_MAX:
            self._valid_from_ms = now_ms + 1
            self._ended.clear()
        self._changed()

    def check(self, cookie: str) -> Promise[Login]:
        """By the controller's latest metadata, as the first request with a password on a connection. Fails with
        `SessionOver`."""
        return promised(self._check(cookie))

    def _check(self, cookie: str) -> Steps[Login]:
        claims = self._claims(cookie)
        yield self._logins.latest(claims.mechanism)
        return self._login(claims)

    def _claims(self, cookie: str) -> Claims:
        content = verified(self.key, _PURPOSE, cookie)
        if content is None:
            raise SessionOver("the session is not known at this node. Log in again.")
        claims = _decode(content)
        if not self._context.world.now_ms() < self._expires_ms(claims):
            raise SessionOver("the session has expired. Log in again.")
        if self._is_ended(claims):
            raise SessionOver("the user has logged out. Log in again.")
        return claims

    def _login(self, claims: Claims) -> Login:
        """The user, if nothing has changed since the log-in."""
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        standing = self._logins.standing(claims.mechanism, claims.user, claims.token_id)
        if standing is None or not hmac.compare_digest(self._proof(standing), claims.proof):
            raise SessionOver("the user was changed or removed. Log in again.")
        return Login(
            claims.user,
            claims.mechanism,
            lambda: standing.is_unchanged() and not self._is_ended(claims),
            self._expires_ms(claims),
            is_by_token=standing.is_by_token,
            is_session=True,
        )

    def _is_ended(self, claims: Claims) -> bool:
        return claims.id in self._ended or claims.began_ms < self._valid_from_ms

    def _proof(self, login: Login) -> bytes:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        return hmac.digest(self.key, b"password\0" + login.basis, "sha256")

    def _signed(self, claims: Claims) -> tuple[str, int]:
        cookie = sign(self.key, _PURPOSE, msgspec.json.encode(claims))
        if len(cookie) > CHARS_MAX:
            raise SessionOver("the user's name is too long for a session of the console")
        return cookie, self._expires_ms(claims) - self._context.world.now_ms()

    def _expires_ms(self, claims: Claims) -> int:
        return min(
            claims.renewed_ms + self._setting("console.session.idle.ms"),
            claims.began_ms + self._setting("console.session.max.ms"),
            *((claims.until_ms,) if claims.until_ms else ()),
        )

    def _setting(self, name: str) -> int:
        return int(broker_setting(name, self._context.image, self._context.settings) or 0)
