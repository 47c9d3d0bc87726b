"""A world that stands still until it is told to move: for tests of anything that takes a `penstock.base.world.World`.

Time is virtual and moves only in `advance` and its like. Calls due at one moment run in the order in which they were
asked for. Work `beside` runs whole, on the test's own thread, `beside_ms` after it was asked for and one piece after
another, and its result is delivered at that moment: a test can stop the world before it happens. What a call raises
comes out of `advance`, so that no failure goes unseen.

    world = StillWorld(seed=7)
    node = Something(world)
    world.advance(100)            # everything that is due within 100 ms has happened
    world.run_until_idle()        # no call is left, however far away; a node with a standing timer never gets there
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


@dataclass(slots=True, order=True)
class StillTimer:
    """A call and when it is due. Order: by time, then by when it was asked for."""

    due_ms: float
    number: int
    call: Callable[[], None] | None = field(compare=False)
    is_work: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.call = None


class StillWorld:
    def __init__(
        self, seed: int = 0, *, start_ms: int = START_MS, beside_ms: float = 1, boot: str | None = None
    ) -> None:
        self.rng = Random(seed)
        self.boot = boot
        """Which start of its machine this world lives in; None: nobody knows."""
        self.beside_ms = beside_ms
        self._now_ms: float = start_ms
        self._heap: list[StillTimer] = []
        self._number = 0
        self._beside_free_ms: float = start_ms
        """Until then the one thread is busy."""

    # What a node asks.

    def now_ms(self) -> int:
        return int(self._now_ms)

    def clock_ns(self) -> int:
        return int(self._now_ms * 1e6)

    def process(self) -> None:
        return None

    def boot_id(self) -> str | None:
        return self.boot

    def call_soon(self, call: Callable[[], None]) -> None:
        self._put(0, call)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> StillTimer:
        return self._put(delay_ms, call)

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._beside_free_ms = max(self._now_ms, self._beside_free_ms) + self.beside_ms
        timer = self._put(self._beside_free_ms - self._now_ms, lambda: self._work(work, done))
        timer.is_work = True

    def sync_file(self, file: object, done: Callable[[OSError | None], None]) -> bool:
        return False

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self.beside(work, done)

    def in_helper(
        self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None], lane: str = ""
    ) -> None:
        self.beside(work, done)

    def dial(
        self, host: str, port: int, protocol: object, failed: Callable[[bool], None], tls: object = None
    ) -> None:
        """Nobody else is there: every port refuses."""
        self._put(0, lambda: failed(True))

    # What a test says.

    @property
    def is_idle(self) -> bool:
        return self.next_due_ms is None

    @property
    def next_due_ms(self) -> float | None:
        """When the next call is due; None if there is none."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
        return self._heap[0].due_ms if self._heap else None

    @property
    def works(self) -> int:
        """Pieces of work that were asked for and have not run."""
        return sum(timer.is_work and timer.call is not None for timer in self._heap)

    def step(self) -> bool:
        """Let the next call happen, moving time to it; False if there is none."""
        due_ms = self.next_due_ms
        if due_ms is None:
            return False
        timer = heapq.heappop(self._heap)
        call, timer.call = timer.call, None
        assert call is not None
        self._now_ms = max(self._now_ms, due_ms)
        call()
        return True

    def stall(self, ms: float) -> None:
        """Let time pass in which nothing happens, as while a process is stopped: all that was due is late."""
        self._now_ms += ms

    def advance(self, ms: float = 0, *, calls_max: int = 100_000) -> None:
        """Let everything happen that is due within ms from now, and what comes of it within that time."""
        until_ms = self._now_ms + ms
        for _ in range(calls_max):
            due_ms = self.next_due_ms
            if due_ms is None or due_ms > until_ms:
                self._now_ms = max(self._now_ms, until_ms)
                return
            self.step()
        raise AssertionError(
            f"{calls_max} calls within {ms} ms, and there are more: something calls itself at once"
        )

    def run_until_idle(self, *, calls_max: int = 100_000) -> None:
        """Let everything happen, however far away."""
        for _ in range(calls_max):
            if not self.step():
                return
        raise AssertionError(f"{calls_max} calls, and there are more: something never comes to rest")

    def run_until(self, condition: Callable[[], bool], *, calls_max: int = 100_000) -> None:
        """Let things happen until the condition holds."""
        for _ in range(calls_max):
            if condition():
                return
            if not self.step():
                break
        raise AssertionError(f"the world came to rest, or went on for {calls_max} calls, without it")

    def stop(self) -> None:
        """Nothing that was asked for happens any more: the power is gone."""
        self._heap.clear()

    def _put(self, delay_ms: float, call: Callable[[], None]) -> StillTimer:
        self._number += 1
        timer = StillTimer(self._now_ms + max(0.0, delay_ms), self._number, call)
        heapq.heappush(self._heap, timer)
        return timer

    def _work(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:
            error = raised
        done(result, error)
