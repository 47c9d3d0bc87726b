"""A batch read: from the starting to the ending offsets, resolved when it is planned."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.base.ids import Offset, TopicPartition
from penstock.spark.reading.fetch import read_task, report_loss
from penstock.spark.reading.offsets import (
    earliest_offsets,
    find_partitions,
    latest_offsets,
    open_cluster,
    resolve,
)
from penstock.spark.reading.options import START_EARLIEST, STOP_LATEST, LimitKind, SourceOptions
from penstock.spark.reading.plan import OffsetRange, RangeTask, plan
from penstock.spark.worker import settle

if TYPE_CHECKING:
    from penstock.spark.reading.typed_rows import TypedRows


class BatchReader(DataSourceReader):
    def __init__(
        self, columns: Sequence[str], options: SourceOptions, typed: "TypedRows | None" = None
    ) -> None:
        self._columns = columns
        self._typed = typed
        self._options = options

    def partitions(self) -> list[InputPartition]:
        settle()
        return list(plan_batch(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(partition, self._columns, self._options, self._typed)


def read_rows(
    partition: InputPartition,
    columns: Sequence[str],
    options: SourceOptions,
    typed: "TypedRows | None" = None,
) -> Iterator[pa.RecordBatch]:
    settle()
    if isinstance(partition, RangeTask):
        batches = read_task(partition, columns, options)
        return batches if typed is None else typed.of(batches)
    return iter(())  # Spark's placeholder for a plan without tasks


def plan_batch(options: SourceOptions) -> list[RangeTask]:
    """The tasks of a batch; none if there are no records."""
    with open_cluster(options) as cluster:
        there = find_partitions(cluster, options.subscription).require_all().partitions
        start, stop = options.start or START_EARLIEST, options.stop or STOP_LATEST
        level = options.isolation_level
        starts = resolve(cluster, there, start, isolation_level=level, no_match=options.no_match)
        stops = resolve(cluster, there, stop, isolation_level=level)
        given = [limit for limit in (start, stop) if limit.edge is LimitKind.OFFSETS]
        if given:
            firsts = earliest_offsets(cluster, there)
            lasts = latest_offsets(cluster, there, level)
            starts = within(starts, firsts, lasts, start.option, options)
            stops = within(stops, firsts, lasts, stop.option, options)
    ranges = [OffsetRange(each, starts[each], stops[each]) for each in there]
    return plan(ranges, there, tasks_min=options.tasks_min, task_rows_max=options.task_rows_max)


def within(
    offsets: Mapping[TopicPartition, Offset],
    firsts: Mapping[TopicPartition, Offset],
    lasts: Mapping[TopicPartition, Offset],
    option: str,
    options: SourceOptions,
) -> dict[TopicPartition, Offset]:
    """The requested offsets; those outside of the log are limited to it, or an error, by `failOnDataLoss`."""
    found = {}
    for partition, offset in offsets.items():
        first, last = firsts[partition], lasts[partition]
        if not first <= offset <= last:
            report_loss(
                f"option {option} has offset {offset} for {partition}, which has {first} to {last}",
                is_error=options.fails_on_data_loss,
            )
        found[partition] = min(max(offset, first), last)
    return found
