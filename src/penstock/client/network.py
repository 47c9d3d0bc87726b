"""Sockets: blocking, and several at once if a caller waits for the first reply.

The rest of the client uses `Link` and `Network`; tests have implementations without sockets.

With TLS the keys and certificates are read once, by the first connection of a `SocketNetwork`. A connection that fails
before a request was answered is diagnosed (`diagnosis.py`): if only one side uses TLS or SASL, the error says so, and
is final.
"""

import errno
import selectors
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.base.errors import KafkaError
from penstock.wire.request import Request

from .connection import Call, Conversation
from .diagnosis import login_required, tls_refused, tls_required
from .errors import ClientError, ConnectionLost, TimedOut, Unreachable
from .security import PLAINTEXT, ClientSecurity
from .settings import Address, ClientSettings, Clock

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Link(Protocol):
    """An open connection to one broker."""

    @property
    def is_open(self) -> bool: ...

    def start(self, request: Request[T]) -> Call[T]:
        """Send a request without waiting."""
        ...

    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T:
        """Send a request and wait for its reply. Earlier calls are answered meanwhile."""
        ...

    def read(self) -> list[Call[Any]]:
        """The calls that are answered now. Call it for links that `Network.wait` returned."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    def connect(self, address: Address) -> Link: ...

    def wait(self, links: Sequence[Link], timeout_ms: float) -> list[Link]:
        """The links with something to read; empty after the timeout."""
        ...


class SocketNetwork:
    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        """Of TLS; None until it is used."""

    def connect(self, address: Address) -> "SocketLink":
        return SocketLink(address, self._settings, self._clock, self._tls_context())

    def _tls_context(self) -> "ssl.SSLContext | None":
        tls = self._settings.security.tls
        if tls is not None and self._context is None:
            from .tls import client_context  # noqa: PLC0415  (loads OpenSSL)

            self._context = client_context(tls)
        return self._context

    def wait(self, links: Sequence[Link], timeout_ms: float) -> list[Link]:
        decrypted = [each for each in links if isinstance(each, SocketLink) and each.has_decrypted]
        if decrypted:
            return list(decrypted)
        with selectors.PollSelector() as selector:  # makes no system call before it waits
            for link in links:
                assert isinstance(link, SocketLink)
                selector.register(link.socket, selectors.EVENT_READ, link)
            return [key.data for key, _ in selector.select(max(0.0, timeout_ms) / 1000)]


class SocketLink:
    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        clock: Clock,
        context: "ssl.SSLContext | None" = None,
        *,
        is_probe: bool = False,
    ) -> None:
        """`context` is that of TLS. A probe is a connection that finds out why another one failed."""
        self.address = address
        self._settings = settings
        self._clock = clock
        self._context = context
        self._conversation = Conversation(
            str(address),
            settings.client_id,
            settings.response_bytes_max,
            settings.security.login,
            clock.now_ms,
        )
        self._is_probe = is_probe
        self._is_served = False
        """A request has been answered after the greeting."""
        self.is_open = False
        self.socket = self._dial()
        self.is_open = True
        deadline = clock.now_ms() + settings.connect_timeout_ms
        try:
            if context is not None:
                self._begin_tls(context)
            self._send()
            while not self._conversation.is_ready:
                self._receive(deadline, "a greeting", settings.connect_timeout_ms)
        except BaseException:
            self.close()
            raise

    def _dial(self) -> socket.socket:
        timeout_ms = self._settings.connect_timeout_ms
        try:
            dialled = socket.create_connection(self.address, timeout_ms / 1000)
        except TimeoutError:
            raise Unreachable(
                f"cannot reach {self.address}: no answer within {timeout_ms / 1000:g} s"
            ) from None
        except OSError as error:
            raise Unreachable(f"cannot reach {self.address}: {_reason(error)}") from error
        with suppress(OSError):  # not every stream has Nagle's algorithm
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return dialled

    def _begin_tls(self, context: "ssl.SSLContext") -> None:
        from .tls import is_no_tls, shake_hands  # noqa: PLC0415  (loads OpenSSL)

        timeout_ms = self._settings.connect_timeout_ms
        try:
            self.socket = shake_hands(context, self.socket, self.address, timeout_ms)
        except TimeoutError:
            raise self._late("a TLS handshake", timeout_ms) from None
        except OSError as error:
            failed = self._of_tls(error)
            if failed is None and is_no_tls(error) and not self._is_probe:
                failed = tls_refused(str(self.address), lambda: self._probe(PLAINTEXT))
            if failed is None:
                failed = ConnectionLost(f"the TLS handshake with {self.address} failed: {_reason(error)}")
            self._close(failed)
            raise failed from error

    def start(self, request: Request[T]) -> Call[T]:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        call = self._conversation.send(request)
        self._send()
        return call

    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T:
        limit_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.now_ms() + limit_ms
        call = self.start(request)
        while not call.is_done:
            self._receive(deadline, request.api.label, limit_ms)
        return call.result()

    @property
    def has_decrypted(self) -> bool:
        """Whether there is something to read although the socket may have nothing more."""
        return self._context is not None and self.is_open and self.socket.pending() > 0  # type: ignore[attr-defined]

    def read(self) -> list[Call[Any]]:
        if self._context is not None:  # it may be a message of TLS only
            return self._receive_now(0)
        limit_ms = self._settings.request_timeout_ms
        return self._receive(self._clock.now_ms() + limit_ms, "a request", limit_ms)

    def close(self) -> None:
        self._close(ConnectionLost(f"the connection to {self.address} was closed"))

    def _close(self, error: KafkaError) -> None:
        if self.is_open:
            self.is_open = False
            self.socket.close()
        self._conversation.fail(error)

    def _send(self) -> None:
        outgoing = self._conversation.take()
        if not outgoing:
            return
        self.socket.settimeout(self._settings.request_timeout_ms / 1000)
        try:
            self.socket.sendall(outgoing)
        except OSError as error:
            raise self._lost(error) from error

    def _receive(self, deadline_ms: float, what: str, limit_ms: float) -> list[Call[Any]]:
        left_ms = deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise self._late(what, limit_ms)
        try:
            return self._receive_now(left_ms)
        except TimeoutError:
            raise self._late(what, limit_ms) from None

    def _receive_now(self, timeout_ms: float) -> list[Call[Any]]:
        """Receive once. Raises TimeoutError; with a timeout of 0, may receive nothing."""
        self.socket.settimeout(timeout_ms / 1000)
        try:
            count = self.socket.recv_into(self._conversation.room())
        except TimeoutError:
            raise
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._lost(error) from error
        if not count:
            raise self._lost(None)
        try:
            answered = self._conversation.received(count)
        except ClientError as error:
            self._close(error)
            raise
        except KafkaError as error:
            wrong = self._diagnosis() or ClientError(
                f"{self.address} does not answer as a Kafka broker does: {error}", error.code
            )
            self._close(wrong)
            raise wrong from error
        self._is_served |= bool(answered)
        self._send()  # the next request of a log-in, and those that waited for its end
        return answered

    def _late(self, what: str, limit_ms: float) -> TimedOut:
        # The reply may still come, and would be matched with another request: close the connection.
        late = TimedOut(f"{self.address} did not answer {what} within {limit_ms / 1000:g} s")
        self._close(late)
        return late

    def _lost(self, error: OSError | None) -> ClientError:
        reason = "it was closed by the broker" if error is None else _reason(error)
        lost = self._of_tls(error) or self._diagnosis()
        lost = lost or ConnectionLost(f"the connection to {self.address} was lost: {reason}")
        self._close(lost)
        return lost

    def _of_tls(self, error: OSError | None) -> ClientError | None:
        """The error of a handshake, some of which come after it: in TLS 1.3 the client has it behind it first."""
        tls = self._settings.security.tls
        if tls is None or error is None:
            return None
        from .tls import explain  # noqa: PLC0415  (loads OpenSSL)

        return explain(error, str(self.address), tls)

    def _diagnosis(self) -> ClientError | None:
        """Why the broker closed the connection, if it is a matter of security."""
        if self._is_probe or self._is_served or not self.is_open:
            return None
        peer, security = str(self.address), self._settings.security
        if self._conversation.is_ready and security.login is None:
            return login_required(peer, lambda: self._probe(security))
        if not self._conversation.versions and security.tls is None:
            return tls_required(peer, self._dial, self.address, self._settings.connect_timeout_ms)
        return None

    def _probe(self, security: ClientSecurity) -> "SocketLink":
        context = self._context if security.tls is not None else None
        settings = replace(self._settings, security=security)
        return SocketLink(self.address, settings, self._clock, context, is_probe=True)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return (error.strerror or str(error)).lower()
