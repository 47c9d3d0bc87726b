"""Connections to other nodes: opened when something is asked, one for each purpose, and asked in order.

    ask --> (dial, greeting) --> request --> answer
                |                    |
             refused               lost, or not answered in time: all that wait on this connection fail

A connection on which one answer is overdue is given up: the answers behind it would come no earlier. The next question
dials anew; whoever asks knows how often that makes sense.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.client.connection import Conversation
from penstock.wire.peers import Address, PeerFailed
from penstock.wire.request import Request

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 256 << 20
"""No answer of a node is larger; a fetch is told to stay far below."""


class _Question(NamedTuple):
    request: Request[Any]
    answer: Promise[Any]
    timer: Timer


class PeerConnections:
    """Implements `wire.peers.Peers`."""

    def __init__(self, world: World, client_id: str) -> None:
        self._world = world
        self._client_id = client_id
        self.lost: Callable[[Address], None] = lambda _: None
        """Told of every connection that breaks or is refused."""
        self._open: dict[tuple[Address, str], PeerConnection] = {}
        self._is_closed = False

    def ask(
        self, to: Address, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T | PeerFailed]:
        answer: Promise[T | PeerFailed] = Promise()
        if self._is_closed:
            answer.resolve(PeerFailed("this node stops"))
            return answer
        key = (to, purpose)
        connection = self._open.get(key)
        if connection is None:
            connection = PeerConnection(self._world, to, self._client_id, partial(self._over, key), self.lost)
            self._open[key] = connection
            connection.dial()
        connection.ask(request, answer, timeout_ms)
        return answer

    def _over(self, key: tuple[Address, str], connection: "PeerConnection") -> None:
        if self._open.get(key) is connection:
            del self._open[key]

    def close(self) -> None:
        """The node stops: nothing is asked any more, and whoever waits is told."""
        self._is_closed = True
        for connection in list(self._open.values()):
            connection.end(PeerFailed("this node stops"))

    def abort(self) -> None:
        """Be gone, as after a crash: nobody is told anything."""
        self._is_closed = True
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
    ) -> None:
        self._world = world
        self._to = to
        self._over = over
        self._lost = lost
        self._conversation = Conversation(f"node {to}", client_id, ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._unsent: deque[_Question] = deque()
        """Asked before the peer has answered the greeting."""
        self._sent: deque[_Question] = deque()
        self._is_over = False

    def dial(self) -> None:
        self._world.dial(self._to.host, self._to.port, self, self._not_connected)

    def ask(self, request: Request[Any], answer: Promise[Any], timeout_ms: float) -> None:
        timer = self._world.call_later(timeout_ms, partial(self._overdue, request, timeout_ms))
        question = _Question(request, answer, timer)
        if self._conversation.is_ready:
            self._send(question)
            self._flush()
        else:
            self._unsent.append(question)

    def _send(self, question: _Question) -> None:
        try:
            self._conversation.send(question.request)
        except KafkaError as error:  # the peer does not serve it, or it cannot be said
            question.timer.cancel()
            question.answer.resolve(PeerFailed(str(error)))
        else:
            self._sent.append(question)

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
            logger.warning("%s", error)
            self.end(PeerFailed(str(error)))
            return
        if not was_ready and self._conversation.is_ready:
            while self._unsent:
                self._send(self._unsent.popleft())
        self._flush()
        for call in calls:
            question = self._sent.popleft()
            question.timer.cancel()
            try:
                question.answer.resolve(call.reply)
            except Exception:  # the other answers are not to wait for its cause
                logger.exception("an answer of node %s could not be dealt with", self._to)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._is_over:
            self._lost(self._to)
        self.end(PeerFailed(f"the connection to node {self._to} is lost"))

    # -- the end ---------------------------------------------------------------------------------------

    def _not_connected(self, refused: bool) -> None:
        if refused and not self._is_over:
            self._lost(self._to)
        why = "nobody listens there" if refused else "it cannot be reached"
        self.end(PeerFailed(f"no connection to node {self._to}: {why}", refused=refused))

    def _overdue(self, request: Request[Any], timeout_ms: float) -> None:
        self.end(PeerFailed(f"node {self._to} has not answered {request.api.label} in {timeout_ms:.0f} ms"))

    def end(self, why: PeerFailed) -> None:
        """Nobody is answered here any more."""
        if self._is_over:
            return
        waiting = [*self._sent, *self._unsent]
        self.abandon()
        for question in waiting:
            question.answer.resolve(why)

    def abandon(self) -> None:
        self._is_over = True
        self._over(self)
        for question in (*self._sent, *self._unsent):
            question.timer.cancel()
        self._sent.clear()
        self._unsent.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
