"""A Kafka client's connection: bytes in, requests to a dispatcher; replies out, in the order of the requests.

    receive --> [ frame | frame | fra     the rest of a partial frame is received into its own buffer
                    |       |
                 dispatch dispatch        returns a reply, nothing, or a `Promise`
                    v       v
    send    <-- [ reply | (waits) | ...   a reply that is ready waits for those before it

No task or future is created per request. An idle connection has no buffer.

Memory is bounded by backpressure. After a request whose reply is large or slow (`Promise.holds`), and while many reply
bytes wait to be sent, later requests are held and nothing more is received. The same applies to a client that does not
read its replies or has too many open requests, and to one that is muted because it exceeds a quota. A muted connection
receives until bytes arrive: a client that sends nothing and closes is noticed. Records of a reply (`Unread`) are read
from disk in steps, each when the client has taken the previous one. What is kept nevertheless is reported to the
node's `ClientMemory`, which bounds the sum over all connections.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from penstock.base.client_memory import MOVES, UNCOUNTED_BYTES
from penstock.base.errors import KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.base.world import Timer
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.server.loop_tick import LoopTick
from penstock.wire import Buffer, Piece, UnreadReply, cut_frames
from penstock.wire.frames import LENGTH_BYTES
from penstock.wire.primitives import INT32

if TYPE_CHECKING:
    from penstock.server.connections import Connections, LoginMemory

logger = logging.getLogger(__name__)

_UNPACK_LENGTH = INT32.unpack_from

OPEN_REQUESTS_MAX = 1000
"""Open requests per connection; clients have 5 to 1,000 in flight."""

PARTIAL_BYTES_FIRST = 16 * 1024
"""First size of a partial frame's buffer, which grows as bytes arrive: a length field alone reserves no memory."""

LOGIN_PARTIAL_BYTES_FIRST = 512
"""The same before the client has logged in."""

OUT_BYTES_MAX = 64 * 1024
"""Unsent reply bytes from which further requests are held."""

UNSENT_BYTES_MAX = 16 * 1024
"""Bytes in the transport from which the client counts as not reading."""


TLS_HANDSHAKE = b"\x16\x03"
"""What a TLS client sends first."""

_READ = (bytes, bytearray, memoryview)
"""Pieces of replies in memory; the others are `Unread`."""


class Dispatcher(Protocol):
    """Handles requests. Frames are views that are valid until the end of the tick."""

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        """Handle a request. A raised `KafkaError` closes the connection."""

    def closed(self, session: Session) -> None: ...


class Pause:
    """Reasons not to receive, as bits of an int: it is read for every request."""

    NONE: Final = 0
    NOT_READING: Final = 1
    """The client does not read its replies."""
    TOO_MANY_OPEN: Final = 2
    HELD: Final = 4
    """Received requests are held back."""
    NO_ROOM: Final = 8
    """The request is large, and `ClientMemory` is full."""


_NOT_READING: Final = Pause.NOT_READING  # a global is faster, and it is read for every request


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
        "_login_memory",
        "_moved",
        "_mute_timer",
        "_muted_until_ns",
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
        owner: "Connections | None" = None,
    ) -> None:
        self._tick = tick
        self._dispatcher = dispatcher
        self._request_bytes_max = request_bytes_max
        self.listener = listener
        self._owner = owner
        self._idle_looks = 0
        self._transport: asyncio.Transport | None = None
        self._partial: bytearray | None = None
        """The received part of an incomplete frame; None between frames."""
        self._filled = 0
        self._wanted = 0
        """Full size of the partial frame, length field included."""
        self._open: deque[Promise[list[Piece]]] | None = None
        """Pending replies, and ready ones that wait for those before them; None for none."""
        self._queued_bytes = 0
        """Bytes of ready replies that wait for those before them."""
        self._holder: Promise[list[Piece]] | None = None
        """The request that must be answered before the next one is handled."""
        self._held: bytearray | None = None
        """Bytes received after it."""
        self._out: list[Piece] = []
        self._out_bytes = 0
        """Bytes for the next send, including unread records."""
        self._is_stepping = False
        """The output has unread records and is sent in steps."""
        self._written_bytes = 0
        """Size of the last write, which the transport keeps until all of it is sent."""
        self._kept = 0
        """Bytes last reported to `ClientMemory`."""
        self._moved = 0
        """For `moved_bytes`: bytes missing from the request plus bytes not taken of the replies, at the last call."""
        self._is_sending = False
        """The connection sends at the end of the tick."""
        self._is_closing = False
        """No more requests are handled; the connection closes after sending."""
        self._pause: int = Pause.NONE
        self._mute_timer: Timer | None = None
        """Runs while the connection is muted."""
        self._muted_until_ns = 0
        self._login_memory: LoginMemory | None = None
        """Set until the client has logged in."""
        self._is_held_back = False
        """Result of `_look_again`; a field, because it is read for every request."""

    # -- asyncio callbacks ----------------------------------------------------------------------------

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
            mute=self.mute,
        )
        refusal = None if self._owner is None else self._owner.made(self)
        if refusal is not None:
            self.end(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        self._partial = self._held = self._open = self._holder = None
        self._out = []
        if self._login_memory is not None:
            self._login_memory.holds(self, 0)
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
                if self._login_memory is not None:
                    self._login_memory.holds(self, 0)
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
        """Dispatch the frames in the first `size` bytes of data, and keep a partial one."""
        if self._is_held_back or self._tick.metrics.is_long_tick:
            self._put_off(data[:size])
            return
        try:
            if (
                LENGTH_BYTES < size <= self._request_bytes_max
                and _UNPACK_LENGTH(data)[0] == size - LENGTH_BYTES
            ):
                # Exactly one frame, as in most ticks.
                reply = self._dispatcher.dispatch(self.session, data[LENGTH_BYTES:size])
                if type(reply) is list and not self._open:
                    self._send(reply)
                else:
                    self._answer(reply)
                return
            data = data[:size]
            cut = cut_frames(data, 0, size, self._request_bytes_max)
            at = 0
            metrics = self._tick.metrics
            for frame in cut.frames:
                at += LENGTH_BYTES + len(frame)
                reply = self._dispatcher.dispatch(self.session, frame)
                if type(reply) is list and not self._open:
                    self._send(reply)
                else:
                    self._answer(reply)
                if self._transport is None or self._is_closing:
                    return
                if (self._is_held_back or metrics.is_long_tick) and at < size:
                    self._put_off(data[at:])
                    return
        except KafkaError as error:
            self._tick.metrics.unanswerable += 1
            self._end_malformed(data, error)
            return
        except Exception:
            self._tick.metrics.unanswerable += 1
            logger.exception("unexpected error in a request from %s", self.session.peer)
            self.end("unexpected error in a request")
            return
        if cut.rest_at < size:
            self._begin_partial(data[cut.rest_at :], cut.wanted)

    def _begin_partial(self, rest: memoryview, wanted: int) -> None:
        self._wanted = wanted or LENGTH_BYTES
        self._filled = len(rest)
        first = PARTIAL_BYTES_FIRST if self._login_memory is None else LOGIN_PARTIAL_BYTES_FIRST
        size = min(self._wanted, max(first, 2 * len(rest)))
        if self._login_memory is not None and not self._login_memory.holds(self, size):
            self.abort()
            return
        self._partial = bytearray(size)
        self._partial[: len(rest)] = rest
        if len(self._partial) > UNCOUNTED_BYTES:
            self._report()

    def may_grow(self) -> None:
        """Grow the buffer of the partial frame, or stop receiving until there is room."""
        partial = self._partial
        if partial is None or self._transport is None:
            return
        if not self._tick.memory.admits(self):
            self.stop_reading(Pause.NO_ROOM)
            return
        size = min(self._wanted, 2 * len(partial))
        if self._login_memory is not None and not self._login_memory.holds(self, size):
            self._partial = None
            self.abort()
            return
        grown = bytearray(size)
        grown[: self._filled] = partial
        self._partial = grown
        self._report()
        self.go_on_reading(Pause.NO_ROOM)

    # -- log-ins (handlers.sasl) ---------------------------------------------------------------------

    def serve_before_login(self, dispatcher: Dispatcher, request_bytes_max: int) -> None:
        assert self._owner is not None
        self._dispatcher = dispatcher
        self._request_bytes_max = min(request_bytes_max, self._owner.request_bytes_max)
        self._login_memory = self._owner.login_memory

    def serve_after_login(self, dispatcher: Dispatcher) -> None:
        assert self._owner is not None
        self._dispatcher = dispatcher
        self._request_bytes_max = self._owner.request_bytes_max
        self._login_memory = None

    # -- memory ---------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the bytes kept for this client to `ClientMemory`."""
        kept = self._queued_bytes
        if not self._is_stepping:
            kept += self._out_bytes
        if self._partial is not None:
            kept += len(self._partial)
        if self._held is not None and self._login_memory is None:
            kept += len(self._held)
        if self._pause & Pause.NOT_READING and self._transport is not None:
            kept += max(self._written_bytes, self._transport.get_write_buffer_size())
        self._kept = kept if kept > UNCOUNTED_BYTES else 0
        self._tick.memory.keeps(self, self._kept)

    def moved_bytes(self) -> int:
        """Bytes received or taken since the last call; `MOVES` while the node itself delays the client."""
        before = self._moved
        self._moved = self._wanted - self._filled if self._partial is not None else 0
        if self._pause & Pause.NOT_READING and self._transport is not None:
            self._moved += self._transport.get_write_buffer_size()
        return MOVES if self._pause & Pause.NO_ROOM else max(before - self._moved, 0)

    # -- backpressure ----------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Recompute whether requests are held back."""
        self._is_held_back = bool(
            self._is_closing
            or self._holder is not None
            or self._held is not None
            or self._out_bytes + self._queued_bytes > OUT_BYTES_MAX
            or self._pause & Pause.NOT_READING
            or self._mute_timer is not None
        )

    def mute(self, delay_ms: int) -> None:
        """Handle no further request for this time, or until an earlier call says; 0 ends it. Replies are still
        sent."""
        if self._transport is None or self._is_closing:
            return
        if not delay_ms:
            if self._mute_timer is not None:
                self._mute_timer.cancel()
                self._mute_timer = None
                self._muted_until_ns = 0
                self._tick.delay(self._unmute)
            return
        until_ns = self._tick.clock_ns() + delay_ms * 1_000_000
        if until_ns > self._muted_until_ns:
            self._muted_until_ns = until_ns
            if self._mute_timer is not None:
                self._mute_timer.cancel()
            self._mute_timer = self._tick.call_later(delay_ms, self._unmute)
            self._is_held_back = True

    def delay(self, delay_ms: int, *, closes: bool) -> None:
        """A new connection is above a limit: handle nothing before this time, or close then."""
        self.mute(delay_ms)
        if closes and self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = self._tick.call_later(delay_ms, self.abort)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._look_again()
        self._go_on()

    def _hold(self, data: memoryview) -> None:
        if self._login_memory is not None and not self._login_memory.holds(
            self, len(data) + (0 if self._held is None else len(self._held))
        ):
            self.abort()
            return
        if self._held is None:
            self._held = bytearray(data)
        else:
            self._held += data
        self._look_again()
        self.stop_reading(Pause.HELD)
        if len(self._held) > UNCOUNTED_BYTES:
            self._report()

    def _put_off(self, data: memoryview) -> None:
        """Hold received bytes; until the next tick, if only the length of this tick is the reason."""
        if self._is_closing:
            return
        is_delayed = not self._is_held_back
        self._hold(data)
        if is_delayed:
            self._tick.delay(self._go_on)

    def _go_on(self) -> None:
        """Handle held requests, if nothing holds them back any longer."""
        held = self._held
        if held is None or self._transport is None:
            return
        self._held = None
        self._look_again()
        if self._is_held_back:
            self._held = held
            return
        if self._login_memory is not None:
            self._login_memory.holds(self, 0)
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
        """Count a reply that is ready before earlier ones."""
        self._queued_bytes += sum(map(len, reply))
        if self._queued_bytes > OUT_BYTES_MAX:
            self._look_again()
            self._report()

    def _settle(self, reply: list[Piece]) -> None:
        """Send ready replies up to the first pending one."""
        waiting = self._open
        if waiting is None:
            return
        queued_bytes = self._queued_bytes
        if not waiting[0].is_settled:
            self._queue(reply)
        while waiting and waiting[0].is_settled:
            first = waiting.popleft()
            if first.request_start is not None:
                meter, since_ns = first.request_start
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
        """Stop holding later requests, although the holding request may still be pending."""
        self._holder = None
        self._look_again()
        self._go_on()

    def _send(self, reply: list[Piece]) -> None:
        if self._transport is None:
            return
        if len(reply) == 1:
            buffer = reply[0]
            self._out.append(buffer)
            self._out_bytes += len(buffer)
        elif reply:
            self._out += reply
            self._out_bytes += sum(map(len, reply))
            if type(reply) is UnreadReply:
                self._is_stepping = True
        else:
            return
        if self._out_bytes > OUT_BYTES_MAX:
            self._is_held_back = True
        if self._pause & _NOT_READING:
            self._report()  # sent by `resume_writing`
        elif not self._is_sending:
            self._is_sending = True
            self._tick.send_later(self)

    def send_now(self) -> None:
        if self._is_stepping:
            self._tick.step_later(self)
            return
        self._is_sending = False
        out: list[Any] = self._out  # of buffers only
        self._written_bytes, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if transport is None:
            return
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
        """Send one step of read-ahead; the rest follows when the client has taken it. Returns the size in bytes."""
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

    # -- pausing and closing -----------------------------------------------------------------------------------

    def stop_reading(self, reason: int) -> None:
        """Pause receiving for a reason. Receiving resumes when all reasons are gone."""
        if not self._pause and self._transport is not None:
            self._transport.pause_reading()
        self._pause |= reason

    def go_on_reading(self, reason: int) -> None:
        if self._pause & reason:
            self._pause &= ~reason
            if not self._pause and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def end(self, why: str) -> None:
        """Close the connection because of a client error."""
        logger.warning("connection from %s closed: %s", self.session.peer, why)
        self.close()

    def _end_malformed(self, data: memoryview, error: KafkaError) -> None:
        if self._owner is not None and data[:2] == TLS_HANDSHAKE:
            self._owner.spoke_tls(self)
            self.close()
        else:
            self.end(str(error))

    def close(self) -> None:
        """Close after the output is sent, which follows this tick's writes."""
        self._is_closing = self._is_held_back = True
        if self._transport is not None and not self._out:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, as a crash would."""
        if self._transport is not None:
            self._transport.abort()

    # -- for `Connections` ---------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self.session.peer

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self.session.peer.rpartition(":")[0]

    @property
    def open_requests(self) -> int:
        """Pending requests, and ready replies behind them."""
        return 0 if self._open is None else len(self._open)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called; the connection ends when everything is sent."""
        return self._is_closing

    def idle_looks(self) -> int:
        """Number of checks, including this one, since the client last sent something or was answered."""
        if self._open and not self._pause & Pause.NOT_READING:
            self._idle_looks = 0
        self._idle_looks += 1
        return self._idle_looks
