"""Who sends an HTTP request: its `Authorization` header, Basic or Bearer.

This is the one place that reads credentials from a request; a door without log-ins never calls it. A client without
credentials gets 401 with `WWW-Authenticate`, which names what it can log in with.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.base.errors import KafkaError
from penstock.gateway.http.protocol.errors import from_kafka
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.shared.login import (
    BearerToken,
    Credentials,
    LoginRefused,
    LoginUndecided,
    Password,
    TooManyLogins,
)

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins

HEADER: Final = "authorization"

_BASIC: Final = 'Basic realm="penstock", charset="UTF-8"'
_BEARER: Final = 'Bearer realm="penstock"'


class HttpLogins:
    """The log-ins of the HTTP door."""

    def __init__(self, logins: "DoorLogins") -> None:
        self.check, self.fingerprint = logins.check, logins.fingerprint
        self.schemes = tuple(
            name
            for name, is_on in (("basic", logins.takes_passwords), ("bearer", logins.takes_tokens))
            if is_on
        )
        self._challenges = tuple(
            ("WWW-Authenticate", _BASIC if name == "basic" else _BEARER) for name in self.schemes
        )

    def credentials(self, headers: Mapping[str, str]) -> Credentials:
        """Raises 401 if the request has none that this door takes."""
        given = headers.get(HEADER)
        if given is None:
            raise HttpError(401, "login_required", "log in with the Authorization header", self._challenges)
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

    def refusal(self, error: KafkaError) -> HttpError:
        """The response to a log-in that failed."""
        if isinstance(error, LoginRefused):
            return HttpError(401, "login_failed", str(error), self._challenges)
        if isinstance(error, TooManyLogins):
            return HttpError(429, "too_many_log_ins", str(error), (("Retry-After", str(error.retry_s)),))
        if isinstance(error, LoginUndecided):
            return HttpError(503, "login_undecided", str(error), (("Retry-After", "1"),))
        return from_kafka(error)
