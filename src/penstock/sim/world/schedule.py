"""Virtual time: a heap of all scheduled events.

Time jumps from one event to the next and stands still during an event. Events of the same microsecond run in the
order in which they were scheduled, so that `call_soon` behaves as on a real loop: after everything that was due.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sim.world.loop_costs import LoopCosts

START_MS = 1_700_000_000_000
"""Wall clock time at the start of a run."""


class Event:
    """A scheduled call, and its timer."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call
        """None once it has run or was cancelled."""

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
        """Number of events that have run."""
        self._heap: list[tuple[int, int, Event]] = []
        self._planned = 0
        self.costs: LoopCosts | None = None
        """Costs of events, if they are charged."""

    @property
    def now_ms(self) -> int:
        return START_MS + self.now_us // 1000

    def rng(self, name: str) -> Random:
        """Return a separate random stream per name, so that extra draws from one do not change the others."""
        return Random(f"{self.seed}/{name}")

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        event = Event(call)
        self.plan(event, delay_us)
        return event

    def plan(self, event: Event, delay_us: int) -> None:
        """Schedule an event, or schedule it again."""
        self._planned += 1
        at_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        heappush(self._heap, (at_us, self._planned, event))

    def step(self) -> bool:
        """Run the next event; return False if there is none."""
        heap = self._heap
        while heap:
            at_us, _, event = heappop(heap)
            if event.call is not None:
                self.now_us = at_us
                self.steps += 1
                event.happen()
                return True
        return False
