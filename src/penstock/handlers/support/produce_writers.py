"""Batches that were staged for a producer, each waiting for as much as the producer asked for, and their answers."""

from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs
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

_NEVER_MS: TimestampMs = 2**63 - 1
"""The deadline of a batch that nobody waits for."""

Reply = list[Piece]


class DelayedProduce(Promise[Reply]):
    """A request for a single partition, which is nearly every request there is; and its answer, in one object."""

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
        self.asked = None
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


class Foretold(NamedTuple):
    """The reply to a batch that is acknowledged when it is written: made at once, it leaves when the turn ends, after
    the write. Should that fail, the reply is made into a refusal where it lies."""

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
    """A batch whose producer wants no answer; it hears of an error by the end of its connection."""

    __slots__ = ("acks", "appended", "deadline_ms", "session")

    def __init__(self, session: Session, appended: Appended) -> None:
        self.session = session
        self.appended = appended
        self.acks = 0
        self.deadline_ms = _NEVER_MS

    def settle(self, error: KafkaError | None) -> None:
        if error is not None:
            self.session.end(str(error))


class ProduceResults:
    """A request for several partitions: answered when the last of them is settled."""

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

    def settled(self, place: tuple[int, int], result: ProduceResult) -> None:
        self._results[place[0]][1][place[1]] = result
        self._open -= 1
        if not self._open:
            self.later.resolve([produce_reply(self._version, self._correlation_id, self._results)])


class DelayedPartitionProduce:
    __slots__ = ("acks", "appended", "deadline_ms", "partition", "place", "whole")

    def __init__(
        self,
        whole: ProduceResults,
        place: tuple[int, int],
        partition: Partition,
        appended: Appended,
        acks: int,
        deadline_ms: TimestampMs,
    ) -> None:
        self.whole = whole
        self.place = place
        self.partition = partition
        self.appended = appended
        self.acks = acks
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        partition = self.partition
        if error is not None:
            self.whole.settled(self.place, failed(self.whole.meter, partition.number, error))
            return
        result = ProduceResult(
            partition.number,
            0,
            self.appended.base_offset,
            self.appended.append_time,
            partition.log.log_start,
        )
        self.whole.settled(self.place, result)


def refusal(
    meter: Meter, version: int, correlation_id: int, topic: TopicKey, number: int, error: KafkaError
) -> bytes:
    return produce_reply(version, correlation_id, [(topic, [failed(meter, number, error)])])


def failed(meter: Meter, number: int, error: KafkaError) -> ProduceResult:
    """What became of it, with the records at fault where they are known (KIP-467); the meter counts it."""
    meter.fail(error.code)
    faults = error.record_errors if isinstance(error, InvalidBatch) else ()
    return ProduceResult(
        number,
        error.code,
        record_errors=[RecordError(index, why) for index, why in faults],
        error_message=str(error),
    )
