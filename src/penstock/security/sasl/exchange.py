"""What a mechanism makes of a client's tokens.

An exchange takes one token after the other. It answers each with a challenge, until it accepts or refuses the client.
"""

from typing import NamedTuple, Protocol, TypeAlias

from penstock.base.ids import TimestampMs


class Challenge(NamedTuple):
    """The log-in goes on."""

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
    """For the client; None for the sentence that says nothing but that its credentials are invalid."""
    user: str | None = None
    """For the audit: the name that the client claims to have."""


class Undecided(NamedTuple):
    """What decides may have changed during the log-in, or is not known yet: the client must begin again."""

    why: str


Verdict: TypeAlias = Challenge | Accepted | Refused | Undecided


class Exchange(Protocol):
    @property
    def needs_latest(self) -> bool:
        """Whether the next token should be answered by the controller's latest committed metadata."""

    def evaluate(self, token: bytes, *, is_latest: bool) -> Verdict:
        """Take the client's next token. `is_latest` says whether the metadata is known to be the latest."""
