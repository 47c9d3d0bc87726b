"""Sockets around conversations: blocking, and several at once if a caller waits for the first answer.

`Link` and `Network` are what the rest of the client knows; a test has its own, without sockets.
"""

import errno
import selectors
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from penstock.base.errors import KafkaError
from penstock.wire.request import Request

from .connection import Call, Conversation
from .diagnosis import login_required
from .errors import ClientError, ConnectionLost, TimedOut, Unreachable
from .settings import Address, ClientSettings, Clock

T = TypeVar("T")


class Link(Protocol):
    """An open connection to one broker."""

    @property
    def is_open(self) -> bool: ...

    def start(self, request: Request[T]) -> Call[T]:
        """Send it, and do not wait."""
        ...

    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T:
        """Send it and wait for its answer; what came before it is answered on the way."""
        ...

    def read(self) -> list[Call[Any]]:
        """What has arrived; called after Network.wait said that something has."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    def connect(self, address: Address) -> Link: ...

    def wait(self, links: Sequence[Link], timeout_ms: float) -> list[Link]:
        """Those with something to read; none when the time is over."""
        ...


class SocketNetwork:
    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def connect(self, address: Address) -> "SocketLink":
        return SocketLink(address, self._settings, self._clock)

    def wait(self, links: Sequence[Link], timeout_ms: float) -> list[Link]:
        with selectors.PollSelector() as selector:  # which asks nothing of the kernel before it waits
            for link in links:
                assert isinstance(link, SocketLink)
                selector.register(link.socket, selectors.EVENT_READ, link)
            return [key.data for key, _ in selector.select(max(0.0, timeout_ms) / 1000)]


class SocketLink:
    def __init__(
        self, address: Address, settings: ClientSettings, clock: Clock, *, is_probe: bool = False
    ) -> None:
        """A probe is a connection that finds out why another one failed."""
        self.address = address
        self._settings = settings
        self._clock = clock
        self._conversation = Conversation(
            str(address),
            settings.client_id,
            settings.response_bytes_max,
            settings.security.login,
            clock.now_ms,
        )
        self._is_probe = is_probe
        self._is_served = False
        """A request after the greeting has been answered."""
        self.is_open = False
        self.socket = self._dial()
        self.is_open = True
        deadline = clock.now_ms() + settings.connect_timeout_ms
        try:
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

    def read(self) -> list[Call[Any]]:
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
        self.socket.settimeout(left_ms / 1000)
        try:
            count = self.socket.recv_into(self._conversation.room())
        except TimeoutError:
            raise self._late(what, limit_ms) from None
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
            wrong = ClientError(f"{self.address} does not answer as a Kafka broker does: {error}", error.code)
            self._close(wrong)
            raise wrong from error
        self._is_served |= bool(answered)
        self._send()  # the next request of a log-in, and what waited for its end
        return answered

    def _late(self, what: str, limit_ms: float) -> TimedOut:
        # The answer may still come, and would be taken for another's: the connection is over.
        late = TimedOut(f"{self.address} did not answer {what} within {limit_ms / 1000:g} s")
        self._close(late)
        return late

    def _lost(self, error: OSError | None) -> ClientError:
        reason = "it was closed by the broker" if error is None else _reason(error)
        lost = self._diagnosis() or ConnectionLost(f"the connection to {self.address} was lost: {reason}")
        self._close(lost)
        return lost

    def _diagnosis(self) -> ClientError | None:
        """Why the broker closed the connection, if it is a matter of security."""
        if self._is_probe or self._is_served or not self.is_open:
            return None
        if self._conversation.is_ready and self._settings.security.login is None:
            return login_required(str(self.address), self._probe)
        return None

    def _probe(self) -> "SocketLink":
        return SocketLink(self.address, self._settings, self._clock, is_probe=True)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return (error.strerror or str(error)).lower()
