"""A helper process with a queue of its own: one piece of work after the other, beside the event loop.

Each lane has a process and a thread that waits for it. Both come with the first piece of work; the process goes when
nothing was asked of it for a while.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.base.world import Timer
from penstock.server.helper import Helper

T = TypeVar("T")

HELPER_IDLE_MS = 60_000
"""How long a helper stays when nobody needs it: its modules take half a second to import, and 80 MB."""

Run = Callable[[Callable[[], Any], Callable[[Any, Exception | None], None]], None]
"""Do work on this thread, then call back on the loop."""


class HelperLane:
    """Called from the loop's own thread."""

    def __init__(self, name: str, run: Run, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._helper = Helper()
        self._minder = ThreadPoolExecutor(1, f"penstock-{name}")
        self._run = run
        self._call_later = call_later
        self._idle_timer: Timer | None = None
        """Runs while the helper is there and has nothing to do."""
        self._works = 0

    def do(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        data = pickle.dumps(work)
        self._works += 1

        def finished(result: T | None, error: Exception | None) -> None:
            self._works -= 1
            if not self._works:
                self._idle_timer = self._call_later(HELPER_IDLE_MS, self._let_go)
            done(result, error)

        self._minder.submit(self._run, lambda: self._helper.run(data), finished)

    def _let_go(self) -> None:
        self._minder.submit(self._helper.let_go)  # it waits for the process's end

    def close(self) -> None:
        """End it: the process is killed, and what waits for it never runs."""
        self._helper.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._minder.shutdown(wait=True, cancel_futures=True)
        self._helper.let_go()
