"""How fast replicas that are throttled may be copied: `follower.replication.throttled.rate`, for reassignments.

What is copied is paid for with time at that rate. Who is behind with paying takes nothing; who took nothing for a
while may take what a second costs at once, so that a rate is reached in spite of pauses. What is owed is counted in
bytes: where the rate is changed, so is the time that it takes to pay.
"""

from collections.abc import Callable
from typing import Final

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


def is_throttled(listed: str, partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has one: `*` for all, or pairs of partition and broker."""
    if listed.strip() == "*":
        return True
    return f"{partition}:{broker_id}" in (each.strip() for each in listed.split(","))
