"""Syncs of logs, off the loop."""

from __future__ import annotations  # those of nested functions would be evaluated in each call

from collections.abc import Callable
from typing import TypeVar

from penstock.base.metrics import Histogram
from penstock.base.world import World
from penstock.storage.syncing import FlushWork

T = TypeVar("T")


class SyncLane:
    """Runs syncs on threads, those of different logs in parallel, and knows when none runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running = 0
        self._when_idle: Callable[[], None] | None = None
        self.syncs = Histogram()
        """Duration of the syncs that producers wait for, without the wait for a thread."""
        self.syncs_failed = 0

    @property
    def running(self) -> int:
        """Syncs that run, or wait for a thread."""
        return self._running

    def sync_log(self, work: FlushWork, done: Callable[[None, Exception | None], None]) -> None:
        """Sync a log: without a thread, if it is one file and the world supports that."""
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
            is_begun = False  # it cannot be opened: `sync` tries again, and reports it
        if is_begun:
            self._running += 1
        else:
            self.sync(work.run, done)

    def sync(self, work: Callable[[], None], done: Callable[[None, Exception | None], None]) -> None:
        """Run a sync on a thread, and measure it."""
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
        """Call once nothing runs, which may be now."""
        if self._running:
            self._when_idle = call
        else:
            call()
