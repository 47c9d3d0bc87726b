"""One turn of the loop: everything that arrived is written with one call a log and answered with one send a
connection.

While a turn lasts, connections receive into one shared chunk and requests may keep views of it, so that a batch
goes from the socket to the disk without being copied. When the turn ends, first the logs write what was staged
(which gives the views up), then the connections send, then the chunk is used from its beginning again.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock.base.client_memory import AHEAD_BYTES_MAX, ClientMemory
from penstock.base.metrics import Metrics
from penstock.base.world import World

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
"""What one turn can receive before another chunk must be allocated; pages that stay warm are cheap."""

RECEIVE_BYTES_MIN = 64 * 1024
"""Less room than this is not worth a recv: a new chunk is begun."""


class Sender(Protocol):
    """A connection, as a turn sees it."""

    def send_now(self) -> None: ...


class Stepper(Protocol):
    """A connection whose reply is read as it is sent."""

    def send_step(self) -> int:
        """Send the next step; how many bytes it was."""


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
        self._room_min = min(RECEIVE_BYTES_MIN, chunk_bytes)
        self.room = self._chunk
        """Where a connection may receive into: what this turn's requests do not look at."""
        self._is_scheduled = False
        self.count = 0
        """Turns that are over."""
        self._writers: list[Callable[[], None]] = []
        self._senders: list[Sender] = []
        self._steppers: deque[Stepper] = deque()
        """Whose next step may be sent, the one that waits longest first."""
        self._delayed: list[Callable[[], None]] = []

    # -- receiving -------------------------------------------------------------------------------------

    def keep(self, count: int) -> memoryview:
        """The bytes that were just received, theirs until the end of the turn."""
        return self.keep_first(count)[:count]

    def keep_first(self, count: int) -> memoryview:
        """The room with those bytes at its beginning, for who cuts what it needs out of it itself: cutting costs as
        much as much of the rest."""
        room = self.room
        rest = room[count:]
        if len(rest) < self._room_min:
            # The full chunk lives on in whatever looks at it; at the end of the turn it is gone.
            self._chunk = rest = memoryview(bytearray(len(self._chunk)))
        self.room = rest
        if not self._is_scheduled:
            self._schedule()
        return room

    # -- at the end ------------------------------------------------------------------------------------

    def write_later(self, write: Callable[[], None]) -> None:
        """Have something written before the replies of this turn go out; it must not raise."""
        self._writers.append(write)
        if not self._is_scheduled:
            self._schedule()

    def send_later(self, sender: Sender) -> None:
        """Have a connection send once, when everything is written."""
        self._senders.append(sender)
        if not self._is_scheduled:
            self._schedule()

    def step_later(self, stepper: Stepper) -> None:
        """Have a connection send one step, when it is its turn."""
        self._steppers.append(stepper)
        if not self._is_scheduled:
            self._schedule()

    def delay(self, go_on: Callable[[], None]) -> None:
        """Have something handled in the next turn: this one is long already (`Metrics.is_long_tick`)."""
        self._delayed.append(go_on)
        if not self._is_scheduled:
            self._schedule()

    def begin(self) -> None:
        """Something else is about to be handled than what `keep` was told of."""
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
            except Exception:  # the other logs, and the replies of other clients, do not wait for its cause
                logger.exception("what was staged for a log could not be written")
        senders, self._senders = self._senders, []
        for sender in senders:
            sender.send_now()
        if self._steppers:
            self._send_steps()
        self.room = self._chunk
        self.memory.ahead_left = AHEAD_BYTES_MAX
        now_ns = self.clock_ns()
        # What was held back, and is handled now that something was sent, has begun the next turn.
        self.metrics.tick_ended(now_ns, now_ns if self._is_scheduled else 0)
        if self._delayed:
            delayed, self._delayed = self._delayed, []
            for go_on in delayed:
                self._world.call_soon(go_on)
