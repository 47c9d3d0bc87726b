"""How long those who asked for a write are kept waiting.

A write takes as long as it takes. It is over when it is committed, or when it is known that it never will be; until
then what is in memory stands, and whatever is decided on it waits as well. Whoever asked is not kept that long: after
a while it is told that the coordinator is not available, which leaves open what becomes of what it asked for, and it
asks again. Kafka does the same, for groups after `offsets.commit.timeout.ms`.

    asked ------ limit ------> overdue() ---- ... ----> done(None), done(error)      a slow write: both are called
    asked --> done(None)                                                            any other: overdue never is
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.world import Timer, World

WAIT_MS_MAX: Final = 5000
"""Kafka's default of `offsets.commit.timeout.ms`. For changes of a transaction Kafka waits as long as the transaction
may last, which is longer than its client waits."""

Done = Callable[[KafkaError | None], None]
Overdue = Callable[[], None]


class _Waiting:
    """A `Done` that somebody waits for, and what to do where that takes too long."""

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
        """Set before anybody waits: all wait equally long."""
        self._world = world
        self._waiting: dict[_Waiting, None] = {}
        """Who is neither done nor overdue; who came first is first."""
        self._timer: Timer | None = None
        """For the first that waited when it was set, who may be done by now: a timer for each would be more work than
        all the rest, and hardly anybody ever waits so long."""

    def limited(self, done: Done, overdue: Overdue) -> Done:
        """`done`, to be called instead of it; if that takes too long, `overdue` is called before."""
        waiting = _Waiting(self, done, overdue, self._now_ms() + self.limit_ms)
        self._waiting[waiting] = None
        if self._timer is None:
            self._timer = self._world.call_later(self.limit_ms, self._look)
        return waiting

    def forget(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting, None)

    def _look(self) -> None:
        now_ms = self._now_ms()
        overdue = []
        for waiting in self._waiting:
            if waiting.deadline_ms > now_ms:
                self._timer = self._world.call_later(waiting.deadline_ms - now_ms, self._look)
                break
            overdue.append(waiting)
        else:
            self._timer = None
        for waiting in overdue:
            # What was done for those before it may have settled it.
            if waiting in self._waiting:
                del self._waiting[waiting]
                waiting.overdue()

    def _now_ms(self) -> int:
        """By the clock that never goes back; whole, so that no timer is for less than a moment."""
        return self._world.clock_ns() // 1_000_000
