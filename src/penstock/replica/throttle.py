"""Replication quotas for reassignments: followers fetch throttled replicas at `follower.replication.throttled.rate`,
and leaders send them at `leader.replication.throttled.rate`.

This is a token bucket. Replicated bytes are a debt that shrinks at the rate; while there is a debt, nothing more is
replicated. After a pause up to one second's worth may be replicated at once, so that the rate is reached in spite of
pauses. The debt is counted in bytes: if the rate changes, so does the delay.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

P = TypeVar("P")
"""A partition."""

SAVED_SECONDS_MAX: Final = 1
"""Kafka's `replication.quota.window.size.seconds`."""


class Throttle:
    """Times are milliseconds of a monotonic clock."""

    def __init__(self, rate: Callable[[], int]) -> None:
        """`rate` returns the current rate in bytes per second."""
        self._rate = rate
        self._owed: float | None = None
        """Debt in bytes at `_paid_ms`; negative if bytes are saved, None before the first use."""
        self._paid_ms = 0

    def take(self, taken_bytes: int, now_ms: int) -> None:
        self._owed = self._pay(now_ms) + taken_bytes

    def delay_ms(self, now_ms: int) -> float:
        """How long to wait until more may be replicated; 0 if it may be now."""
        self._owed = self._pay(now_ms)
        return max(0.0, self._owed * 1000 / max(1, self._rate()))

    def _pay(self, now_ms: int) -> float:
        """The debt now."""
        rate = max(1, self._rate())
        saved = -rate * SAVED_SECONDS_MAX
        owed = saved if self._owed is None else self._owed - rate * (now_ms - self._paid_ms) / 1000
        self._paid_ms = now_ms
        return max(owed, saved)


class LeaderThrottle(Generic[P]):
    """The throttled partitions that this broker leads. All their followers share one rate, members of the ISR
    included. But only followers outside the ISR are delayed: a leader that delayed its ISR would stop its
    producers."""

    def __init__(self, rate: Callable[[], int]) -> None:
        self._throttle = Throttle(rate)
        self._partitions: set[P] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is throttled."""
        return not self._partitions

    def mark(self, partition: P, is_throttled: bool) -> None:
        (self._partitions.add if is_throttled else self._partitions.discard)(partition)

    def gave(self, partition: P, given_bytes: int, now_ms: int) -> None:
        """Bytes of a partition were sent to a follower."""
        if partition in self._partitions:
            self._throttle.take(given_bytes, now_ms)

    def delay_ms(self, partition: P, now_ms: int) -> float:
        """How long a follower outside the ISR must wait; 0 if it need not."""
        return self._throttle.delay_ms(now_ms) if partition in self._partitions else 0.0


def is_throttled(listed: str, partition: int, broker_id: int) -> bool:
    """Whether a list of throttled replicas includes one: `*` for all, or pairs `partition:broker`."""
    if listed.strip() == "*":
        return True
    return f"{partition}:{broker_id}" in (each.strip() for each in listed.split(","))
