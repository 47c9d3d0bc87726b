"""Who sends an HTTP request: its `Authorization` header, Basic or Bearer.

This is the one place that reads credentials from a request; a door without log-ins never calls it. A client without
credentials gets 401 with `WWW-Authenticate`, which names what it can log in with. The console's page gets another one,
so that the browser does not ask for a password itself. The console's session is a cookie (`console_requests.py`); a
request with both is decided by its `Authorization` header.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.gateway.http.protocol import console_requests
from penstock.gateway.http.protocol.errors import from_kafka
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.shared.login import (
    BearerToken,
    Credentials,
    Login,
    LoginRefused,
    LoginUndecided,
    Password,
    SessionCookie,
    SessionOver,
    TooManyLogins,
)
from penstock.handlers.support.context import Session

if TYPE_CHECKING:
    from penstock.gateway.shared.console_sessions import ConsoleSessions
    from penstock.gateway.shared.door_logins import DoorLogins

HEADER: Final = "authorization"

_BASIC: Final = 'Basic realm="penstock", charset="UTF-8"'
_BEARER: Final = 'Bearer realm="penstock"'


class HttpLogins:
    """The log-ins of the HTTP door."""

    def __init__(
        self,
        logins: "DoorLogins",
        sessions: "ConsoleSessions | None" = None,
        cookies: console_requests.ConsoleCookies | None = None,
    ) -> None:
        """`sessions` is None if the console is off."""
        self.door, self.fingerprint = logins, logins.fingerprint
        self.sessions = sessions
        self.cookies = cookies or console_requests.ConsoleCookies(has_tls=True)
        self.schemes = tuple(
            name
            for name, is_on in (("basic", logins.takes_passwords), ("bearer", logins.takes_tokens))
            if is_on
        )
        self._challenges = tuple(
            ("WWW-Authenticate", _BASIC if name == "basic" else _BEARER) for name in self.schemes
        )

    def check(self, credentials: Credentials | SessionCookie, session: Session) -> Promise[Login]:
        """Fails with the errors that `refusal` takes."""
        if not isinstance(credentials, SessionCookie):
            return self.door.check(credentials, session)
        assert self.sessions is not None
        return self.sessions.check(credentials.value)

    def session_cookie(self, headers: Mapping[str, str]) -> str | None:
        """The cookie of the console's session, if the request has one and the console is on."""
        if "cookie" not in headers or self.sessions is None:
            return None
        return self.cookies.session(headers)

    def credentials(self, headers: Mapping[str, str]) -> Credentials:
        """Raises 401 if the request has none that this door takes."""
        given = headers.get(HEADER)
        if given is None:
            raise HttpError(
                401, "login_required", "log in with the Authorization header", self.challenges(headers)
            )
        scheme, _, rest = given.partition(" ")
        scheme, rest = scheme.lower(), rest.strip()
        if scheme not in self.schemes:
            known = " or ".join(each.capitalize() for each in self.schemes)
            raise HttpError(401, "login_failed", f"the Authorization header is not {known}", self._challenges)
        if scheme == "bearer":
            return BearerToken(rest)
        try:
            user, colon, password = b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if not colon:
            raise HttpError(
                401, "login_failed", "the Authorization header has no user and password", self._challenges
            )
        return Password(user, password)

    def challenges(self, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """The headers of a 401."""
        return (console_requests.CHALLENGE,) if console_requests.is_from_page(headers) else self._challenges

    def refusal(self, error: KafkaError, headers: Mapping[str, str]) -> HttpError:
        """The response to a log-in that failed."""
        if isinstance(error, LoginRefused):
            return HttpError(401, "login_failed", str(error), self.challenges(headers))
        if isinstance(error, SessionOver):
            return HttpError(401, "session_over", str(error), (console_requests.CHALLENGE,))
        if isinstance(error, TooManyLogins):
            return HttpError(429, "too_many_log_ins", str(error), (("Retry-After", str(error.retry_s)),))
        if isinstance(error, LoginUndecided):
            return HttpError(503, "login_undecided", str(error), (("Retry-After", "1"),))
        return from_kafka(error)
