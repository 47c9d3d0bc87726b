"""`option("path", DIR)`: reads the source's columns from segment files, without a broker.

The driver reads the state of the files once and plans tasks of about the same size. Executors read the files, which
they need under the same path: on a Spark cluster, on a shared disk.

A scan reads all records from the log start offset to the last complete batch. That may be more than consumers see,
because the files do not contain the current high watermark. With `isolation.level` set to `read_committed`, it ends at
the first open transaction and skips aborted records.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.arrow.scan.log_dirs import HIDDEN_TOPICS, LogLocation, find_logs
from penstock.arrow.scan.log_files import LogView, data_loss, with_view
from penstock.arrow.scan.read_range import ScanRange, log, read_range
from penstock.arrow.scan.task_ranges import SizedRange, TaskRange, count_tasks
from penstock.arrow.scan.transaction_outcomes import AbortedRange, TransactionOutcomes, replay_transactions
from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.client.offsets import READ_COMMITTED
from penstock.spark.errors import BadOption
from penstock.spark.options import INT32_MAX, OptionValues
from penstock.spark.reading.offsets import check_complete
from penstock.spark.reading.option_names import LIMITS, TYPED_NAMES
from penstock.spark.reading.options import (
    NEWEST,
    OLDEST,
    START_EARLIEST,
    STOP_LATEST,
    Limit,
    LimitKind,
    NoMatch,
    Subscription,
    SubscriptionKind,
    check_range,
    read_isolation_level,
    read_limit,
    read_no_match,
    read_subscription,
)
from penstock.spark.schema import wanted_columns
from penstock.spark.worker import settle
from penstock.storage.errors import CorruptLog
from penstock.vfs import RealDisk, Vfs

if TYPE_CHECKING:
    from penstock.spark.reading.typed_rows import TypedRows

_NAMES: Final = f"""
path subscribe subscribePattern assign {LIMITS}
minPartitions maxRecordsPerPartition failOnDataLoss includeHeaders isolation.level kafka.isolation.level
"""


def scan_reader(
    schema: StructType, options: Mapping[str, str], typed: "TypedRows | None" = None
) -> DataSourceReader:
    """The reader for the option `path`."""
    columns = wanted_columns(schema) if typed is None else typed.columns
    return ScanReader(columns, read_scan_options(options), typed=typed)


# -- options ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScanOptions:
    path: str
    subscription: Subscription | None = None
    """None for all topics except internal ones."""
    start: Limit = START_EARLIEST
    stop: Limit = STOP_LATEST
    no_match: NoMatch = NoMatch.ERROR
    tasks_min: int | None = None
    task_rows_max: int | None = None
    fails_on_data_loss: bool = True
    is_committed: bool = False


def read_scan_options(options: Mapping[str, str]) -> ScanOptions:
    known = {name.lower() for name in (*_NAMES.split(), *TYPED_NAMES)}
    for name in options:
        if name.lower() not in known:
            raise BadOption(f"option {name} does not apply with path, which reads files without a broker")
    values = OptionValues(options)
    path = (values.text("path") or "").strip()
    if not path:
        raise BadOption("option path is empty, expected a directory")
    has_topics = any(values.text(by) is not None for by in SubscriptionKind)
    found = ScanOptions(
        path,
        subscription=read_subscription(options) if has_topics else None,
        start=read_limit(options, "starting") or START_EARLIEST,
        stop=read_limit(options, "ending") or STOP_LATEST,
        no_match=read_no_match(options),
        tasks_min=values.count("minPartitions", INT32_MAX),
        task_rows_max=values.count("maxRecordsPerPartition"),
        fails_on_data_loss=values.flag("failOnDataLoss", True),
        is_committed=read_isolation_level(options) == READ_COMMITTED,
    )
    check_range(found.start, found.stop)
    return found


# -- the reader -------------------------------------------------------------------------------------------


class ScanTask(InputPartition):
    def __init__(self, span: ScanRange) -> None:
        super().__init__(None)
        self.span = span


class ScanReader(DataSourceReader):
    def __init__(
        self,
        columns: Sequence[str],
        options: ScanOptions,
        vfs: Vfs | None = None,
        typed: "TypedRows | None" = None,
    ) -> None:
        self.columns = columns
        self.typed = typed
        self.options = options
        self.vfs = RealDisk() if vfs is None else vfs

    def partitions(self) -> list[InputPartition]:
        settle()
        return [ScanTask(span) for span in plan_scan(self.vfs, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        if not isinstance(partition, ScanTask):
            return iter(())  # Spark's placeholder for a plan without tasks
        batches = read_range(
            self.vfs, partition.span, self.columns, fails_on_data_loss=self.options.fails_on_data_loss
        )
        return batches if self.typed is None else self.typed.of(batches)


# -- plan -------------------------------------------------------------------------------------------------


def plan_scan(vfs: Vfs, options: ScanOptions) -> list[ScanRange]:
    """Plan the tasks for a path."""
    chosen = _choose(find_logs(vfs, options.path), options.subscription, options.path)
    for limit in (options.start, options.stop):
        check_complete([each.partition for each in chosen], limit)
    parts = [part for each in chosen if (part := _part(vfs, each, options)) is not None]
    counts = count_tasks([part.sized for part in parts], options.tasks_min, os.cpu_count() or 1)
    return [
        ScanRange(part.location, *piece, aborted=_within(part.aborted, piece))
        for part, count in zip(parts, counts, strict=True)
        for piece in part.sized.cut(count, options.task_rows_max)
    ]


class _Part(NamedTuple):
    """The range of a partition."""

    location: LogLocation
    sized: SizedRange
    aborted: tuple[AbortedRange, ...]


def _part(vfs: Vfs, location: LogLocation, options: ScanOptions) -> _Part | None:
    def look(view: LogView) -> _Part | None:
        outcomes = replay_transactions(vfs, view) if options.is_committed else None
        start, stop = _bounds(view, outcomes, options)
        if start >= stop:
            return None
        aborted = () if outcomes is None else outcomes.aborted(start, stop)
        return _Part(location, SizedRange(vfs, view, start, stop), aborted)

    try:
        return with_view(vfs, location, look)
    except CorruptLog as error:
        raise KafkaError(f"partition {location.partition} cannot be read: {error}") from error


def _within(aborted: tuple[AbortedRange, ...], piece: TaskRange) -> tuple[AbortedRange, ...]:
    return tuple(
        each for each in aborted if each.last_offset >= piece.start and each.first_offset < piece.stop
    )


def _choose(found: list[LogLocation], wanted: Subscription | None, path: str) -> list[LogLocation]:
    """The requested partitions; named ones must exist."""
    if wanted is None:
        is_one = len(found) == 1 and path.rstrip("/").endswith(str(found[0].partition))
        return [each for each in found if is_one or each.partition.topic not in HIDDEN_TOPICS]
    if wanted.by is SubscriptionKind.PATTERN:
        pattern = re.compile(wanted.pattern)
        return [
            each
            for each in found
            if each.partition.topic not in HIDDEN_TOPICS and pattern.fullmatch(each.partition.topic)
        ]
    topics = {each.partition.topic for each in found}
    partitions = {each.partition for each in found}
    missing = [f"topic {each}" for each in wanted.topics if each not in topics]
    missing += [f"partition {each}" for each in wanted.partitions if each not in partitions]
    if missing:
        raise BadOption(f"option {wanted.by} names {', '.join(missing)}, which {path} does not have")
    return [
        each for each in found if each.partition.topic in wanted.topics or each.partition in wanted.partitions
    ]


def _bounds(
    view: LogView, outcomes: TransactionOutcomes | None, options: ScanOptions
) -> tuple[Offset, Offset]:
    """Start and end of the range of a partition."""
    end = view.log_end if outcomes is None else outcomes.last_stable
    start = _resolve(view, options.start, end, options.no_match)
    stop = _resolve(view, options.stop, end, NoMatch.LATEST)
    if start < view.log_start or start > view.log_end:
        what = (
            f"{options.start.option} is {start}, but the log has offsets {view.log_start} to {view.log_end}"
        )
        _lost(view, what, options)
    if stop > view.log_end:
        _lost(view, f"{options.stop.option} is {stop}, but the log ends at {view.log_end}", options)
    return max(start, view.log_start), min(stop, end)


def _resolve(view: LogView, limit: Limit, end: Offset, no_match: NoMatch) -> Offset:
    partition = view.location.partition
    if limit.edge is LimitKind.EARLIEST:
        return view.log_start
    if limit.edge is LimitKind.LATEST:
        return end
    if limit.edge is LimitKind.OFFSETS:
        offset = limit.values[partition]
        return {OLDEST: view.log_start, NEWEST: end}.get(offset, offset)
    time_ms = limit.values[partition] if limit.edge is LimitKind.TIMES else limit.time_ms
    found = view.segments.find_timestamp(time_ms, view.log_start)
    if found is None and no_match is NoMatch.ERROR:
        raise BadOption(
            f"option {limit.option}: partition {partition} has no record at or after {time_ms} ms; "
            "startingOffsetsByTimestampStrategy=latest starts at its end then"
        )
    return end if found is None else found.offset


def _lost(view: LogView, what: str, options: ScanOptions) -> None:
    error = data_loss(view.location, what)
    if options.fails_on_data_loss:
        raise error
    log.warning("%s; failOnDataLoss is false, so the rest is read", error)
