"""A queue of functions that run one at a time in a helper process, beside the event loop.

Each lane has one process and one thread that waits for it. Both start with the first function; the process ends after
an idle minute.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.base.world import Timer
from penstock.server.helper import Helper

T = TypeVar("T")

HELPER_IDLE_MS = 60_000
"""How long an idle helper process is kept. Its modules take half a second to import and 80 MB of memory."""

Run = Callable[[Callable[[], Any], Callable[[Any, Exception | None], None]], None]
"""Runs a function on the calling thread, then a callback on the loop."""


class HelperLane:
    """All methods are called on the loop's thread."""

    def __init__(self, name: str, run: Run, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._helper = Helper()
        self._thread = ThreadPoolExecutor(1, f"penstock-{name}")
        self._run = run
        self._call_later = call_later
        self._idle_timer: Timer | None = None
        """Runs while the helper process exists and is idle."""
        self._pending_count = 0

    def do(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        data = pickle.dumps(work)
        self._pending_count += 1

        def finished(result: T | None, error: Exception | None) -> None:
            self._pending_count -= 1
            if not self._pending_count:
                self._idle_timer = self._call_later(HELPER_IDLE_MS, self._end_process)
            done(result, error)

        self._thread.submit(self._run, lambda: self._helper.run(data), finished)

    def _end_process(self) -> None:
        self._thread.submit(self._helper.end_process)  # blocks until the process has exited

    def close(self) -> None:
        """Kill the process; queued functions never run."""
        self._helper.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._helper.end_process()
