"""Produce: batches in, offsets out.

Versions 3 to 13; 0 to 2 are advertised, since older librdkafka compresses nothing otherwise, and refused.

- A partition's records are one batch of format 2. It is judged by its header, CRC and sequence, not decoded.
- acks 0 gets no reply; an error closes its connection, the only way to tell. acks 1 is answered when the batch is
  in the file, acks all when it is committed and, where this is the only replica in sync, synced (`replica.partition`).
- A retry of one of an idempotent producer's last five batches is answered with the offset of the first copy.
- A batch that is not synced within the request's timeout is answered REQUEST_TIMED_OUT, and may be there nevertheless.
- Internal topics belong to the coordinators: INVALID_TOPIC_EXCEPTION.
- Transactions are not served yet: a transactional batch is INVALID_TXN_STATE.

Version notes: 5 tells the log start, 8 what is wrong with a batch in words, 10 who leads now, 13 names topics by id.
"""

from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.later import Later
from penstock.handlers.context import Context, On, Operation, Route, Session
from penstock.handlers.internal_topics import INTERNAL_TOPICS
from penstock.records import InvalidBatch
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended
from penstock.wire import (
    Buffer,
    ProducePrefix,
    ProduceRequest,
    ProduceResult,
    RecordError,
    Repeated,
    RequestHeader,
    TopicKey,
    parse_produce,
    produce_reply,
    produce_reply_one,
)

_ACKS = (0, 1, ALL_IN_SYNC)
_new = tuple.__new__

NEVER_FLUSHED = 2**63 - 1
"""`flush.messages` of a log whose records need no sync before they are acknowledged."""

_ATTRIBUTES_AT = 22
"""The low byte of a batch's attributes."""
_TRANSACTIONAL = 0x10

_NEVER_MS: TimestampMs = 2**63 - 1
"""The deadline of a batch that nobody waits for."""

Reply = list[Buffer]


class OneWrite(Later[Reply]):
    """A request for a single partition, which is nearly every request there is; and its answer, in one object."""

    __slots__ = ("acks", "appended", "correlation_id", "deadline_ms", "partition", "topic", "version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        topic: TopicKey,
        partition: Partition,
        appended: Appended,
        acks: int,
        deadline_ms: TimestampMs,
    ) -> None:
        self.is_answered = False
        self._then = None
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
            reply = _refusal(self.version, self.correlation_id, self.topic, partition.number, error)
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
        self.answer([reply])


class Foretold(NamedTuple):
    """A batch that is acknowledged when it is written: its reply is made at once, and leaves when the turn ends,
    after the write. Should that fail, the reply is made into a refusal where it lies."""

    appended: Appended
    reply: bytearray
    version: int
    correlation_id: int
    topic: TopicKey
    number: int
    acks: int = 1
    deadline_ms: TimestampMs = 0

    def settle(self, error: KafkaError | None) -> None:
        if error is not None:
            self.reply[:] = _refusal(self.version, self.correlation_id, self.topic, self.number, error)


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


class ManyWrites:
    """A request for several partitions: answered when the last of them is settled."""

    def __init__(self, header: RequestHeader, request: ProduceRequest) -> None:
        self.later: Later[Reply] = Later()
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._results: list[tuple[TopicKey, list[ProduceResult]]] = [
            (topic, [ProduceResult(each.partition) for each in partitions])
            for topic, partitions in request.topics
        ]
        self._open = sum(len(partitions) for _, partitions in self._results)

    def settled(self, place: tuple[int, int], result: ProduceResult) -> None:
        self._results[place[0]][1][place[1]] = result
        self._open -= 1
        if not self._open:
            self.later.answer([produce_reply(self._version, self._correlation_id, self._results)])


class OneOfMany:
    __slots__ = ("acks", "appended", "deadline_ms", "partition", "place", "whole")

    def __init__(
        self,
        whole: ManyWrites,
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
            self.whole.settled(self.place, _failed(partition.number, error))
            return
        result = ProduceResult(
            partition.number,
            0,
            self.appended.base_offset,
            self.appended.append_time,
            partition.log.log_start,
        )
        self.whole.settled(self.place, result)


def produce_again(
    context: Context, session: Session, prefix: ProducePrefix, repeated: Repeated
) -> Reply | Later[Reply] | None:
    """A request that begins like the last one of its connection, and has one partition."""
    header, request = prefix.header, prefix.request
    assert header is not None
    assert request is not None
    correlation_id, number, records = repeated
    route = session.route
    if (
        route is not None
        and route.prefix is request
        and route.image is context.image
        and route.partition.number == number
        and route.partition.is_leader
    ):
        return _write_one(
            context,
            session,
            header.api_version,
            correlation_id,
            request,
            prefix.topic,
            route.partition,
            records,
        )
    return _produce_one(
        context,
        session,
        header.api_version,
        correlation_id,
        header.client_id,
        request,
        prefix.topic,
        number,
        records,
    )


def produce(
    context: Context, session: Session, frame: memoryview, header: RequestHeader
) -> Reply | Later[Reply] | None:
    """Any request; None where nothing is to be answered."""
    request = parse_produce(frame, header.body_at, header.api_version)
    if session.prefix is None:
        session.prefix = ProducePrefix()
    session.prefix.learn(frame, header, request)
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        topic, ((number, records),) = request.topics[0]
        return _produce_one(
            context,
            session,
            header.api_version,
            header.correlation_id,
            header.client_id,
            request,
            topic,
            number,
            records,
        )
    return _produce_many(context, session, header, request)


def _produce_one(
    context: Context,
    session: Session,
    version: int,
    correlation_id: int,
    client_id: str | None,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
    records: memoryview | None,
) -> Reply | Later[Reply] | None:
    try:
        partition = _admit(context, session, client_id, request, topic, number)
    except KafkaError as error:
        return _refuse(version, correlation_id, request, topic, number, error)
    if not request.topics:  # it is what the connection remembers, and holds no records
        session.route = Route(request, context.image, partition)
    return _write_one(context, session, version, correlation_id, request, topic, partition, records)


def _write_one(
    context: Context,
    session: Session,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    partition: Partition,
    records: memoryview | None,
) -> Reply | Later[Reply] | None:
    acks = request.acks
    now_ms = context.world.now_ms()
    try:
        appended = _stage(partition, records, acks, now_ms)
    except KafkaError as error:
        return _refuse(version, correlation_id, request, topic, partition.number, error)
    if acks == 1 and partition.log.settings.flush_messages == NEVER_FLUSHED:
        number = partition.number
        reply = bytearray(
            produce_reply_one(
                version,
                correlation_id,
                topic,
                number,
                appended.base_offset,
                partition.log.log_start,
                appended.append_time,
            )
        )
        partition.wait(_new(Foretold, (appended, reply, version, correlation_id, topic, number, 1, 0)))
        return [reply]
    if acks == 0:
        partition.wait(Unanswered(session, appended))
        return None
    write = OneWrite(version, correlation_id, topic, partition, appended, acks, now_ms + request.timeout_ms)
    partition.wait(write)
    return write


def _refuse(
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
    error: KafkaError,
) -> Later[Reply]:
    if request.acks == 0:
        raise error
    refused: Later[Reply] = Later()
    refused.answer([_refusal(version, correlation_id, topic, number, error)])
    return refused


def _produce_many(
    context: Context, session: Session, header: RequestHeader, request: ProduceRequest
) -> Later[Reply] | None:
    acks = request.acks
    now_ms = context.world.now_ms()
    whole = ManyWrites(header, request)
    failed: list[tuple[tuple[int, int], ProduceResult]] = []
    for topic_at, (topic, partitions) in enumerate(request.topics):
        for at, (number, records) in enumerate(partitions):
            place = topic_at, at
            try:
                partition = _admit(context, session, header.client_id, request, topic, number)
                appended = _stage(partition, records, acks, now_ms)
            except KafkaError as error:
                if acks == 0:
                    raise
                failed.append((place, _failed(number, error)))
                continue
            if acks == 0:
                partition.wait(Unanswered(session, appended))
            else:
                partition.wait(
                    OneOfMany(whole, place, partition, appended, acks, now_ms + request.timeout_ms)
                )
    for place, result in failed:
        whole.settled(place, result)
    if not request.topics:
        whole.later.answer([produce_reply(header.api_version, header.correlation_id, [])])
    return None if acks == 0 else whole.later


def _admit(
    context: Context,
    session: Session,
    client_id: str | None,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
) -> Partition:
    """The partition, if this producer may write to it."""
    if request.acks not in _ACKS:
        raise KafkaError(f"acks is {request.acks}, expected 0, 1 or -1", ErrorCode.INVALID_REQUIRED_ACKS)
    partition = context.replicas.led(topic, number)
    if partition is None:
        partition = context.replicas.find(topic, number)
    if not context.authorize(session, Operation.WRITE, On.TOPIC, partition.topic):
        raise KafkaError(
            f"{session.principal} may not write to {partition.topic}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    if request.transactional_id is not None:
        raise KafkaError("transactions are not served yet", ErrorCode.INVALID_TXN_STATE)
    if partition.topic in INTERNAL_TOPICS and client_id != "__admin_client":
        raise KafkaError(
            f"{partition.topic} is written by coordinators alone", ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return partition


def _stage(partition: Partition, records: memoryview | None, acks: int, now_ms: TimestampMs) -> Appended:
    if not records:
        raise KafkaError(f"{partition.name}: there are no records", ErrorCode.INVALID_RECORD)
    if len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        raise KafkaError("transactions are not served yet", ErrorCode.INVALID_TXN_STATE)
    return partition.stage(records, acks, now_ms)


def _refusal(version: int, correlation_id: int, topic: TopicKey, number: int, error: KafkaError) -> bytes:
    return produce_reply(version, correlation_id, [(topic, [_failed(number, error)])])


def _failed(number: int, error: KafkaError) -> ProduceResult:
    """What became of it, with the records at fault where they are known (KIP-467)."""
    faults = error.record_errors if isinstance(error, InvalidBatch) else ()
    return ProduceResult(
        number,
        error.code,
        record_errors=[RecordError(index, why) for index, why in faults],
        error_message=str(error),
    )
