"""Syncs of logs, beside the loop."""

from collections.abc import Callable
from typing import TypeVar

from penstock.base.metrics import Histogram
from penstock.base.world import World
from penstock.storage.syncing import FlushWork

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

    def sync_log(self, work: FlushWork, done: Callable[[None, Exception | None], None]) -> None:
        """`sync` what a log has to sync: without a thread, if it is one file and the world has a way."""
        segment = work.lone_segment()
        if segment is None:
            self.sync(work.run, done)
            return
        began_ns = self._world.clock_ns()

        def finish(error: OSError | None) -> None:
            self._running -= 1
            if error is None:
                self.syncs.observe(self._world.clock_ns() - began_ns)
            else:
                self.syncs_failed += 1
                segment.sync_failed()
            done(None, error)
            self._tell_idle()

        try:
            is_begun = self._world.sync_file(segment.file(), finish)
        except OSError:
            is_begun = False  # it cannot be opened, and says so to who tries again
        if is_begun:
            self._running += 1
        else:
            self.sync(work.run, done)

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
            self._tell_idle()

        self._world.beside(work, finish)

    def _tell_idle(self) -> None:
        if not self._running and self._when_idle is not None:
            call, self._when_idle = self._when_idle, None
            call()

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call when nothing runs any more, which may be now."""
        if self._running:
            self._when_idle = call
        else:
            call()
