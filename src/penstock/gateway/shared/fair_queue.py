"""A fair queue for long work: many clients read much at once, and short requests are not delayed.

Long work is done in portions. Before each portion it waits in the queue. Portions run in order for a millisecond, over
all that wait; then everything else that the node does comes first. So the delay to other requests is bounded by one
slice, however many readers wait.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import World
from penstock.gateway.http.protocol.messages import Out

SLICE_NS: Final = 1_000_000
"""The length of a slice: about one portion. A new client waits for several slices, since the event loop accepts one
connection a tick."""


READING_MAX: Final = 16
"""Streams that may keep a decoded batch between portions. A batch may be megabytes; other streams read it again."""

PORTIONS_MAX: Final = 32
"""Portions that a stream sends before it releases its place to one that waits: about a batch of 1 MB."""


class FairQueue:
    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: deque[Promise[None]] = deque()
        self._is_coming = False
        self.reading_count = 0
        """Streams that hold a place, and may keep a decoded batch."""
        self.to_read: dict[StreamSlot, Promise[None]] = {}
        """Streams that wait for a place."""

    def next(self) -> Promise[None]:
        """Resolved when the caller may do a portion of work, never at once."""
        later: Promise[None] = Promise()
        self.soon(later)
        return later

    def to_write(self, out: Out) -> Steps[None]:
        """Wait until a portion may be done and the client has room for it."""
        yield self.next()
        while not (ready := out.ready()).is_settled:
            yield ready
            yield self.next()

    def stream_slot(self, out: Out, release: Callable[[], None]) -> "StreamSlot":
        """For a stream that decodes what it sends; `release` drops what is decoded and not sent. `close` it."""
        return StreamSlot(self, out, release)

    def soon(self, later: Promise[None]) -> None:
        """Resolve a promise when its portion may be done."""
        self._waiting.append(later)
        if not self._is_coming:
            self._is_coming = True
            self._world.call_soon(self._give)

    def _give(self) -> None:
        world = self._world
        end_ns = world.clock_ns() + SLICE_NS
        for _ in range(len(self._waiting)):  # a waiter that queues again waits for all others
            self._waiting.popleft().resolve(None)
            if world.clock_ns() >= end_ns:
                break
        self._is_coming = bool(self._waiting)
        if self._is_coming:
            world.call_soon(self._give)


class StreamSlot:
    """One stream in the queue. A few streams hold a place and keep what they decoded, others only a position."""

    __slots__ = ("_has_place", "_left", "_out", "_queue", "_release")

    def __init__(self, queue: FairQueue, out: Out, release: Callable[[], None]) -> None:
        self._queue = queue
        self._out = out
        self._release = release
        self._has_place = False
        self._left = 0
        """Portions that it may send before it releases its place."""

    def wait(self) -> Steps[None]:
        """Wait until a portion may be done, the client has room, and this stream holds a place."""
        queue = self._queue
        self._left -= 1
        if self._left <= 0 and queue.to_read:
            self.pause()
        yield queue.next()
        while not (ready := self._out.ready()).is_settled:
            self.pause()
            yield ready
            yield queue.next()
        if not self._has_place:
            if queue.reading_count >= READING_MAX:
                queue.to_read[self] = Promise()
                yield queue.to_read[self]
            else:
                self._take_place()

    def _take_place(self) -> None:
        self._queue.reading_count += 1
        self._has_place = True
        self._left = PORTIONS_MAX

    def pause(self) -> None:
        """Drop what is decoded and release the place: there is nothing to send now."""
        self._release()
        if not self._has_place:
            return
        queue = self._queue
        self._has_place = False
        queue.reading_count -= 1
        if queue.to_read:
            follower = next(iter(queue.to_read))
            later = queue.to_read.pop(follower)
            follower._take_place()
            queue.soon(later)

    def close(self) -> None:
        self._queue.to_read.pop(self, None)
        self.pause()
