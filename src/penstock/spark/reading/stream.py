"""The stream reader: plans micro-batches from new records, and detects lost ones.

One process on the driver holds this reader for the life of a query. Spark calls:

    initialOffset    the start of a query without a checkpoint
    latestOffset     the end of the next batch; equal to the start if there is nothing new
    partitions       the tasks of a batch
    commit           a batch is done; called only when the next batch starts
    read             on the executors

Offsets are JSON, `{"topic": {"0": 12}}`, the next offset of each partition. A partition that is not in the start is
new, and is read from its start.

Spark stores only the ends of batches in the checkpoint; the start of a batch is the end of the previous one. The first
batch has no previous one: replayed after a crash, it would start at the current `initialOffset`, and with
`latest` records would be lost. So the end of the first batch includes its start, under a key that no topic can have.

Every start that Spark passes is processed and in the checkpoint, so it is committed to the group. `commit`
would not be enough: Spark calls it when the next batch starts, so never for the last batch of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.base.ids import Offset, TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.spark.errors import BadOption
from penstock.spark.reading.batch import read_rows, within
from penstock.spark.reading.fetch import report_loss
from penstock.spark.reading.group import Position, group_of
from penstock.spark.reading.offset_json import SCHEMAS_KEY, START_KEY, offsets_of, write_offsets
from penstock.spark.reading.offsets import (
    SubscribedPartitions,
    earliest_offsets,
    find_partitions,
    latest_offsets,
    open_cluster,
    resolve,
)
from penstock.spark.reading.options import START_LATEST, LimitKind, SourceOptions
from penstock.spark.reading.plan import OffsetRange, plan
from penstock.spark.reading.rate import delays, share
from penstock.spark.reading.tail import Tail

if TYPE_CHECKING:
    from penstock.spark.reading.typed_rows import TypedRows

Offsets = dict[TopicPartition, Offset]

IDLE_WAIT_MS: Final = 200
"""How long latestOffset waits for new records."""

FOUND_AGE_MS_MAX: Final = 1_000
"""Maximum age of the list of partitions while the query is idle; a batch is planned with a new one."""

LIST_WAIT_MS: Final = 5_000
"""How long to retry ListOffsets before checking that the partitions still exist."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        columns: Sequence[str],
        options: SourceOptions,
        typed: "TypedRows | None" = None,
    ) -> None:
        """Opens no connection: executors create readers too."""
        self._columns = columns
        self._typed = typed
        self._pins = {} if typed is None or not typed.pins else {SCHEMAS_KEY: typed.pins}
        """Part of every offset: a restart compares them."""
        self._options = options
        self._opened: Cluster | None = None
        self._tail: Tail | None = None
        self._position: Position | None = None
        self._initial: Offsets | None = None
        self._targets: Offsets | None = None
        """With Trigger.AvailableNow: the end of each partition when the query started."""
        self._latest: Offsets | None = None
        self._found: SubscribedPartitions | None = None
        self._found_at_ms = 0.0
        self._triggered_ms: float | None = None

    # -- called by Spark -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Spark calls this twice for a first batch, so the result is kept."""
        if self._initial is None:
            self._initial = self._starts()
        return {**self._pins, **write_offsets(self._initial)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark accepts one limit from a Python source: the maximum. latestOffset applies the minimum."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.rows_min is not None:
            return ReadMinRows(self._options.rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._targets = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._check_pins(start)
        begin = offsets_of(_without_start(start), "the start of a batch")
        is_first = self._latest is None and START_KEY not in start and begin == self._initial
        self._commit(begin)
        latest = self._targets if self._targets is not None else self._ends(is_idle=self._latest == begin)
        if latest == begin and self._targets is None and not is_first:
            self._wait(latest)
            latest = self._ends(is_idle=True)
        self._latest = latest
        _check(begin, latest, self._options)
        end = begin if latest == begin else self._limited(begin, latest, limit)
        if is_first:
            # Spark runs a first batch even if it is empty, and the checkpoint needs its start.
            return {**self._pins, START_KEY: write_offsets(begin), **write_offsets(end)}
        return start if end == begin else {**self._pins, **write_offsets(end)}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Without a request: Spark calls this as often as latestOffset."""
        return {**self._pins, **write_offsets(self._latest)} if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check_pins(end)
        begin = offsets_of(end.get(START_KEY) or _without_start(start), "the start of a batch")
        stop = offsets_of(_without_start(end), "the end of a batch")
        ranges = self._ranges(begin, stop)
        if not ranges:
            return []
        there = self._find().partitions
        return plan(
            ranges, there, tasks_min=self._options.tasks_min, task_rows_max=self._options.task_rows_max
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(partition, self._columns, self._options, self._typed)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(offsets_of(_without_start(end), "the end of a batch"))

    def stop(self) -> None:
        for each in (self._opened, self._tail, self._position):
            if each is not None:
                each.close()

    def _check_pins(self, offset: dict[str, Any]) -> None:
        """Raise BadOption if the query was started with other versions of schemas."""
        for side, was in offset.get(SCHEMAS_KEY, {}).items():
            now = self._pins.get(SCHEMAS_KEY, {}).get(side)
            if now != was:
                raise BadOption(
                    f"the query was started with version {was.get('version')} of subject {was.get('subject')}, and "
                    "now has "
                    f"{'another schema' if now is None else 'version ' + str(now['version'])} for its {side}s: "
                    f"set the option {side}.schema.version to {was.get('version')}, or begin with a new checkpoint"
                )

    # -- partitions ------------------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
        if self._opened is None:
            self._opened = open_cluster(self._options)
        return self._opened

    def _starts(self) -> Offsets:
        options = self._options
        there = self._find().require_all().partitions
        limit = options.start or START_LATEST
        level = options.isolation_level
        starts = resolve(self._cluster, there, limit, isolation_level=level, no_match=options.no_match)
        if limit.edge is LimitKind.OFFSETS:
            firsts = earliest_offsets(self._cluster, there)
            starts = within(
                starts, firsts, latest_offsets(self._cluster, there, level), limit.option, options
            )
        return starts

    def _find(self, age_ms_max: float = 0.0) -> SubscribedPartitions:
        now_ms = self._cluster.clock.now_ms()
        if self._found is None or now_ms - self._found_at_ms >= age_ms_max:
            self._found = find_partitions(self._cluster, self._options.subscription)
            self._found_at_ms = now_ms
        return self._found

    def _ends(self, *, is_idle: bool = False) -> Offsets:
        """The ends of partitions. The list is refreshed if one was deleted meanwhile."""
        clock = self._cluster.clock
        deadline_ms = clock.now_ms() + self._options.client.api_timeout_ms
        found = self._find(FOUND_AGE_MS_MAX if is_idle else 0.0)
        while True:
            left_ms = max(1.0, deadline_ms - clock.now_ms())
            try:
                return latest_offsets(
                    self._cluster,
                    found.partitions,
                    self._options.isolation_level,
                    timeout_ms=min(LIST_WAIT_MS, left_ms),
                )
            except ClientError:
                again = self._find()
                if again == found and clock.now_ms() >= deadline_ms:
                    raise
                found = again

    def _wait(self, ends: Offsets) -> None:
        if self._tail is None:
            self._tail = Tail(open_cluster(self._options), self._options.isolation_level)
        self._tail.wait(ends, IDLE_WAIT_MS)

    def _commit(self, offsets: Offsets) -> None:
        if self._position is None:
            group = group_of(self._options)
            if group is None:
                return
            self._position = Position(group, self._options)
        self._position.commit(offsets)

    # -- batches ---------------------------------------------------------------------------------------

    def _limited(self, begin: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        """The end of this batch."""
        if isinstance(limit, ReadAllAvailable):
            return latest
        new = earliest_offsets(self._cluster, latest.keys() - begin.keys())
        known = begin | new
        if self._targets is None and self._options.rows_min is not None:
            now_ms = self._cluster.clock.now_ms()
            since_ms = None if self._triggered_ms is None else now_ms - self._triggered_ms
            if delays(known, latest, self._options.rows_min, since_ms, self._options.trigger_delay_ms_max):
                self._wait(latest)
                return begin
            self._triggered_ms = now_ms
        return share(limit.max_rows, known, latest) if isinstance(limit, ReadMaxRows) else latest

    def _ranges(self, begin: Offsets, stop: Offsets) -> list[OffsetRange]:
        options = self._options
        _check(begin, stop, options)
        again = {each for each, offset in stop.items() if offset < begin.get(each, 0)}
        new = stop.keys() - begin.keys()
        firsts = earliest_offsets(self._cluster, new | again)
        for each in sorted(new):
            if firsts[each] > 0:
                report_loss(
                    f"new partition {each} starts at offset {firsts[each]} and not at 0: earlier records are gone",
                    is_error=options.fails_on_data_loss,
                )
        starts = {**begin, **firsts}
        return [
            OffsetRange(each, starts[each], stop[each]) for each in sorted(stop) if starts[each] < stop[each]
        ]


def _check(
    begin: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset], options: SourceOptions
) -> None:
    """Report data loss: a log that ends before the position of the query, or a partition that no longer exists."""
    gone = [str(each) for each in sorted(begin.keys() - end.keys())]
    if gone:
        report_loss(
            f"partitions that were read no longer exist: {', '.join(gone)}; records may have been missed",
            is_error=options.fails_on_data_loss,
        )
    for each in sorted(begin.keys() & end.keys()):
        if end[each] < begin[each]:
            report_loss(
                f"partition {each} was read up to offset {begin[each]}, but now ends at {end[each]}; "
                "records may have been missed",
                is_error=options.fails_on_data_loss,
            )


def _without_start(parsed: dict[str, Any]) -> dict[str, Any]:
    return {topic: inner for topic, inner in parsed.items() if topic not in (START_KEY, SCHEMAS_KEY)}
