"""A client's connection: bytes in, requests out to a dispatcher; replies back, in the order of the requests.

    receive --> [ frame | frame | fra     the rest of a frame is received into a buffer of its own
                    |       |
                 dispatch dispatch        each gives a reply, nothing, or `Promise`
                    v       v
    send    <-- [ reply | (waits) | ...   a reply that is ready waits for those before it

There is no task and no future for a request. An idle connection holds no buffer.

Memory is bounded by holding back: after a request whose answer is large or long in coming (`Promise.holds`), and while
many bytes of replies wait to be sent, what the client sent next is kept, and no more of it is received. A client that
does not read its replies is not read from, and neither is one that has too many requests open. Records that a reply
promises (`wire.Unread`) are read from the disk in steps, each when the client has taken the one before. What is kept
nevertheless is reported to the node's `ClientMemory`, which bounds the sum over all connections.
"""

import asyncio
import logging
from collections import deque
from typing import Final, Protocol, cast

from penstock.base.client_memory import MOVES, UNCOUNTED_BYTES
from penstock.base.errors import KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.server.loop_tick import LoopTick
from penstock.wire import Buffer, Piece, UnreadReply, cut_frames
from penstock.wire.frames import LENGTH_BYTES
from penstock.wire.primitives import INT32

logger = logging.getLogger(__name__)

_UNPACK_LENGTH = INT32.unpack_from

OPEN_REQUESTS_MAX = 1000
"""Requests of one connection that may wait for their replies; clients have 5 to 1,000 in flight."""

PARTIAL_BYTES_FIRST = 16 * 1024
"""A frame's own buffer begins with this and grows as bytes arrive: a length alone buys no memory."""

OUT_BYTES_MAX = 64 * 1024
"""Replies that may be gathered before some of them are sent: the next request waits."""

UNSENT_BYTES_MAX = 16 * 1024
"""What the transport may hold before the client counts as one that does not read."""


_READ = (bytes, bytearray, memoryview)
"""Pieces of replies that are in memory; the others are `wire.Unread`."""


class Dispatcher(Protocol):
    """What takes requests. Frames are views that are good until the end of the turn."""

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        """Answer a request. A `KafkaError` that it raises ends the connection."""

    def closed(self, session: Session) -> None: ...


class Owner(Protocol):
    """Whoever keeps the connections."""

    def made(self, connection: "Connection") -> str | None:
        """Take it in; why not, otherwise."""

    def lost(self, connection: "Connection") -> None: ...


class Pause:
    """Why nothing is received: bits of a plain number, since it is looked at with each request."""

    NONE: Final = 0
    NOT_READING: Final = 1
    """The client does not read its replies."""
    TOO_MANY_OPEN: Final = 2
    HELD: Final = 4
    """There is more to look at already than may be looked at now."""
    THROTTLED: Final = 8
    NO_ROOM: Final = 16
    """The request is large, and the memory for all clients is full."""


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_dispatcher",
        "_filled",
        "_held",
        "_holder",
        "_idle_looks",
        "_is_closing",
        "_is_held_back",
        "_is_sending",
        "_is_stepping",
        "_kept",
        "_moved",
        "_open",
        "_out",
        "_out_bytes",
        "_owner",
        "_partial",
        "_pause",
        "_queued_bytes",
        "_request_bytes_max",
        "_tick",
        "_transport",
        "_wanted",
        "_written_bytes",
        "listener",
        "session",
    )

    session: Session
    door: Final = "kafka"

    def __init__(
        self,
        tick: LoopTick,
        dispatcher: Dispatcher,
        request_bytes_max: int,
        listener: str = "PLAINTEXT",
        owner: "Owner | None" = None,
    ) -> None:
        self._tick = tick
        self._dispatcher = dispatcher
        self._request_bytes_max = request_bytes_max
        self.listener = listener
        self._owner = owner
        self._idle_looks = 0
        self._transport: asyncio.Transport | None = None
        self._partial: bytearray | None = None
        """The beginning of a frame whose end has not arrived; None between frames."""
        self._filled = 0
        self._wanted = 0
        """How long the partial frame is to become, its length field included."""
        self._open: deque[Promise[list[Piece]]] | None = None
        """Requests that wait for their reply, and replies that wait for those before them; None for none."""
        self._queued_bytes = 0
        """Of replies that are ready and wait for those before them."""
        self._holder: Promise[list[Piece]] | None = None
        """The request that must be answered before the next is looked at."""
        self._held: bytearray | None = None
        """What was received behind it."""
        self._out: list[Piece] = []
        self._out_bytes = 0
        """Gathered for the next send, records that are not read yet included."""
        self._is_stepping = False
        """Some of it is not read yet, and is sent in steps."""
        self._written_bytes = 0
        """Of the last write: while some of it is not sent, the transport holds all of it."""
        self._kept = 0
        """What was reported last."""
        self._moved = 0
        """What `moved_bytes` compares with: bytes that were missing of the request, and not taken of the replies."""
        self._is_sending = False
        """It is among those that send at the end of the turn."""
        self._is_closing = False
        """Nothing more is looked at; it closes when it has sent."""
        self._pause: int = Pause.NONE
        self._is_held_back = False
        """What `_look_again` found: a plain field, since it is looked at with each request."""

    # -- what asyncio calls ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.session = Session(
            host=local[0] if local else "",
            port=local[1] if local else 0,
            peer=f"{peer[0]}:{peer[1]}" if peer else "?",
            listener=self.listener,
            end=self.end,
        )
        refusal = None if self._owner is None else self._owner.made(self)
        if refusal is not None:
            self.end(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._partial = self._held = self._open = self._holder = None
        self._out = []
        self._tick.memory.keeps(self, 0)
        self._dispatcher.closed(self.session)
        if self._owner is not None:
            self._owner.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._partial is None:
            tick = self._tick
            return tick.room[: tick.memory.step] if tick.memory.is_pressed else tick.room
        return memoryview(self._partial)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._idle_looks = 0
        if self._partial is None:
            self._take(self._tick.keep_first(nbytes), nbytes)
        else:
            self._filled += nbytes
            if self._filled == self._wanted:
                frame, self._partial = self._partial, None
                self._moved = MOVES
                self._tick.begin()
                self._take(memoryview(frame), self._filled)
                if len(frame) > UNCOUNTED_BYTES:
                    self._report()
            elif self._filled == len(self._partial):
                self.may_grow()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.stop_reading(Pause.NOT_READING)
        self._look_again()
        self._report()

    def resume_writing(self) -> None:
        self._idle_looks = 0
        self._moved = MOVES
        self._written_bytes = 0
        self.go_on_reading(Pause.NOT_READING)
        self._look_again()
        self._report()
        if not self._out:
            self._go_on()
        elif not self._is_sending:
            self._is_sending = True
            self._tick.send_later(self)

    # -- requests --------------------------------------------------------------------------------------

    def _take(self, data: memoryview, size: int) -> None:
        """Dispatch the frames in the first bytes of data, so many, and keep what is left of one."""
        if self._is_held_back or self._tick.metrics.is_long_tick:
            self._put_off(data[:size])
            return
        try:
            if (
                LENGTH_BYTES < size <= self._request_bytes_max
                and _UNPACK_LENGTH(data)[0] == size - LENGTH_BYTES
            ):
                # One frame and nothing else: what most turns bring.
                reply = self._dispatcher.dispatch(self.session, data[LENGTH_BYTES:size])
                if type(reply) is list and not self._open:
                    self._send(reply)
                else:
                    self._answer(reply)
                return
            data = data[:size]
            cut = cut_frames(data, 0, size, self._request_bytes_max)
            at = 0
            for frame in cut.frames:
                at += LENGTH_BYTES + len(frame)
                self._answer(self._dispatcher.dispatch(self.session, frame))
                if self._transport is None or self._is_closing:
                    return
                if at < size and (self._is_held_back or self._tick.metrics.is_long_tick):
                    self._put_off(data[at:])
                    return
        except KafkaError as error:
            self._tick.metrics.unanswerable += 1
            self.end(str(error))
            return
        except Exception:
            self._tick.metrics.unanswerable += 1
            logger.exception("a request from %s failed in a way that nobody foresaw", self.session.peer)
            self.end("its request could not be handled")
            return
        if cut.rest_at < size:
            self._begin_partial(data[cut.rest_at :], cut.wanted)

    def _begin_partial(self, rest: memoryview, wanted: int) -> None:
        self._wanted = wanted or LENGTH_BYTES
        self._filled = len(rest)
        self._partial = bytearray(min(self._wanted, max(PARTIAL_BYTES_FIRST, 2 * len(rest))))
        self._partial[: len(rest)] = rest
        if len(self._partial) > UNCOUNTED_BYTES:
            self._report()

    def may_grow(self) -> None:
        """Make room for more of the partial frame, or receive nothing before there is some."""
        partial = self._partial
        if partial is None or self._transport is None:
            return
        if not self._tick.memory.admits(self):
            self.stop_reading(Pause.NO_ROOM)
            return
        grown = bytearray(min(self._wanted, 2 * len(partial)))
        grown[: self._filled] = partial
        self._partial = grown
        self._report()
        self.go_on_reading(Pause.NO_ROOM)

    # -- what it keeps ---------------------------------------------------------------------------------

    def _report(self) -> None:
        """Tell how many bytes are kept for the client."""
        kept = self._queued_bytes
        if not self._is_stepping:
            kept += self._out_bytes
        if self._partial is not None:
            kept += len(self._partial)
        if self._held is not None:
            kept += len(self._held)
        if self._pause & Pause.NOT_READING and self._transport is not None:
            kept += max(self._written_bytes, self._transport.get_write_buffer_size())
        self._kept = kept if kept > UNCOUNTED_BYTES else 0
        self._tick.memory.keeps(self, self._kept)

    def moved_bytes(self) -> int:
        """Bytes that came or were taken since this was last asked; many where the node itself holds it up."""
        before = self._moved
        self._moved = self._wanted - self._filled if self._partial is not None else 0
        if self._pause & Pause.NOT_READING and self._transport is not None:
            self._moved += self._transport.get_write_buffer_size()
        return MOVES if self._pause & Pause.NO_ROOM else max(before - self._moved, 0)

    # -- holding back ----------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Something changed of what holds requests back."""
        self._is_held_back = bool(
            self._is_closing
            or self._holder is not None
            or self._held is not None
            or self._out_bytes + self._queued_bytes > OUT_BYTES_MAX
            or self._pause & Pause.NOT_READING
        )

    def _hold(self, data: memoryview) -> None:
        if self._held is None:
            self._held = bytearray(data)
        else:
            self._held += data
        self._look_again()
        self.stop_reading(Pause.HELD)
        if len(self._held) > UNCOUNTED_BYTES:
            self._report()

    def _put_off(self, data: memoryview) -> None:
        """Keep what was received until nothing holds it back; for the next turn, where nothing but the length of this
        one does."""
        if self._is_closing:
            return
        is_delayed = not self._is_held_back
        self._hold(data)
        if is_delayed:
            self._tick.delay(self._go_on)

    def _go_on(self) -> None:
        """Look at what was held back, if nothing is in the way any more."""
        held = self._held
        if held is None or self._transport is None:
            return
        self._held = None
        self._look_again()
        if self._is_held_back:
            self._held = held
            return
        self._tick.begin()
        self._take(memoryview(held), len(held))
        if self._held is None:
            self.go_on_reading(Pause.HELD)
        if len(held) > UNCOUNTED_BYTES:
            self._report()

    # -- replies ---------------------------------------------------------------------------------------

    def _answer(self, reply: Reply) -> None:
        waiting = self._open
        if isinstance(reply, Promise):
            if reply.is_settled and not waiting:
                self._send(reply.value)
                return
            if waiting is None:
                waiting = self._open = deque()
            waiting.append(reply)
            if reply.is_settled:
                self._queue(reply.value)
            else:
                if reply.holds and isinstance(reply, HoldingPromise) and not reply.is_let_go:
                    self._holder = reply
                    self._look_again()
                    reply.when_let_go(self._free)
                if len(waiting) > OPEN_REQUESTS_MAX:
                    self.stop_reading(Pause.TOO_MANY_OPEN)
                reply.then(self._settle)
        elif reply is not NO_REPLY:
            if waiting:
                done: Promise[list[Piece]] = Promise()
                done.resolve(reply)
                waiting.append(done)
                self._queue(reply)
            else:
                self._send(reply)

    def _queue(self, reply: list[Piece]) -> None:
        """It is ready before those that come first."""
        self._queued_bytes += sum(map(len, reply))
        if self._queued_bytes > OUT_BYTES_MAX:
            self._look_again()
            self._report()

    def _settle(self, reply: list[Piece]) -> None:
        """Let go of the replies that are ready, as far as none before them is missing."""
        waiting = self._open
        if waiting is None:
            return
        queued_bytes = self._queued_bytes
        if not waiting[0].is_settled:
            self._queue(reply)
        while waiting and waiting[0].is_settled:
            first = waiting.popleft()
            if first.asked is not None:
                meter, since_ns = first.asked
                meter.times.observe(self._tick.clock_ns() - since_ns)
            if first.value is not reply:
                self._queued_bytes -= sum(map(len, first.value))
            self._send(first.value)
        if queued_bytes > OUT_BYTES_MAX:
            self._look_again()
            self._report()
        if self._pause & Pause.TOO_MANY_OPEN and len(waiting) <= OPEN_REQUESTS_MAX // 2:
            self.go_on_reading(Pause.TOO_MANY_OPEN)
        if self._holder is not None and self._holder.is_settled:
            self._holder = None
            self._look_again()

    def _free(self) -> None:
        """The request that held back the next ones holds them back no longer, though it may not be answered yet."""
        self._holder = None
        self._look_again()
        self._go_on()

    def _send(self, reply: list[Piece]) -> None:
        if self._transport is None or not reply:
            return
        if len(reply) == 1:
            buffer = reply[0]
            self._out.append(buffer)
            self._out_bytes += len(buffer)
        else:
            self._out += reply
            self._out_bytes += sum(map(len, reply))
        if self._out_bytes > OUT_BYTES_MAX:
            self._is_held_back = True
        if type(reply) is UnreadReply:
            self._is_stepping = True
        if self._pause & Pause.NOT_READING:
            self._report()  # it goes out with `resume_writing`
        elif not self._is_sending:
            self._is_sending = True
            self._tick.send_later(self)

    def send_now(self) -> None:
        if self._is_stepping:
            self._tick.step_later(self)
            return
        self._is_sending = False
        out = cast(list[Buffer], self._out)
        written, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if transport is None:
            return
        self._written_bytes = written
        if len(out) == 1:
            transport.write(out.pop())
        else:
            self._out = []
            transport.writelines(out)
        if self._is_held_back:
            self._go_on_after_send(transport)
        if self._kept:
            self._report()

    def _go_on_after_send(self, transport: asyncio.Transport) -> None:
        self._look_again()
        if self._is_closing:
            transport.close()
        elif self._held is not None:
            self._go_on()

    def send_step(self) -> int:
        """Send so much as is read ahead of a client, and the rest when it has taken this; how many bytes it was."""
        self._is_sending = False
        transport, out = self._transport, self._out
        if transport is None:
            return 0
        room = self._tick.memory.step
        step: list[Buffer] = []
        taken = 0
        for piece in out:
            if room <= 0:
                break
            if isinstance(piece, _READ):
                data: Buffer = piece
            else:
                try:
                    data = piece.take(room)
                except KafkaError as error:
                    logger.warning("connection from %s closed: %s", self.session.peer, error)
                    transport.abort()
                    return 0
                if piece.left:
                    taken -= 1
            step.append(data)
            taken += 1
            room -= len(data)
        del out[:taken]
        sent = self._written_bytes = sum(map(len, step))
        self._out_bytes -= sent
        self._idle_looks = 0
        transport.writelines(step)
        if self._kept:
            self._report()
        if not out:
            self._is_stepping = False
            self._go_on_after_send(transport)
        elif not self._pause & Pause.NOT_READING:
            self._is_sending = True
            self._tick.step_later(self)
        return sent

    # -- not reading -----------------------------------------------------------------------------------

    def stop_reading(self, reason: int) -> None:
        """Receive nothing more until every reason is gone; also how a client is throttled."""
        if not self._pause and self._transport is not None:
            self._transport.pause_reading()
        self._pause |= reason

    def go_on_reading(self, reason: int) -> None:
        if self._pause & reason:
            self._pause &= ~reason
            if not self._pause and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def end(self, why: str) -> None:
        """Close the connection for something that the client did."""
        logger.warning("connection from %s closed: %s", self.session.peer, why)
        self.close()

    def close(self) -> None:
        """Close it once what is gathered is sent, which is not before this turn's writes are done."""
        self._is_closing = self._is_held_back = True
        if self._transport is not None and not self._out:
            self._transport.close()

    def abort(self) -> None:
        """Be gone, as after a crash."""
        if self._transport is not None:
            self._transport.abort()

    # -- for its owner ---------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self.session.peer

    @property
    def address(self) -> str:
        """The client's, without its port."""
        return self.session.peer.rpartition(":")[0]

    @property
    def open_requests(self) -> int:
        """Those that wait for their reply, or for the replies before it."""
        return 0 if self._open is None else len(self._open)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called; it ends when everything is sent."""
        return self._is_closing

    def idle_looks(self) -> int:
        """How often it was looked, this time included, since the client last sent something or was answered."""
        if self._open and not self._pause & Pause.NOT_READING:
            self._idle_looks = 0
        self._idle_looks += 1
        return self._idle_looks
