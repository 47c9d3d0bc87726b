"""Cutting ranges of offsets into tasks of about the same size.

How many bytes lie below an offset is a curve: it goes up by each segment's size from one segment to the next, and
inside a large segment by what its index says. A range is cut where the curve is at equal parts of its height, and
moved to a place that the index knows if one is near: a task that begins there need not search.

Cuts are only offsets. Where an index lies, tasks are of unequal size, and what they read is the same.
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
"""Of log for a task, about, where nothing else is asked for: a task takes some 75 ms to begin, and ten times as long
to read so much."""
TASK_BYTES_MIN: Final = 64 << 20
"""No task is smaller for want of tasks for all processors: beginning it would take as long as reading it."""


class TaskRange(NamedTuple):
    """What one task reads of a partition."""

    start: Offset
    stop: Offset
    start_point: IndexPoint | None
    """The last known place before start."""
    stop_point: IndexPoint | None
    """The last known place before stop."""


class SizedRange:
    """Bytes below an offset, of one partition between two offsets."""

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
        """About how much there is to read."""
        return max(self.height(self.stop) - self.height(self.start), 1.0)

    def cut(self, count: int, records_max: int | None) -> list[TaskRange]:
        """So many pieces, fewer where there are not as many offsets; more where one would be too long."""
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
            TaskRange(start, stop, self._point_before(start), self._point_before(stop))
            for start, stop in pairwise(borders)
        ]

    def _near(self, place: Offset, height: float, reach: float) -> Offset:
        """The offset behind a known place, if one is within reach; else the place itself."""
        point = self._point_before(place + 1)
        if point is not None and abs(self.height(point.last_offset) - height) <= reach:
            return point.last_offset + 1
        return place

    def _point_before(self, offset: Offset) -> IndexPoint | None:
        after = bisect_right(self.points, offset - 1, key=lambda point: point.last_offset)
        return self.points[after - 1] if after else None


def _no_longer_than(borders: Sequence[Offset], records_max: int) -> list[Offset]:
    result = [borders[0]]
    for start, stop in pairwise(borders):
        parts = ceil((stop - start) / records_max)
        result += [start + (stop - start) * each // parts for each in range(1, parts + 1)]
    return result


def count_tasks(ranges: Sequence[SizedRange], tasks_min: int | None, cores: int) -> list[int]:
    """How many pieces each partition is cut into: by size, and so many in all that no processor is idle."""
    counts = [max(1, round(sized.bytes / TASK_BYTES)) for sized in ranges]
    total = sum(sized.bytes for sized in ranges)
    wanted = min(cores, int(total / TASK_BYTES_MIN)) if tasks_min is None else tasks_min
    if sum(counts) < wanted:
        counts = [
            max(count, ceil(wanted * sized.bytes / total))
            for sized, count in zip(ranges, counts, strict=True)
        ]
    return counts
