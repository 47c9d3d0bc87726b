"""Syncs of logs, beside the loop."""

from collections.abc import Callable
from typing import TypeVar

from penstock.base.metrics import Histogram
from penstock.base.world import World

T = TypeVar("T")


class SyncLane:
    """Runs syncs beside the loop, those of different logs at once, and knows when none runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running = 0
        self._when_idle: Callable[[], None] | None = None
        self.syncs = Histogram()
        """How long the syncs took that producers wait for; the wait for a thread is not in it."""
        self.syncs_failed = 0

    @property
    def running(self) -> int:
        """What runs, or waits for a thread."""
        return self._running

    def sync(self, work: Callable[[], None], done: Callable[[None, Exception | None], None]) -> None:
        """`run` a log's sync, and take its time."""
        clock_ns = self._world.clock_ns

        def timed() -> int:
            began_ns = clock_ns()
            work()
            return clock_ns() - began_ns

        def finish(took_ns: int | None, error: Exception | None) -> None:
            if error is not None or took_ns is None:
                self.syncs_failed += 1
            else:
                self.syncs.observe(took_ns)
            done(None, error)

        self.run(timed, finish)

    def run(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._running += 1

        def finish(result: T | None, error: Exception | None) -> None:
            self._running -= 1
            done(result, error)
            if not self._running and self._when_idle is not None:
                call, self._when_idle = self._when_idle, None
                call()

        self._world.beside(work, finish)

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call when nothing runs any more, which may be now."""
        if self._running:
            self._when_idle = call
        else:
            call()
