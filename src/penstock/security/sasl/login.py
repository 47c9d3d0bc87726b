"""The order of requests of one log-in, as Kafka's brokers demand it.

    [ApiVersions] --> SaslHandshake 1 --> SaslAuthenticate, until the mechanism accepts or refuses the client
                  \\-> SaslHandshake 0 --> tokens without Kafka's headers

A connection that has logged in may do so again (KIP-368), without ApiVersions, with the same mechanism and as the same
user. A log-in that failed takes nothing more.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.security.sasl.exchange import Accepted, Exchange, Refused, Verdict

NEW_PRINCIPAL: Final = "Cannot change principals during re-authentication from User.{}: User.{}"


class UnexpectedRequest(KafkaError):
    """A request that may not come at this point of a log-in."""

    code = ErrorCode.ILLEGAL_SASL_STATE


class LoginState(Enum):
    FIRST_REQUEST = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


class Handshake(NamedTuple):
    code: ErrorCode
    mechanisms: tuple[str, ...]


class LoggedIn(NamedTuple):
    mechanism: str
    user: str


MakeExchange = Callable[[], Exchange]


class SaslLogin:
    __slots__ = (
        "_before",
        "_exchange",
        "_has_headers",
        "_mechanisms",
        "_wrong_mechanism",
        "mechanism",
        "state",
    )

    def __init__(self, mechanisms: Mapping[str, MakeExchange], before: LoggedIn | None = None) -> None:
        """`mechanisms` are those that the listener has enabled, `before` the log-in that this one follows."""
        self._mechanisms = mechanisms
        self._before = before
        self._exchange: Exchange | None = None
        self._has_headers = True
        self._wrong_mechanism: str | None = None
        self.mechanism = ""
        self.state = LoginState.FIRST_REQUEST if before is None else LoginState.HANDSHAKE

    @property
    def takes_raw_tokens(self) -> bool:
        """Whether the next frame is a token without Kafka's header."""
        return self.state is LoginState.TOKENS and not self._has_headers

    @property
    def needs_latest(self) -> bool:
        return self._exchange is not None and self._exchange.needs_latest

    def api_versions(self, is_known_version: bool) -> None:
        """Answer an ApiVersions request. One of an unknown version may be repeated in another."""
        self._expect(LoginState.FIRST_REQUEST, what="ApiVersions")
        if is_known_version:
            self.state = LoginState.HANDSHAKE

    def handshake(self, version: int, mechanism: str) -> Handshake:
        self._expect(LoginState.FIRST_REQUEST, LoginState.HANDSHAKE, what="SaslHandshake")
        names = tuple(self._mechanisms)
        if mechanism not in self._mechanisms:
            self.state = LoginState.FAILED
            return Handshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)
        self._has_headers = version >= 1
        self.state, self.mechanism = LoginState.TOKENS, mechanism
        if self._before is not None and mechanism != self._before.mechanism:
            self._wrong_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._before.mechanism}'"
            )
        else:
            self._exchange = self._mechanisms[mechanism]()
        return Handshake(ErrorCode.NONE, names)

    def token(self, token: bytes, *, is_latest: bool) -> Verdict:
        """Take a token. A refusal has the message for the client."""
        self._expect(LoginState.TOKENS, what="SaslAuthenticate")
        if self._exchange is None:
            self.state = LoginState.FAILED
            assert self._wrong_mechanism is not None
            return Refused("another mechanism than before", self._wrong_mechanism)
        verdict = self._exchange.evaluate(token, is_latest=is_latest)
        if isinstance(verdict, Accepted) and self._before is not None and verdict.user != self._before.user:
            verdict = Refused(
                "another user than before",
                NEW_PRINCIPAL.format(self._before.user, verdict.user),
                verdict.user,
            )
        if isinstance(verdict, Refused):
            self.state = LoginState.FAILED
            return verdict if verdict.message is not None else verdict._replace(message=self._no_details())
        if isinstance(verdict, Accepted):
            self.state = LoginState.DONE
        return verdict

    def fail(self) -> None:
        self.state = LoginState.FAILED

    def _no_details(self) -> str:
        what = "authentication" if self._before is None else "re-authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self.mechanism}"

    def _expect(self, *states: LoginState, what: str) -> None:
        if self.state not in states:
            during = "authentication" if self.state is LoginState.TOKENS else "handshake"
            self.state = LoginState.FAILED
            raise UnexpectedRequest(f"Unexpected Kafka request of type {what} during SASL {during}.")
