"""Connections to other nodes: one per address and purpose, opened by the first request, with replies in order.

    ask --> (dial, TLS, ApiVersions, log-in) --> request --> response
                |                                   |
             refused                    lost, or no response in time: all requests on this connection fail

A connection with one overdue response is closed, because the responses behind it would be no earlier. The next request
dials again; retries are up to the caller. With `PeerSecurity`, a node that refuses this one is left alone for a
moment.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.client.connection import Conversation
from penstock.wire.peers import Address, PeerFailed
from penstock.wire.request import Request

if TYPE_CHECKING:
    from penstock.server.peer_security import PeerSecurity, TlsDialling

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 256 << 20
"""Larger responses end the connection; the largest expected one is a fetch of some megabytes."""


class _SentRequest(NamedTuple):
    request: Request[Any]
    response: Promise[Any]
    timer: Timer


class PeerConnections:
    """Implements `wire.peers.Peers`."""

    def __init__(self, world: World, client_id: str, security: "PeerSecurity | None" = None) -> None:
        """`security` is None for nodes whose listeners have the protocol PLAINTEXT."""
        self._world = world
        self._client_id = client_id
        self._security = security
        self.lost: Callable[[Address], None] = lambda _: None
        """Called for every connection that breaks or is refused."""
        self._open: dict[tuple[Address, str], PeerConnection] = {}
        self._is_closed = False

    def ask(self, to: Address, request: Request[T], *, timeout_ms: float, purpose: str = "") -> Promise[T]:
        response: Promise[T] = Promise()
        if self._is_closed:
            response.fail(PeerFailed("this node is stopping"))
            return response
        key = (to, purpose)
        connection = self._open.get(key)
        if connection is None:
            paused = None if self._security is None else self._security.paused(to)
            if paused is not None:
                response.fail(paused)
                return response
            connection = PeerConnection(
                self._world, to, self._client_id, partial(self._over, key), self.lost, self._security
            )
            self._open[key] = connection
            connection.dial()
        connection.ask(request, response, timeout_ms)
        return response

    def _over(self, key: tuple[Address, str], connection: "PeerConnection") -> None:
        if self._open.get(key) is connection:
            del self._open[key]

    @property
    def is_refused(self) -> bool:
        """Whether nodes reject this one, or fail to authenticate themselves."""
        return self._security is not None and self._security.is_refused

    def start(self) -> None:
        """Notice changed certificates."""
        if self._security is not None:
            self._security.start()

    def close(self) -> None:
        """The node stops: fail all requests."""
        self._is_closed = True
        if self._security is not None:
            self._security.stop()
        for connection in list(self._open.values()):
            connection.end(PeerFailed("this node is stopping"))

    def abort(self) -> None:
        """Close all connections as a crash would, without settling any promise."""
        self._is_closed = True
        if self._security is not None:
            self._security.stop()
        connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.abandon()


class PeerConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        world: World,
        to: Address,
        client_id: str,
        over: Callable[["PeerConnection"], None],
        lost: Callable[[Address], None],
        security: "PeerSecurity | None" = None,
    ) -> None:
        self._world = world
        self._to = to
        self._over = over
        self._lost = lost
        self._security = security
        self._tls: TlsDialling | None = None
        self._conversation = Conversation(
            f"node {to}",
            client_id,
            ANSWER_BYTES_MAX,
            None if security is None else security.login,
            self._now_ms,
        )
        self._transport: asyncio.Transport | None = None
        self._unsent: deque[_SentRequest] = deque()
        """Requests that wait for the peer's ApiVersions response."""
        self._sent: deque[_SentRequest] = deque()
        self._is_over = False

    def _now_ms(self) -> float:
        return self._world.clock_ns() / 1e6

    def dial(self) -> None:
        if self._security is not None:
            self._tls = self._security.handshake()
        self._world.dial(self._to.host, self._to.port, self, self._not_connected, self._tls)

    def ask(self, request: Request[Any], response: Promise[Any], timeout_ms: float) -> None:
        timer = self._world.call_later(timeout_ms, partial(self._overdue, request, timeout_ms))
        sent = _SentRequest(request, response, timer)
        if self._conversation.is_ready:
            self._send(sent)
            self._flush()
        else:
            self._unsent.append(sent)

    def _send(self, sent: _SentRequest) -> None:
        try:
            self._conversation.send(sent.request)
        except KafkaError as error:  # the peer does not support the API, or a value does not fit its field
            sent.timer.cancel()
            sent.response.fail(PeerFailed(str(error)))
        else:
            self._sent.append(sent)

    def _flush(self) -> None:
        data = self._conversation.take()
        if data and self._transport is not None:
            self._transport.write(data)

    # -- what asyncio calls ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._conversation.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        was_ready = self._conversation.is_ready
        try:
            calls = self._conversation.received(nbytes)
        except KafkaError as error:
            if self._security is None or self._security.failed(self._to, error) is None:
                logger.warning("%s", error)
            self.end(PeerFailed(str(error)))
            return
        if not was_ready and self._conversation.is_ready:
            if self._security is not None:
                self._security.made(self._to)
            while self._unsent:
                self._send(self._unsent.popleft())
        self._flush()
        for call in calls:
            sent = self._sent.popleft()
            sent.timer.cancel()
            try:
                if call.error is None:
                    sent.response.resolve(call.reply)
                else:
                    sent.response.fail(call.error)
            except Exception:  # handle the remaining responses all the same
                logger.exception("unexpected error while handling a response of node %s", self._to)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._is_over:
            self._lost(self._to)
        why = None
        if self._security is not None and not self._is_over and not self._conversation.is_ready:
            # With TLS 1.3 the other node refuses this one's certificate after the handshake.
            why = self._security.failed(self._to, exc)
        self.end(PeerFailed(why or f"the connection to node {self._to} is lost"))

    # -- the end ---------------------------------------------------------------------------------------

    def _not_connected(self, refused: bool) -> None:
        if refused and not self._is_over:
            self._lost(self._to)
        if self._security is not None and self._tls is not None and not refused and not self._is_over:
            insecure = self._security.failed(self._to, self._tls.error)
            if insecure is not None:
                self.end(PeerFailed(insecure))
                return
        why = "connection refused" if refused else "unreachable"
        self.end(PeerFailed(f"cannot connect to node {self._to}: {why}", refused=refused))

    def _overdue(self, request: Request[Any], timeout_ms: float) -> None:
        self.end(PeerFailed(f"node {self._to} has not answered {request.api.label} in {timeout_ms:.0f} ms"))

    def end(self, why: PeerFailed) -> None:
        """Close the connection and fail its requests."""
        if self._is_over:
            return
        failed = [*self._sent, *self._unsent]
        self.abandon()
        for sent in failed:
            sent.response.fail(why)

    def abandon(self) -> None:
        self._is_over = True
        self._over(self)
        for sent in (*self._sent, *self._unsent):
            sent.timer.cancel()
        self._sent.clear()
        self._unsent.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
