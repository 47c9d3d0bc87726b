"""Splits ranges of offsets into tasks of about the same size.

A `SizedRange` estimates the bytes below an offset: from the sizes of segments, and inside a large segment from its
index. A range is split into parts of equal bytes; a split moves to an indexed position if one is near, so that
the task that starts there need not search.

Splits are only offsets. If an index is wrong, tasks have unequal sizes, but they read the same records.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

import numpy as np

from penstock.arrow.scan.log_files import IndexPoint, LogView, index_points
from penstock.base.ids import Offset
from penstock.vfs import Vfs

TASK_BYTES: Final = 256 << 20
"""Default size of a task in bytes of log: a task takes some 75 ms to start, and ten times as long to read this."""
TASK_BYTES_MIN: Final = 64 << 20
"""Tasks are not made smaller than this to occupy all processors: starting one would take as long as its reads."""


class TaskRange(NamedTuple):
    """The offsets of a partition that one task reads."""

    start: Offset
    stop: Offset
    start_point: IndexPoint | None
    """The last indexed position before start."""
    stop_point: IndexPoint | None
    """The last indexed position before stop."""


class SizedRange:
    """A range of offsets of one partition, with an estimate of the bytes below each offset."""

    def __init__(self, vfs: Vfs, view: LogView, start: Offset, stop: Offset) -> None:
        self.start, self.stop = start, stop
        self.points: list[IndexPoint] = []
        offsets, heights = [], []
        height = 0
        for segment, end in view.segments_with_ends():
            if end > start and segment.base_offset < stop:
                offsets.append(segment.base_offset)
                heights.append(height)
                known = (
                    index_points(vfs, view, segment)
                    if segment.size > min(TASK_BYTES, TASK_BYTES_MIN) // 4
                    else []
                )
                for point in known:
                    if offsets[-1] < point.last_offset < end:
                        offsets.append(point.last_offset)
                        heights.append(height + point.position)
                        self.points.append(point)
                height += segment.size
                offsets.append(end)
                heights.append(height)
        self._offsets = np.array(offsets, np.float64)
        self._heights = np.array(heights, np.float64)

    def height(self, offset: Offset) -> float:
        return float(np.interp(offset, self._offsets, self._heights)) if len(self._offsets) else 0.0

    @property
    def bytes(self) -> float:
        """Estimated bytes to read."""
        return max(self.height(self.stop) - self.height(self.start), 1.0)

    def cut(self, count: int, records_max: int | None) -> list[TaskRange]:
        """Split into `count` ranges: fewer if there are fewer offsets, more if one would exceed `records_max`."""
        low, high = self.height(self.start), self.height(self.stop)
        count = max(1, min(count, self.stop - self.start))
        wanted = np.linspace(low, high, count + 1)[1:-1]
        places = np.interp(wanted, self._heights, self._offsets)
        near = (high - low) / count / 4
        cuts = {
            self._near(int(place), float(height), near) for place, height in zip(places, wanted, strict=True)
        }
        borders = [self.start, *sorted(each for each in cuts if self.start < each < self.stop), self.stop]
        if records_max is not None:
            borders = _no_longer_than(borders, records_max)
        return [
            TaskRange(start, stop, self.point_before(start), self.point_before(stop))
            for start, stop in pairwise(borders)
        ]

    def offset_at(self, height: float) -> Offset:
        """An offset below which there are about this many bytes."""
        return int(np.interp(height, self._heights, self._offsets)) if len(self._offsets) else self.start

    def _near(self, place: Offset, height: float, reach: float) -> Offset:
        """The offset after an indexed position, if one is near; otherwise the offset itself."""
        point = self.point_before(place + 1)
        if point is not None and abs(self.height(point.last_offset) - height) <= reach:
            return point.last_offset + 1
        return place

    def point_before(self, offset: Offset) -> IndexPoint | None:
        """The last indexed position before an offset."""
        after = bisect_right(self.points, offset - 1, key=lambda point: point.last_offset)
        return self.points[after - 1] if after else None


def _no_longer_than(borders: Sequence[Offset], records_max: int) -> list[Offset]:
    result = [borders[0]]
    for start, stop in pairwise(borders):
        parts = ceil((stop - start) / records_max)
        result += [start + (stop - start) * each // parts for each in range(1, parts + 1)]
    return result


def count_tasks(ranges: Sequence[SizedRange], tasks_min: int | None, cores: int) -> list[int]:
    """Number of tasks of each range: by size, and enough in total to occupy all processors."""
    counts = [max(1, round(sized.bytes / TASK_BYTES)) for sized in ranges]
    total = sum(sized.bytes for sized in ranges)
    wanted = min(cores, int(total / TASK_BYTES_MIN)) if tasks_min is None else tasks_min
    if sum(counts) < wanted:
        counts = [
            max(count, ceil(wanted * sized.bytes / total))
            for sized, count in zip(ranges, counts, strict=True)
        ]
    return counts
