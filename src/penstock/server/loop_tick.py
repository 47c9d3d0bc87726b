"""One tick of the event loop: one write per log and one send per connection for everything that arrived.

During a tick, connections receive into one shared chunk and requests may keep views of it, so that a batch goes from
the socket to the disk without being copied. At the end of the tick the logs write what was staged, which releases the
views; then the connections send; then the chunk is reused from its start.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock.base.client_memory import AHEAD_BYTES_MAX, ClientMemory
from penstock.base.metrics import Metrics
from penstock.base.world import Timer, World

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
"""Bytes that one tick can receive before another chunk is allocated; reused pages stay in the cache."""

RECEIVE_BYTES_MIN = 64 * 1024
"""With less room than this, another chunk is started."""

SPARE_CHUNKS_MAX = 3
"""Chunks that are kept for ticks that receive more than one: clearing a new one costs as much as receiving into it."""


class Sender(Protocol):
    """A connection with replies to send."""

    def send_now(self) -> None: ...


class Stepper(Protocol):
    """A connection whose reply is read from disk in steps."""

    def send_step(self) -> int:
        """Send the next step; return its size in bytes."""


class LoopTick:
    """Shared by all connections of a loop."""

    def __init__(
        self,
        world: World,
        chunk_bytes: int = CHUNK_BYTES,
        metrics: Metrics | None = None,
        memory: ClientMemory | None = None,
    ) -> None:
        self._world = world
        self.memory = ClientMemory(world) if memory is None else memory
        self._call_soon = getattr(world, "call_soon_unwatched", world.call_soon)
        self.clock_ns = world.clock_ns
        self.metrics = Metrics() if metrics is None else metrics
        self._chunk = memoryview(bytearray(chunk_bytes))
        self._full: list[memoryview] = []
        """Chunks that this tick has filled. Requests have views of them until its end."""
        self._spare: list[memoryview] = []
        self._room_min = min(RECEIVE_BYTES_MIN, chunk_bytes)
        self.room = self._chunk
        """Where a connection may receive: the part of the chunk without views of this tick's requests."""
        self._is_scheduled = False
        self.count = 0
        """Finished ticks."""
        self._writers: list[Callable[[], None]] = []
        self._senders: list[Sender] = []
        self._steppers: deque[Stepper] = deque()
        """Connections with a next step to send, in the order of waiting."""
        self._delayed: list[Callable[[], None]] = []

    # -- receiving -------------------------------------------------------------------------------------

    def keep(self, count: int) -> memoryview:
        """The bytes just received, valid until the end of the tick."""
        return self.keep_first(count)[:count]

    def keep_first(self, count: int) -> memoryview:
        """The room with those bytes at its start. The caller slices it, because a slice is a large part of the cost of
        a small request."""
        room = self.room
        rest = room[count:]
        if len(rest) < self._room_min:
            self._full.append(self._chunk)
            self._chunk = rest = self._spare.pop() if self._spare else memoryview(bytearray(len(self._chunk)))
        self.room = rest
        if not self._is_scheduled:
            self._schedule()
        return room

    # -- end of the tick ------------------------------------------------------------------------------------

    def write_later(self, write: Callable[[], None]) -> None:
        """Call `write` before this tick's replies are sent; it must not raise."""
        self._writers.append(write)
        if not self._is_scheduled:
            self._schedule()

    def send_later(self, sender: Sender) -> None:
        """Call `send_now` after the writes of this tick."""
        self._senders.append(sender)
        if not self._is_scheduled:
            self._schedule()

    def step_later(self, stepper: Stepper) -> None:
        """Call `send_step` when the connections that wait longer have sent theirs."""
        self._steppers.append(stepper)
        if not self._is_scheduled:
            self._schedule()

    def delay(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in the next tick, because this one is long already (`Metrics.is_long_tick`)."""
        self._delayed.append(go_on)
        if not self._is_scheduled:
            self._schedule()

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        return self._world.call_later(delay_ms, call)

    def begin(self) -> None:
        """Schedule the end of the tick for work that did not go through `keep`."""
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        metrics = self.metrics
        if not metrics.tick_began_ns:
            metrics.tick_began_ns = self.clock_ns()
        self._call_soon(self._end)

    def _send_steps(self) -> None:
        left = AHEAD_BYTES_MAX
        for _ in range(len(self._steppers)):
            left -= self._steppers.popleft().send_step()
            if left <= 0:
                break
        if self._steppers and not self._is_scheduled:
            self._schedule()

    def _end(self) -> None:
        self._is_scheduled = False
        self.count += 1
        # A write may answer requests, which adds senders; it adds no writers.
        writers, self._writers = self._writers, []
        for write in writers:
            try:
                write()
            except Exception:  # other logs and clients must not be affected
                logger.exception("unexpected error while writing staged records")
        senders, self._senders = self._senders, []
        for sender in senders:
            sender.send_now()
        if self._steppers:
            self._send_steps()
        if self._full:
            self._spare = (self._spare + self._full)[:SPARE_CHUNKS_MAX]
            self._full = []
        self.room = self._chunk
        self.memory.ahead_left = AHEAD_BYTES_MAX
        now_ns = self.clock_ns()
        # Requests that were held back until a send have already started the next tick.
        self.metrics.tick_ended(now_ns, now_ns if self._is_scheduled else 0)
        if self._delayed:
            delayed, self._delayed = self._delayed, []
            for go_on in delayed:
                self._world.call_soon(go_on)
