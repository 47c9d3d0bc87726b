"""Turns for long work: many clients read much at once, and whoever asks for little should not notice.

Work that goes on for longer is done in portions, each in a turn of its own. Turns are given in the order in which they
are asked for, for a millisecond at a time over all who wait; then everything else that the node does comes first.
So what others wait for it does not depend on how many there are: it is a moment for all of them, and a portion.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import World
from penstock.gateway.http.protocol.messages import Out

TURNS_NS: Final = 1_000_000
"""After so long no further turn is given before others have been served: about what one portion takes. A new client
waits for several of these, since the loop takes one connection a round from those that came together."""


READING_MAX: Final = 16
"""Streams that may keep a decoded batch between their portions; each may be megabytes, and is read again otherwise."""

PORTIONS_MAX: Final = 32
"""How many portions a stream sends before it makes place for one that waits: about a batch of 1 MB."""


class Turns:
    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: deque[Promise[None]] = deque()
        self._is_coming = False
        self.reading_count = 0
        """Streams that may keep something."""
        self.to_read: dict[Reading, Promise[None]] = {}
        """Streams that wait for one of them to make place."""

    def next(self) -> Promise[None]:
        """Answered when it is the caller's turn, never at once."""
        later: Promise[None] = Promise()
        self.soon(later)
        return later

    def to_write(self, out: Out) -> Steps[None]:
        """Wait for a turn at a time when the client has room: who does not read has nothing read for it."""
        yield self.next()
        while not (ready := out.ready()).is_settled:
            yield ready
            yield self.next()

    def reading(self, out: Out, rest: Callable[[], None]) -> "Reading":
        """Turns for a stream that decodes what it sends; `rest` lets go of what is not sent yet. `close` it."""
        return Reading(self, out, rest)

    def soon(self, later: Promise[None]) -> None:
        """Answer it when it is its turn."""
        self._waiting.append(later)
        if not self._is_coming:
            self._is_coming = True
            self._world.call_soon(self._give)

    def _give(self) -> None:
        world = self._world
        end_ns = world.clock_ns() + TURNS_NS
        for _ in range(len(self._waiting)):  # who has had its turn comes again when everybody else has
            self._waiting.popleft().resolve(None)
            if world.clock_ns() >= end_ns:
                break
        self._is_coming = bool(self._waiting)
        if self._is_coming:
            world.call_soon(self._give)


class Reading:
    """One stream's turns. Of all streams a few may keep what they have decoded, the others keep their position."""

    __slots__ = ("_has_place", "_left", "_out", "_rest", "_turns")

    def __init__(self, turns: Turns, out: Out, rest: Callable[[], None]) -> None:
        self._turns = turns
        self._out = out
        self._rest = rest
        self._has_place = False
        self._left = 0
        """Portions that it may send before it makes place for others."""

    def turn(self) -> Steps[None]:
        """Wait for a turn at a time when the client has room, and this stream a place."""
        turns = self._turns
        self._left -= 1
        if self._left <= 0 and turns.to_read:
            self.pause()
        yield turns.next()
        while not (ready := self._out.ready()).is_settled:
            self.pause()
            yield ready
            yield turns.next()
        if not self._has_place:
            if turns.reading_count >= READING_MAX:
                turns.to_read[self] = Promise()
                yield turns.to_read[self]
            else:
                self._take_place()

    def _take_place(self) -> None:
        self._turns.reading_count += 1
        self._has_place = True
        self._left = PORTIONS_MAX

    def pause(self) -> None:
        """It has nothing to send for now: let go of what is kept, and make place."""
        self._rest()
        if not self._has_place:
            return
        turns = self._turns
        self._has_place = False
        turns.reading_count -= 1
        if turns.to_read:
            follower = next(iter(turns.to_read))
            later = turns.to_read.pop(follower)
            follower._take_place()
            turns.soon(later)

    def close(self) -> None:
        self._turns.to_read.pop(self, None)
        self.pause()
