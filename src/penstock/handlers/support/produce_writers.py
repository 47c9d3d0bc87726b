"""Staged batches that wait for the acknowledgement their producer requested, and their replies."""

from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import NEVER_MS, Offset, TimestampMs
from penstock.base.metrics import Meter
from penstock.base.promise import Promise
from penstock.handlers.support.context import Session
from penstock.records import InvalidBatch
from penstock.replica import Partition
from penstock.storage import Appended
from penstock.wire import (
    Piece,
    ProduceRequest,
    ProduceResult,
    RecordError,
    RequestHeader,
    TopicKey,
    produce_reply,
    produce_reply_one,
)

Reply = list[Piece]


class SinglePartitionProduce(Promise[Reply]):
    """A request for one partition: a `DelayedProduce` and the promise of its reply, in one object."""

    __slots__ = (
        "acks",
        "appended",
        "correlation_id",
        "deadline_ms",
        "meter",
        "partition",
        "topic",
        "version",
    )

    def __init__(
        self,
        meter: Meter,
        version: int,
        correlation_id: int,
        topic: TopicKey,
        partition: Partition,
        appended: Appended,
        acks: int,
        deadline_ms: TimestampMs,
    ) -> None:
        self.is_settled = False
        self._on_value = self._on_error = self.error = None
        self.request_start = None
        self.meter = meter
        self.version = version
        self.correlation_id = correlation_id
        self.topic = topic
        self.partition = partition
        self.appended = appended
        self.acks = acks
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        partition = self.partition
        if error is not None:
            reply = refusal(
                self.meter, self.version, self.correlation_id, self.topic, partition.number, error
            )
        else:
            appended = self.appended
            reply = produce_reply_one(
                self.version,
                self.correlation_id,
                self.topic,
                partition.number,
                appended.base_offset,
                partition.log.log_start,
                appended.append_time,
            )
        self.resolve([reply])


class AcksOneReply(NamedTuple):
    """The reply to a batch with acks=1. It is built when the batch is staged, and sent after the tick's writes. If the
    write fails, the reply is overwritten in place with the error."""

    last_offset: Offset
    reply: bytearray
    meter: Meter
    version: int
    correlation_id: int
    topic: TopicKey
    number: int

    def settle(self, error: KafkaError | None) -> None:
        if error is not None:
            self.reply[:] = refusal(
                self.meter, self.version, self.correlation_id, self.topic, self.number, error
            )


class Unanswered:
    """A batch with acks=0. An error closes the connection."""

    __slots__ = ("acks", "appended", "deadline_ms", "session")

    def __init__(self, session: Session, appended: Appended) -> None:
        self.session = session
        self.appended = appended
        self.acks = 0
        self.deadline_ms = NEVER_MS

    def settle(self, error: KafkaError | None) -> None:
        if error is not None:
            self.session.end(str(error))


class ProduceResults:
    """The results of a request for several partitions: its reply is sent when the last is known."""

    def __init__(self, meter: Meter, header: RequestHeader, request: ProduceRequest) -> None:
        self.later: Promise[Reply] = Promise()
        self.meter = meter
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._results: list[tuple[TopicKey, list[ProduceResult]]] = [
            (topic, [ProduceResult(each.partition) for each in partitions])
            for topic, partitions in request.topics
        ]
        self.count = self._open = sum(len(partitions) for _, partitions in self._results)

    def settled(self, row: tuple[int, int], result: ProduceResult) -> None:
        self._results[row[0]][1][row[1]] = result
        self._open -= 1
        if not self._open:
            self.later.resolve([produce_reply(self._version, self._correlation_id, self._results)])


class PartitionOfProduce:
    __slots__ = ("acks", "appended", "deadline_ms", "partition", "row", "whole")

    def __init__(
        self,
        whole: ProduceResults,
        row: tuple[int, int],
        partition: Partition,
        appended: Appended,
        acks: int,
        deadline_ms: TimestampMs,
    ) -> None:
        self.whole = whole
        self.row = row
        self.partition = partition
        self.appended = appended
        self.acks = acks
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        partition = self.partition
        if error is not None:
            self.whole.settled(self.row, failed(self.whole.meter, partition.number, error))
            return
        result = ProduceResult(
            partition.number,
            0,
            self.appended.base_offset,
            self.appended.append_time,
            partition.log.log_start,
        )
        self.whole.settled(self.row, result)


def refusal(
    meter: Meter, version: int, correlation_id: int, topic: TopicKey, number: int, error: KafkaError
) -> bytes:
    return produce_reply(version, correlation_id, [(topic, [failed(meter, number, error)])])


def failed(meter: Meter, number: int, error: KafkaError) -> ProduceResult:
    """The result of a rejected batch, with the records at fault if known (KIP-467). The meter counts the error."""
    meter.fail(error.code)
    faults = error.record_errors if isinstance(error, InvalidBatch) else ()
    return ProduceResult(
        number,
        error.code,
        record_errors=[RecordError(index, why) for index, why in faults],
        error_message=str(error),
    )
