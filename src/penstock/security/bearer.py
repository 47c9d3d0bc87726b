"""Bearer tokens: the principal, scopes and expiry that a valid token contains.

Log-ins with a token call a `TokenValidator`; `jwt` and `unsecured_jws` implement it.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs

TOKEN_CHARS_MAX = 65_536
"""Longer tokens are refused unread. Tokens of identity providers have 1 to 8 KB."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What tokens must say."""

    issuer: str | None = None
    """None for any."""
    audiences: frozenset[str] = frozenset()
    """Empty if no token may be for an audience."""
    skew_ms: int = 30_000
    """How far the provider's clock may be from this node's."""
    user_claim: str = "sub"
    scope_claim: str = "scope"


@dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """What tokens without a signature must say."""

    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: frozenset[str] = frozenset()
    skew_ms: int = 0


class BearerToken(NamedTuple):
    user: str
    """The name of the principal, without `User:`."""
    expires_ms: TimestampMs
    """From then on the token, and every session that began with it, is invalid."""


class InvalidToken(KafkaError):
    """The token is not accepted. The message is for the log: it never has the token or a part of its signature."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class KeysPending(InvalidToken):
    """The key that signed the token is not known, and the keys are being fetched: the client should try again."""


class TokenValidator(Protocol):
    def validate(self, token: str, now_ms: TimestampMs) -> BearerToken:
        """What the token says, by the wall clock `now_ms`. Raises InvalidToken. Takes less than 5 ms."""
