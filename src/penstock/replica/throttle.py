"""How fast replicas that are throttled may be copied, for reassignments: followers ask for no more than
`follower.replication.throttled.rate` allows, and leaders give no more than `leader.replication.throttled.rate`.

What is copied is paid for with time at that rate. Who is behind with paying takes nothing; who took nothing for a
while may take what a second costs at once, so that a rate is reached in spite of pauses. What is owed is counted in
bytes: where the rate is changed, so is the time that it takes to pay.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

P = TypeVar("P")
"""A partition."""

SAVED_SECONDS_MAX: Final = 1
"""Kafka's `replication.quota.window.size.seconds`."""


class Throttle:
    """Times are milliseconds of a clock that never goes back."""

    def __init__(self, rate: Callable[[], int]) -> None:
        """`rate` is in bytes a second, as it is in force now."""
        self._rate = rate
        self._owed: float | None = None
        """Bytes that were taken and not paid for at `_paid_ms`; less than 0 for what was saved, None before anything
        was."""
        self._paid_ms = 0

    def take(self, taken_bytes: int, now_ms: int) -> None:
        self._owed = self._pay(now_ms) + taken_bytes

    def delay_ms(self, now_ms: int) -> float:
        """How long to wait until more may be taken; 0 for not at all."""
        self._owed = self._pay(now_ms)
        return max(0.0, self._owed * 1000 / max(1, self._rate()))

    def _pay(self, now_ms: int) -> float:
        """What is owed now."""
        rate = max(1, self._rate())
        saved = -rate * SAVED_SECONDS_MAX
        owed = saved if self._owed is None else self._owed - rate * (now_ms - self._paid_ms) / 1000
        self._paid_ms = now_ms
        return max(owed, saved)


class LeaderThrottle(Generic[P]):
    """What is led here and throttled. Whoever copies it pays from the same purse, also a replica that is in sync; held
    back are only those that are not: a leader that let go of its ISR would stop its producers."""

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
        """So much of it went to a follower."""
        if partition in self._partitions:
            self._throttle.take(given_bytes, now_ms)

    def delay_ms(self, partition: P, now_ms: int) -> float:
        """How long a follower that is not in sync waits for more of it; 0 for not at all."""
        return self._throttle.delay_ms(now_ms) if partition in self._partitions else 0.0


def is_throttled(listed: str, partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has one: `*` for all, or pairs of partition and broker."""
    if listed.strip() == "*":
        return True
    return f"{partition}:{broker_id}" in (each.strip() for each in listed.split(","))
