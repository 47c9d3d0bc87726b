"""A client's connection: bytes in, requests out to a dispatcher; replies back, in the order of the requests.

    receive --> [ frame | frame | fra     the rest of a frame is received into a buffer of its own
                    |       |
                 dispatch dispatch        each gives a reply, nothing, or `Later`
                    v       v
    send    <-- [ reply | (waits) | ...   a reply that is ready waits for those before it

There is no task and no future for a request. An idle connection holds no buffer. A client that does not read its
replies is not read from, and neither is one that has too many requests open.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Protocol, cast

from penstock.server.turn import Turn
from penstock.wire import BadFrame, cut_frames
from penstock.wire.frames import LENGTH_BYTES

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

OPEN_REQUESTS_MAX = 1000
"""Requests of one connection that may wait for their replies; clients have 5 to 1,000 in flight."""

PARTIAL_BYTES_FIRST = 64 * 1024
"""A frame's own buffer begins with this and doubles as bytes arrive: a length alone buys no memory."""


class NoReply(Enum):
    """What a request is answered with that wants no answer (Produce with acks=0)."""

    NO_REPLY = 0


NO_REPLY = NoReply.NO_REPLY


class Later:
    """The place of a reply that is not there yet. Whoever gives it out calls `answer` once."""

    __slots__ = ("_connection", "reply")

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self.reply: Sequence[Buffer] | None = None

    def bind(self, connection: "Connection") -> None:
        self._connection = connection

    def answer(self, reply: Sequence[Buffer]) -> None:
        """Give the reply, from the loop's thread; an empty one for no reply at all."""
        assert self.reply is None, "a request is answered once"
        self.reply = reply
        if self._connection is not None:
            self._connection.settle()


Reply = Sequence[Buffer] | NoReply | Later


class Dispatcher(Protocol):
    """What takes requests. Frames are views that are good until the end of the turn."""

    def dispatch(self, connection: "Connection", frame: memoryview) -> Reply:
        """Answer a request. `BadFrame` or any `KafkaError` that it raises ends the connection."""

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_dispatcher",
        "_filled",
        "_is_sending",
        "_open",
        "_out",
        "_partial",
        "_reasons_not_to_read",
        "_request_bytes_max",
        "_transport",
        "_turn",
        "_wanted",
        "local",
        "peer",
    )

    def __init__(self, turn: Turn, dispatcher: Dispatcher, request_bytes_max: int) -> None:
        self._turn = turn
        self._dispatcher = dispatcher
        self._request_bytes_max = request_bytes_max
        self._transport: asyncio.Transport | None = None
        self._partial: bytearray | None = None
        """The beginning of a frame whose end has not arrived; None between frames."""
        self._filled = 0
        self._wanted = 0
        """How long the partial frame is to become, its length field included."""
        self._open: deque[Later] = deque()
        """Requests that wait for their reply, and replies that wait for those before them."""
        self._out: list[Buffer] = []
        self._is_sending = False
        """It is among those that send at the end of the turn."""
        self._reasons_not_to_read: set[str] = set()
        self.peer = ""
        self.local: tuple[str, int] = ("", 0)
        """The address that the client dialled: unless told otherwise, the one that is advertised to it."""

    # -- what asyncio calls ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.local = (local[0], local[1]) if local else ("", 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._partial = None
        self._open.clear()
        self._out = []
        self._dispatcher.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._partial is None:
            return self._turn.room()
        if self._filled == len(self._partial):
            grown = bytearray(min(self._wanted, 2 * len(self._partial)))
            grown[: self._filled] = self._partial
            self._partial = grown
        return memoryview(self._partial)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._partial is None:
                self._take(self._turn.keep(nbytes))
            else:
                self._filled += nbytes
                if self._filled == self._wanted:
                    frame, self._partial = self._partial, None
                    self._take(memoryview(frame))
        except BadFrame as error:
            self.end(str(error))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.stop_reading("the client does not read its replies")

    def resume_writing(self) -> None:
        self.go_on_reading("the client does not read its replies")

    # -- requests --------------------------------------------------------------------------------------

    def _take(self, data: memoryview) -> None:
        """Dispatch the frames in data, and keep what is left of one."""
        cut = cut_frames(data, 0, len(data), self._request_bytes_max)
        for frame in cut.frames:
            reply = self._dispatcher.dispatch(self, frame)
            if isinstance(reply, Later):
                if reply.reply is None:
                    reply.bind(self)
                self._open.append(reply)
            elif reply is NO_REPLY:
                continue
            elif self._open:
                done = Later()
                done.reply = reply
                self._open.append(done)
            else:
                self._send(reply)
            if self._transport is None:
                return
        self.settle()
        if cut.rest_at < len(data):
            self._begin_partial(data[cut.rest_at :], cut.wanted)
        if len(self._open) > OPEN_REQUESTS_MAX:
            self.stop_reading("too many requests are open")

    def _begin_partial(self, rest: memoryview, wanted: int) -> None:
        self._wanted = wanted or LENGTH_BYTES
        self._filled = len(rest)
        self._partial = bytearray(min(self._wanted, max(PARTIAL_BYTES_FIRST, 2 * len(rest))))
        self._partial[: len(rest)] = rest

    # -- replies ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let go of the replies that are ready, as far as none before them is missing."""
        while self._open and self._open[0].reply is not None:
            reply = self._open.popleft().reply
            assert reply is not None
            self._send(reply)
        if self._reasons_not_to_read and len(self._open) <= OPEN_REQUESTS_MAX // 2:
            self.go_on_reading("too many requests are open")

    def _send(self, reply: Sequence[Buffer]) -> None:
        if self._transport is None:
            return
        self._out.extend(reply)
        if not self._is_sending:
            self._is_sending = True
            self._turn.send_later(self)

    def send_now(self) -> None:
        self._is_sending = False
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    # -- holding back ----------------------------------------------------------------------------------

    def stop_reading(self, reason: str) -> None:
        """Receive nothing more until every reason is gone; also how a client is throttled."""
        if not self._reasons_not_to_read and self._transport is not None:
            self._transport.pause_reading()
        self._reasons_not_to_read.add(reason)

    def go_on_reading(self, reason: str) -> None:
        if reason in self._reasons_not_to_read:
            self._reasons_not_to_read.remove(reason)
            if not self._reasons_not_to_read and self._transport is not None:
                self._transport.resume_reading()

    def end(self, why: str) -> None:
        """Close the connection for something that the client did."""
        logger.warning("connection from %s closed: %s", self.peer, why)
        if self._transport is not None:
            self._transport.close()
