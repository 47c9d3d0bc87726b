"""What one process of a node is given of the world. It ends with the process.

Work beside the loop is done whole at some later moment, and its end is told at another: between the two the
loop goes on and the process may die. When it dies nothing that it planned happens any more. What it does in the
rest of the event in which it died reaches nobody: it is a ghost, whose disk is already somebody else's copy.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from penstock.sim.schedule import Event, Schedule

T = TypeVar("T")

_NOTHING = Event(lambda: None)


class NodeRaised(Exception):
    """The node let an exception out of a callback: on a real loop a log line at best."""


class SimWorld:
    """Implements `base.world.World`."""

    def __init__(self, schedule: Schedule, incarnation: int) -> None:
        self.incarnation = incarnation
        self.is_alive = True
        self.rng = schedule.rng(f"node {incarnation}")
        self._schedule = schedule
        self._threads: Random = schedule.rng(f"threads {incarnation}")

    def end(self) -> None:
        """The process is gone, at once."""
        self.is_alive = False

    def now_ms(self) -> int:
        return self._schedule.now_ms

    def clock_ns(self) -> int:
        return self._schedule.now_us * 1000 + 1

    def process(self) -> None:
        return None

    def call_soon(self, call: Callable[[], None]) -> None:
        self.later(0, call)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Event:
        return self.later(round(delay_ms * 1000), call)

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        """As `call_later`, in microseconds."""
        if not self.is_alive:
            return _NOTHING
        return self._schedule.later(delay_us, lambda: self.run(call))

    def run(self, call: Callable[[], None]) -> None:
        """Do something as the process, if it is still there."""
        if not self.is_alive:
            return
        try:
            call()
        except Exception as error:
            # A ghost may stumble over anything; nobody sees it.
            if self.is_alive:
                raise NodeRaised(f"{type(error).__name__}: {error}") from error

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        def do() -> None:
            try:
                result = work()
            except Exception as error:
                raised = error
                self.later(self._thread_us(), lambda: done(None, raised))
            else:
                self.later(self._thread_us(), lambda: done(result, None))

        self.later(self._thread_us(), do)

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self.beside(work, done)

    def in_helper(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self.beside(work, done)

    def _thread_us(self) -> int:
        """How long a thread takes to begin, or to be heard of: mostly little, now and then very long."""
        drawn = self._threads.random()
        if drawn < 0.7:
            return self._threads.randrange(20, 800)
        if drawn < 0.98:
            return self._threads.randrange(800, 8_000)
        return self._threads.randrange(8_000, 120_000)
