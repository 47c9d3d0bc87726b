"""Finds out why a broker closed a connection without an answer, by connecting once more in another way.

- A listener with SASL closes the connection of a client that sends a request before it has logged in. A handshake with
  an unknown mechanism shows that: such a listener rejects it and lists its mechanisms; other listeners have no
  log-ins.
- A listener with TLS closes the connection of a client without, and a listener without that of a client with TLS. The
  client connects again in the other way, and sends only the greeting.

A broker that is stopping closes connections too, and a client should retry. Then these requests get no answer either,
and the error is that of a lost connection.
"""

import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.wire.request import Request

from .errors import AuthenticationFailed, ClientError, LoginFailed
from .login import sasl_handshake
from .settings import Address

T = TypeVar("T")

_NO_MECHANISM = "NONE"


class Asking(Protocol):
    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T: ...

    def close(self) -> None: ...


def tls_required(
    peer: str, dial: Callable[[], socket.socket], host: Address, timeout_ms: float
) -> ClientError | None:
    """An error that asks the user to enable TLS, if the broker uses it."""
    from .tls import speaks_tls  # noqa: PLC0415  (loads OpenSSL)

    try:
        with dial() as dialled:
            if not speaks_tls(dialled, host, timeout_ms):
                return None
    except KafkaError:
        return None
    return AuthenticationFailed(
        f"{peer} asks for TLS, and this client does not use it; set security.protocol to SSL or SASL_SSL"
    )


def tls_refused(peer: str, connect: Callable[[], Asking]) -> ClientError | None:
    """An error that asks the user to disable TLS, if the broker does not use it. `connect` greets without TLS."""
    try:
        connect().close()
    except KafkaError:
        return None
    return AuthenticationFailed(
        f"{peer} does not use TLS, and this client does; set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use "
        "a listener with TLS"
    )


def login_required(peer: str, connect: Callable[[], Asking]) -> ClientError | None:
    """An error that asks the user to log in, if the broker requires it."""
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
