"""The reports of pipelines, as this node knows them: a view of a compacted topic that any broker may lead.

The view is read when it is asked for: the first time from the start of the topic, later from where it was left, so it
costs nothing while no client asks. Requests at the same time share one read. Reports are kept as bytes, at most
`PIPELINES_MAX` and `BYTES_MAX` of them; beyond that those written longest ago are dropped. Records that are not
reports are passed over.
"""

import logging
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.base.pipeline_report import PIPELINES_TOPIC, REPORT_BYTES_MAX, PipelineReport, read_report
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps, next_tick
from penstock.gateway.peer_rpc.routed_partition import RoutedWalk, find_partition, look_up_bounds
from penstock.gateway.shared.reading import RECORDS_A_SLICE
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic
from penstock.records import Record

logger = logging.getLogger(__name__)

PIPELINES_MAX: Final = 500
BYTES_MAX: Final = 8 * 2**20


class _Report(NamedTuple):
    value: bytes
    written_ms: TimestampMs


class PipelineView:
    """Part of the `Gateway`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic_id: Uuid | None = None
        self._positions: dict[int, Offset] = {}
        """The next offset to read, by partition."""
        self._reports: dict[bytes, _Report] = {}
        """By name of the pipeline; the one written last is the last."""
        self._size = 0
        """Bytes of all reports."""
        self._reading: RunningSteps[None] | None = None
        self._is_reading = False
        self._begun = self._done = 0
        """Reads that were begun, and the last that succeeded. A call needs one that begins after it."""
        self._waiting: list[Promise[None]] = []
        """Calls that wait for the read."""

    def start(self) -> None:
        """Nothing is read before the first call."""

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def reports(self) -> Steps[list[PipelineReport]]:
        """The last report of each pipeline, in order of name. Raises if the topic cannot be read."""
        yield from self._catch_up()
        found = []
        for key, each in sorted(self._reports.items()):
            report = read_report(key, each.value, each.written_ms, self._context.world.now_ms())
            if report is not None:
                found.append(report)
            yield next_tick(self._context.world)
        return found

    def find(self, pipeline: str) -> Steps[PipelineReport]:
        yield from self._catch_up()
        key = pipeline.encode(errors="surrogatepass")
        each = self._reports.get(key)
        found = None
        if each is not None:
            found = read_report(key, each.value, each.written_ms, self._context.world.now_ms())
        if found is None:
            raise KafkaError(
                f"no pipeline {pipeline!r} reports to this cluster", ErrorCode.RESOURCE_NOT_FOUND
            )
        return found

    # -- reading -------------------------------------------------------------------------------------------

    def _catch_up(self) -> Steps[None]:
        """Read what was written before this call."""
        wanted = self._begun + 1
        while self._done < wanted:
            waiting: Promise[None] = Promise()
            self._waiting.append(waiting)
            if not self._is_reading:
                self._begin()
            yield waiting

    def _begin(self) -> None:
        self._begun += 1
        number = self._begun
        self._is_reading = True

        def over(error: Exception | None) -> None:
            self._is_reading = False
            if error is None:
                self._done = number
            elif not isinstance(error, KafkaError):
                logger.error("topic %s cannot be read", PIPELINES_TOPIC, exc_info=error)
                error = KafkaError(f"topic {PIPELINES_TOPIC} cannot be read: {type(error).__name__}")
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if error is None:
                    each.resolve(None)
                else:
                    each.fail(error)

        self._reading = RunningSteps(self._read(), lambda _: over(None), over)

    def _read(self) -> Steps[None]:
        context = self._context
        topic: Topic | None = context.image.topics.get(PIPELINES_TOPIC)
        if topic is None or topic.id != self._topic_id:
            self._positions.clear()
            self._reports.clear()
            self._size = 0
            self._topic_id = None if topic is None else topic.id
        if topic is None:
            return
        partitions = [find_partition(context, topic.name, number) for number in sorted(topic.partitions)]
        yield from look_up_bounds(context, partitions)
        for partition in partitions:
            start = max(self._positions.get(partition.number, 0), partition.log_start)
            walk = RoutedWalk(context, partition, start, partition.last_stable)
            try:
                while not walk.is_over:
                    yield from walk.prepare()
                    for record in walk.some(RECORDS_A_SLICE):
                        self._take(record)
                    self._positions[partition.number] = walk.position
                    yield next_tick(context.world)
            finally:
                walk.release()

    def _take(self, record: Record) -> None:
        key = bytes(record.key or b"")
        known = self._reports.pop(key, None)
        if known is not None:
            self._size -= len(known.value)
        value = record.value
        if not key or value is None or len(value) > REPORT_BYTES_MAX:
            return
        self._reports[key] = _Report(bytes(value), record.timestamp)
        self._size += len(value)
        while len(self._reports) > PIPELINES_MAX or self._size > BYTES_MAX:
            oldest = next(iter(self._reports))
            self._size -= len(self._reports.pop(oldest).value)
