"""The server side of a SASL mechanism.

An exchange gets the client's tokens one after the other. It returns a challenge for each, until it accepts or refuses
the client.
"""

from typing import NamedTuple, Protocol, TypeAlias

from penstock.base.ids import TimestampMs


class Challenge(NamedTuple):
    """The log-in continues with this token for the client."""

    token: bytes


class Accepted(NamedTuple):
    user: str
    token: bytes = b""
    expires_ms: TimestampMs | None = None
    """When what the client logged in with expires, by the wall clock; None for never. The session ends then."""
    is_by_token: bool = False
    """The client logged in with a delegation token of the user."""


class Refused(NamedTuple):
    why: str
    """For the log. Never contains what a client sent as its password or proof."""
    message: str | None = None
    """For the client; None for the generic message that its credentials are invalid."""
    user: str | None = None
    """For the audit: the user name that the client sent."""


class Undecided(NamedTuple):
    """The credentials changed during the log-in, or are not known yet: the client must log in again."""

    why: str


Verdict: TypeAlias = Challenge | Accepted | Refused | Undecided


class Exchange(Protocol):
    @property
    def needs_latest(self) -> bool:
        """Whether the next token should be answered by the controller's latest committed metadata."""

    def evaluate(self, token: bytes, *, is_latest: bool) -> Verdict:
        """Take the client's next token. `is_latest` says whether the metadata is known to be the latest."""
