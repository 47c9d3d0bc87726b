"""Finds out why a broker closed a connection without a word: by asking it once more, in another way.

A listener with SASL closes the connection of a client that sends a request before it has logged in. But so does a
broker that is stopping, after which a client should try again. A handshake with an unknown mechanism tells them apart:
a listener with SASL refuses it and names its mechanisms, another one answers that it has no log-ins.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.wire.request import Request

from .errors import LoginFailed
from .login import sasl_handshake

T = TypeVar("T")

_NO_MECHANISM = "NONE"


class Asking(Protocol):
    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T: ...

    def close(self) -> None: ...


def login_required(peer: str, connect: Callable[[], Asking]) -> LoginFailed | None:
    """The error that tells the user to log in, if the broker asks for it."""
    try:
        link = connect()
        try:
            reply: Any = link.ask(sasl_handshake(_NO_MECHANISM))
        finally:
            link.close()
    except KafkaError:
        return None
    if reply.error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return None
    return LoginFailed(
        f"{peer} asks for a log-in with {' or '.join(reply.mechanisms) or 'SASL'}, and this client has no "
        "credentials; set security.protocol, sasl.mechanism and sasl.jaas.config"
    )
