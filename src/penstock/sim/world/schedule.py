"""Virtual time: everything that will happen, in one heap.

Time moves from one event to the next and stands still while one happens. Events of the same microsecond happen in
the order in which they were planned, so that `call_soon` is what it is on a real loop: after all that was due before.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sim.world.loop_costs import LoopCosts

START_MS = 1_700_000_000_000
"""What the wall clock shows when a run begins: a time of day like any other."""


class Event:
    """Something planned; its own timer."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call
        """None once it has happened or was cancelled."""

    def cancel(self) -> None:
        self.call = None

    def happen(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()


class Schedule:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.steps = 0
        """Events that have happened."""
        self._heap: list[tuple[int, int, Event]] = []
        self._planned = 0
        self.costs: LoopCosts | None = None
        """What events cost their nodes, where that is charged."""

    @property
    def now_ms(self) -> int:
        return START_MS + self.now_us // 1000

    def rng(self, name: str) -> Random:
        """A stream of chance of its own, so that who draws more does not change what others draw."""
        return Random(f"{self.seed}/{name}")

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        event = Event(call)
        self.plan(event, delay_us)
        return event

    def plan(self, event: Event, delay_us: int) -> None:
        """Have it happen; once more, if it has been put off."""
        self._planned += 1
        at_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        heappush(self._heap, (at_us, self._planned, event))

    def step(self) -> bool:
        """Let the next event happen; False when there is none."""
        heap = self._heap
        while heap:
            at_us, _, event = heappop(heap)
            if event.call is not None:
                self.now_us = at_us
                self.steps += 1
                event.happen()
                return True
        return False
