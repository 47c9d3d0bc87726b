"""A clock that the test moves, so that retention, sessions and transactions expire without waiting.

    broker.clock.advance(days=8)

The broker's time runs as usual, and jumps when the test moves it. Timers that expire in the jump run once, in the
order in which they would have expired. The jump affects records, retention, cleaning, groups and transactions. It does
not affect heartbeats between brokers and controllers, elections and replica lag, since that would only break the
cluster under test, nor clients, which have their own clocks.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.base.ids import TimestampMs
from penstock.base.world import EXPORTS, Timer, World

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")

SETTLE_LOOK_MS: Final = 5
"""How often `advance` checks whether the broker has done what was due."""

SETTLE_LOOKS: Final = 3
"""This many checks in a row must find no work in progress: work may start other work."""

SETTLE_S_MAX: Final = 60.0


class Clock:
    """The time of one broker, or of all brokers of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead_ms = 0
        self._worlds: dict[MovedWorld, Callable[[Callable[[], None]], None]] = {}
        """Running brokers, each with a function that calls another one on its thread."""

    @property
    def ahead_ms(self) -> int:
        """Difference between the brokers' time and the machine's."""
        return self._ahead_ms

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the brokers' time forward, and return when they have done what was due."""
        ahead_ms = round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)
        if ahead_ms < 0:
            raise ValueError(f"a broker's time can only move forward, not by {ahead_ms} ms")
        with self._lock:
            self._ahead_ms += ahead_ms
            worlds = dict(self._worlds)
        waiting = []
        for world, call in worlds.items():
            done = threading.Event()
            with suppress(Exception):  # a broker that has failed meanwhile is left out
                call(partial(world.jumped, done.set))
                waiting.append(done)
        for done in waiting:
            if not done.wait(SETTLE_S_MAX):
                raise TimeoutError(
                    f"the broker is still busy {SETTLE_S_MAX:.0f} s after its clock was moved by {ahead_ms} ms"
                )

    def begin(self, world: "MovedWorld", call: Callable[[Callable[[], None]], None]) -> None:
        with self._lock:
            self._worlds[world] = call

    def end(self, world: "MovedWorld") -> None:
        with self._lock:
            self._worlds.pop(world, None)


class MovedWorld:
    """A broker's `World` with the time of a `Clock`. Called on the broker's thread."""

    def __init__(self, inner: World, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.rng: Random = inner.rng
        self.clock_ns = inner.clock_ns
        """Return the real monotonic time: durations are not affected by jumps."""
        self.call_soon = inner.call_soon
        self.process = inner.process
        self.boot_id = inner.boot_id
        self.sync_file = inner.sync_file
        self.dial = inner.dial
        self._timers: dict[_MovedTimer, None] = {}
        """Pending timers, in the order in which they were set."""
        self._under_way = 0
        """Work that runs beside the loop."""

    def now_ms(self) -> TimestampMs:
        return self._inner.now_ms() + self._clock.ahead_ms

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        timer = _MovedTimer(self, self._moved_ms() + delay_ms, call)
        self._timers[timer] = None
        timer.set(delay_ms)
        return timer

    def _moved_ms(self) -> float:
        return self._inner.clock_ns() / 1e6 + self._clock.ahead_ms

    def set_inner(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        return self._inner.call_later(delay_ms, call)

    def forget(self, timer: "_MovedTimer") -> None:
        self._timers.pop(timer, None)

    def jumped(self, settled: Callable[[], None]) -> None:
        """The clock has moved: run what is due, then report once nothing of it is in progress."""
        now_ms = self._moved_ms()
        for timer in sorted(self._timers, key=lambda each: each.due_ms):
            timer.cancel_inner()
            timer.set(max(0.0, timer.due_ms - now_ms))
        self._await_quiet(settled, SETTLE_LOOKS)

    def _await_quiet(self, settled: Callable[[], None], looks_left: int) -> None:
        is_quiet = not self._under_way and all(each.due_ms > self._moved_ms() for each in self._timers)
        looks_left = looks_left - 1 if is_quiet else SETTLE_LOOKS
        if looks_left:
            self._inner.call_later(SETTLE_LOOK_MS, lambda: self._await_quiet(settled, looks_left))
        else:
            settled()

    # -- work beside the loop, which is counted --------------------------------------------------------

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._inner.beside(work, self._counted(done))

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._inner.in_child(work, self._counted(done))

    def in_helper(
        self,
        work: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
        lane: str = EXPORTS,
    ) -> None:
        self._inner.in_helper(work, self._counted(done), lane)

    def _counted(self, done: Callable[..., Any]) -> Callable[..., Any]:
        self._under_way += 1

        def finished(*result: Any) -> None:
            self._under_way -= 1
            done(*result)

        return finished


class _MovedTimer:
    def __init__(self, world: MovedWorld, due_ms: float, call: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._world = world
        self._call = call
        self._inner: Timer | None = None

    def set(self, delay_ms: float) -> None:
        self._inner = self._world.set_inner(delay_ms, self._fire)

    def cancel_inner(self) -> None:
        if self._inner is not None:
            self._inner.cancel()
            self._inner = None

    def cancel(self) -> None:
        self.cancel_inner()
        self._world.forget(self)

    def _fire(self) -> None:
        self._world.forget(self)
        self._call()
