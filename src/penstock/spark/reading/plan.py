"""Splits ranges of offsets into tasks.

A partition is one task, as in Spark's source, unless more or smaller tasks are requested:

    maxRecordsPerPartition=40   [0..100)           ->  [0..33) [33..66) [66..100)
    minPartitions=4             [0..30) [0..100)   ->  [0..30) [0..33) [33..66) [66..100)

Sizes are in offsets: a compacted partition, or one with transactions, has fewer records.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from penstock.base.ids import Offset, TopicPartition, Uuid

TASKS_MAX = 100_000
"""More tasks than this for one batch are a mistake in an option, and would overload the driver."""


class OffsetRange(NamedTuple):
    partition: TopicPartition
    start: Offset
    stop: Offset
    """First offset that is not read."""

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.stop})"


class RangeTask(InputPartition):
    """The range of one task. Small and picklable; the topic id reveals whether the topic was recreated."""

    def __init__(self, span: OffsetRange, topic_id: Uuid | None) -> None:
        super().__init__(None)
        self.span = span
        self.topic_id = topic_id


def plan(
    ranges: Iterable[OffsetRange],
    topic_ids: Mapping[TopicPartition, Uuid | None],
    *,
    tasks_min: int | None = None,
    task_rows_max: int | None = None,
) -> list[RangeTask]:
    cut = split([each for each in ranges if each.size > 0], tasks_min, task_rows_max)
    return [RangeTask(each, topic_ids.get(each.partition)) for each in cut]


def split(
    ranges: Sequence[OffsetRange], tasks_min: int | None = None, task_rows_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges that are too long, then the longest ones until there are about `minPartitions`."""
    pieces = list(ranges)
    if task_rows_max is not None:
        count = sum(-(-each.size // task_rows_max) for each in ranges)
        rows_max = task_rows_max if count <= TASKS_MAX else -(-sum(each.size for each in ranges) // TASKS_MAX)
        pieces = [part for each in ranges for part in _cut(each, -(-each.size // rows_max))]
    if tasks_min is None or len(pieces) >= tasks_min:
        return pieces
    tasks_min = min(tasks_min, TASKS_MAX)
    total = sum(each.size for each in pieces)
    # Ranges that stay whole are left out of the division, because many short ranges would keep long ones long.
    whole = {each for each in pieces if _share(each.size, total, tasks_min) == 1}
    total -= sum(each.size for each in whole)
    left = max(1, tasks_min - len(whole))
    return [
        part
        for each in pieces
        for part in ([each] if each in whole else _cut(each, _share(each.size, total, left)))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    return max(1, (2 * size * tasks + total) // (2 * total))  # rounded


def _cut(span: OffsetRange, count: int) -> list[OffsetRange]:
    """Split into parts that differ by at most one; no part is empty."""
    count = max(1, min(count, span.size))
    edges = [span.start + span.size * index // count for index in range(count + 1)]
    return [OffsetRange(span.partition, edges[index], edges[index + 1]) for index in range(count)]
