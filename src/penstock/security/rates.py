"""Rates by which quotas are measured, as in Kafka's metrics.

`SampledRate` is an average over the last samples, of which the last is still being filled:

    [ 9 kB ][ 0 ][ 12 kB ] ... [ 4 kB          11 samples of a second: an average over 10 to 11 seconds

`TokenBucket` collects tokens at the rate of its limit, up to what accrues in all samples together, and may go below 0.
"""

from typing import Final, NamedTuple

_SECOND_NS: Final = 1_000_000_000

DELAY_MS_MAX: Final = 2**31 - 1
"""The longest delay that a response can say: 24 days."""


def delay_ms_of(missing: float, limit: float) -> int:
    """How long it takes at the rate of the limit to make up for what is missing; 0 if nothing is. Limits may be too
    small to divide by."""
    if not missing > 0:
        return 0
    delay_ms = missing / limit * 1000 if limit > 0 else DELAY_MS_MAX
    return round(min(delay_ms, DELAY_MS_MAX))


class Windows(NamedTuple):
    """How rates are sampled: `quota.window.num` and `quota.window.size.seconds`, or those of the controller."""

    samples: int = 11
    sample_ns: int = _SECOND_NS


class SampledRate:
    __slots__ = ("_newest", "_sample_ns", "_samples", "_sums", "_whole_ns", "total")

    def __init__(self, windows: Windows) -> None:
        self._samples, self._sample_ns = windows
        self._whole_ns = (self._samples - 1) * self._sample_ns
        self._sums: dict[int, float] = {}
        """By the number of the sample since the clock's start. Samples without a sum are left out."""
        self._newest = 0
        """The newest sample that was looked at: those before its window are forgotten."""
        self.total = 0.0
        """The sum of all samples."""

    def _forget(self, newest: int) -> None:
        self._newest = newest
        oldest = newest - self._samples + 1
        for number in [each for each in self._sums if each < oldest]:
            del self._sums[number]
        self.total = sum(self._sums.values())

    def record(self, amount: float, at_ns: int) -> None:
        """`at_ns` may be a little in the past."""
        number = at_ns // self._sample_ns
        if number > self._newest - self._samples:
            self._sums[number] = self._sums.get(number, 0.0) + amount
            self.total += amount

    def room(self, limit: float, now_ns: int) -> float:
        """How much may be recorded before the rate exceeds the limit; negative if it does."""
        newest, part_ns = divmod(now_ns, self._sample_ns)
        if newest != self._newest:
            self._forget(newest)
        elapsed_ns = self._whole_ns + part_ns
        elapsed_ns = max(elapsed_ns, self._sample_ns)
        return limit * (elapsed_ns / _SECOND_NS) - self.total

    def delay_ms(self, limit: float, now_ns: int) -> int:
        """How long nothing must be recorded for the rate to be within the limit again."""
        return delay_ms_of(-self.room(limit, now_ns), limit)

    def is_idle(self, now_ns: int) -> bool:
        """Whether nothing was recorded within the samples."""
        self._forget(now_ns // self._sample_ns)
        return not self.total


class TokenBucket:
    __slots__ = ("_updated_ns", "_windows", "tokens")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._updated_ns: int | None = None
        self.tokens = 0.0

    def _refill(self, limit: float, now_ns: int) -> None:
        most = limit * self._windows.samples * self._windows.sample_ns / _SECOND_NS
        if self._updated_ns is None:
            self.tokens = most
        else:
            self.tokens = min(most, self.tokens + limit * (now_ns - self._updated_ns) / _SECOND_NS)
        self._updated_ns = now_ns

    def delay_ms(self, limit: float, now_ns: int) -> int:
        """How long it takes until there are tokens again; 0 if there are."""
        self._refill(limit, now_ns)
        return delay_ms_of(-self.tokens, limit)

    def take(self, amount: float, limit: float, now_ns: int) -> None:
        """Take tokens, of which there need not be enough."""
        self._refill(limit, now_ns)
        self.tokens -= amount

    def is_idle(self, limit: float, now_ns: int) -> bool:
        """Whether all tokens are there again."""
        self._refill(limit, now_ns)
        return self.tokens >= limit * self._windows.samples * self._windows.sample_ns / _SECOND_NS
