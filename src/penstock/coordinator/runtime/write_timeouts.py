"""How long a request waits for its write.

A write ends when it is committed, or when it certainly never will be; until then the state that it changed stays, and
later decisions wait for it too. The request does not wait that long: after a timeout it is answered with a retriable
error, which leaves the fate of the write open. Kafka does the same, for groups after `offsets.commit.timeout.ms`.

    append ------ limit ------> overdue() ---- ... ----> done(None) or done(error)      a slow write
    append --> done(None)                                                               any other write
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.world import Timer, World

WAIT_MS_MAX: Final = 5000
"""Kafka's default of `offsets.commit.timeout.ms`. For transactions Kafka waits for the transaction timeout, which is
longer than clients wait."""

Done = Callable[[KafkaError | None], None]
Overdue = Callable[[], None]


class _Waiting:
    """A `done` callback with a deadline."""

    __slots__ = ("_done", "_timeouts", "deadline_ms", "overdue")

    def __init__(self, timeouts: "WriteTimeouts", done: Done, overdue: Overdue, deadline_ms: int) -> None:
        self._timeouts = timeouts
        self._done = done
        self.overdue = overdue
        self.deadline_ms = deadline_ms

    def __call__(self, error: KafkaError | None) -> None:
        self._timeouts.forget(self)
        self._done(error)


class WriteTimeouts:
    def __init__(self, world: World, limit_ms: int = WAIT_MS_MAX) -> None:
        self.limit_ms = limit_ms
        """Set before the first write; the same for all."""
        self._world = world
        self._waiting: dict[_Waiting, None] = {}
        """Neither done nor overdue, in order of arrival."""
        self._timer: Timer | None = None
        """Runs for the oldest entry at the time it was set. A timer for each write would cost more than the write, and
        few ever expire."""

    def limited(self, done: Done, overdue: Overdue) -> Done:
        """Return the callback to use in place of `done`. If it is not called within the limit, `overdue` is called
        first."""
        waiting = _Waiting(self, done, overdue, self._now_ms() + self.limit_ms)
        self._waiting[waiting] = None
        if self._timer is None:
            self._timer = self._world.call_later(self.limit_ms, self._expire)
        return waiting

    def forget(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting, None)

    def _expire(self) -> None:
        now_ms = self._now_ms()
        overdue = []
        for waiting in self._waiting:
            if waiting.deadline_ms > now_ms:
                self._timer = self._world.call_later(waiting.deadline_ms - now_ms, self._expire)
                break
            overdue.append(waiting)
        else:
            self._timer = None
        for waiting in overdue:
            # The callbacks of earlier entries may have settled this one.
            if waiting in self._waiting:
                del self._waiting[waiting]
                waiting.overdue()

    def _now_ms(self) -> int:
        """The monotonic clock, in whole milliseconds, so that no timer is shorter than one."""
        return self._world.clock_ns() // 1_000_000
