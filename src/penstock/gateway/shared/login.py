"""What a client of a door logs in with, the log-in that comes of it, and the ways in which it fails.

A `Login` holds as long as `is_current`: the user is unchanged in the metadata, and the token has not expired.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.handlers.support.context import Session


class Password(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Password({self.user!r})"


class BearerToken(NamedTuple):
    token: str

    def __repr__(self) -> str:
        return "BearerToken()"


class AuthorizationCode(NamedTuple):
    """What a browser brings back from the identity provider, and what it was sent there with."""

    code: str
    verifier: str
    nonce: str
    redirect_url: str

    def __repr__(self) -> str:
        return "AuthorizationCode()"


class SessionCookie(NamedTuple):
    value: str

    def __repr__(self) -> str:
        return "SessionCookie()"


Credentials: TypeAlias = Password | BearerToken | AuthorizationCode


class LoginRefused(KafkaError):
    code = ErrorCode.SASL_AUTHENTICATION_FAILED

    def __init__(self, why: str) -> None:
        """`why` is for the log; every client gets the same sentence."""
        super().__init__("the user, the password or the token is not valid")
        self.why = why


class LoginUndecided(KafkaError):
    """What decides is not known at this moment: the client should try again."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class SessionOver(KafkaError):
    """The cookie is not that of a session of the console, or the session is over: the user should log in again."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class Throttled(KafkaError):
    """The client should try again, later."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self, message: str, retry_s: int = 1) -> None:
        super().__init__(f"{message}. Retry in {retry_s} s.")
        self.retry_s = retry_s


class TooManyLogins(Throttled):
    """Too many clients log in, or too many log-ins of an address have failed."""


@dataclass(frozen=True, slots=True)
class Login:
    """A client that has logged in."""

    user: str
    mechanism: str
    is_unchanged: Callable[[], bool] = field(default=lambda: True, repr=False)
    """Whether the metadata still has what the client logged in with."""
    expires_ms: int | None = None
    """When what the client logged in with expires, by the wall clock; None for never."""
    is_by_token: bool = False
    """With a delegation token of the user."""
    basis: bytes = field(default=b"", repr=False)
    """What the node keeps of what the client logged in with; another password has another. A session of the console
    rests on it. Empty for bearer tokens."""
    token_id: str = ""
    """Of the delegation token."""
    is_session: bool = False
    """With the cookie of a session of the console."""

    def is_current(self, now_ms: int) -> bool:
        return (self.expires_ms is None or now_ms < self.expires_ms) and self.is_unchanged()

    def session_of(self, connected: Session) -> Session:
        """The session of the user on a connection."""
        session = Session(connected.host, connected.port, connected.peer, connected.listener, connected.end)
        session.principal, session.is_by_token = f"User:{self.user}", self.is_by_token
        return session
