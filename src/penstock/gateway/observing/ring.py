"""Samples of some values at rising moments, of which the latest are kept.

Each column is an array of fixed size, so that a sample costs no allocation. A value that was not measured is NaN.
Invariant: times rise strictly, and there are `capacity` samples at most.
"""

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Mapping
from math import nan
from typing import Generic, TypeVar

from penstock.base.ids import TimestampMs

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", int, float)

FLOAT, COUNT = "d", "I"
"""Types of columns: any number, or a count below 2**32."""

COUNT_MAX = 2**32 - 1


class SampleRing(Generic[K]):
    def __init__(self, columns: Mapping[K, str], capacity: int) -> None:
        """`columns` has the type of each column, FLOAT or COUNT."""
        self._capacity = capacity
        self._times = array("q", bytes(8 * capacity))
        self._columns: dict[K, array[float]] = {
            name: array(kind, [nan if kind == FLOAT else 0]) * capacity for name, kind in columns.items()
        }
        self._begin = 0
        """Position of the oldest sample."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def last_ms(self) -> TimestampMs | None:
        """When the latest sample was taken; None if there is none."""
        return self._times[(self._begin + self._count - 1) % self._capacity] if self._count else None

    def add(self, time_ms: TimestampMs, values: Mapping[K, float]) -> None:
        """Add a sample; columns without a value get NaN or 0. A clock that went back makes the ring begin anew."""
        last_ms = self.last_ms
        if last_ms is not None and time_ms <= last_ms:
            self._begin = self._count = 0
        at = (self._begin + self._count) % self._capacity
        if self._count < self._capacity:
            self._count += 1
        else:
            self._begin = (self._begin + 1) % self._capacity
        self._times[at] = time_ms
        for name, column in self._columns.items():
            if column.typecode == FLOAT:
                column[at] = values.get(name, nan)
            else:
                column[at] = min(int(values.get(name, 0)), COUNT_MAX)

    def latest(self, name: K) -> float:
        """The latest value of a column; NaN if there is none."""
        if not self._count:
            return nan
        return self._columns[name][(self._begin + self._count - 1) % self._capacity]

    def times(self, since_ms: TimestampMs = 0) -> list[TimestampMs]:
        """The moments of the samples after `since_ms`, in order."""
        times = self._last(self._times, self._count)
        return times[bisect_right(times, since_ms) :]

    def values(self, name: K, count: int) -> list[float]:
        """The last values of a column, in order."""
        return self._last(self._columns[name], count)

    def _last(self, column: "array[N]", count: int) -> list[N]:
        end = self._begin + self._count
        begin = end - min(count, self._count)
        if begin >= self._capacity:
            return column[begin - self._capacity : end - self._capacity].tolist()
        return column[begin:end].tolist() + column[: max(end - self._capacity, 0)].tolist()
