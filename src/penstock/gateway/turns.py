"""Turns for long work: many clients read much at once, and whoever asks for little should not notice.

Work that goes on for longer is done in portions, each in a turn of its own. Turns are given in the order in which they
are asked for, for a millisecond at a time over all who wait; then everything else that the node does comes first.
So what others wait for it does not depend on how many there are: it is a moment for all of them, and a portion.
"""

from collections import deque
from typing import Final

from penstock.base.later import Later
from penstock.base.world import World
from penstock.gateway.http.messages import Out
from penstock.gateway.steps import Steps

TURNS_NS: Final = 1_000_000
"""After so long no further turn is given before others have been served: about what one portion takes. A new client
waits for several of these, since the loop takes one connection a round from those that came together."""


class Turns:
    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: deque[Later[None]] = deque()
        self._is_coming = False

    def next(self) -> Later[None]:
        """Answered when it is the caller's turn, never at once."""
        later: Later[None] = Later()
        self._waiting.append(later)
        if not self._is_coming:
            self._is_coming = True
            self._world.call_soon(self._give)
        return later

    def to_write(self, out: Out) -> Steps[None]:
        """Wait for a turn at a time when the client has room: who does not read has nothing read for it."""
        yield self.next()
        while not (ready := out.ready()).is_answered:
            yield ready
            yield self.next()

    def _give(self) -> None:
        world = self._world
        end_ns = world.clock_ns() + TURNS_NS
        for _ in range(len(self._waiting)):  # who has had its turn comes again when everybody else has
            self._waiting.popleft().answer(None)
            if world.clock_ns() >= end_ns:
                break
        self._is_coming = bool(self._waiting)
        if self._is_coming:
            world.call_soon(self._give)
