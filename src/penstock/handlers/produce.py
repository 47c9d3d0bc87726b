"""Produce: batches in, offsets out.

Versions 3 to 13; 0 to 2 are advertised, since older librdkafka compresses nothing otherwise, and refused.

- A partition's records are one batch of format 2. It is judged by its header, CRC and sequence, not decoded.
- acks 0 gets no reply; an error closes its connection, the only way to tell. acks 1 is answered when the batch is
  in the file, acks all when it is committed and, where this is the only replica in sync, synced (`replica.partition`).
- A retry of one of an idempotent producer's last nine batches is answered with the offset of the first copy. What
  comes behind a batch that was refused is out of order, also where the log knows nothing of its producer (`missed`).
- A leader that may be deposed says NOT_LEADER_OR_FOLLOWER where it would refuse for good (`replica.hearsay`).
- A batch that is not synced within the request's timeout is answered REQUEST_TIMED_OUT, and may be there nevertheless.
- Internal topics belong to the coordinators: INVALID_TOPIC_EXCEPTION.
- A transactional batch is written if its coordinator knows of it (`taking_part`). The first one of a transaction may
  have to wait for the coordinator's answer, and what its client sent next waits too: sequences are in order. Without
  a transactional id in the request it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Version notes: 5 tells the log start, 8 what is wrong with a batch in words, 10 who leads now, 11 knows
TRANSACTION_ABORTABLE, 12 adds its partitions to the transaction, 13 names topics by id.
"""

from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.later import HoldingLater, Later
from penstock.handlers.context import Context, On, Operation, Session
from penstock.handlers.internal_topics import INTERNAL_TOPICS
from penstock.handlers.missed import Missed
from penstock.handlers.produce_writers import (
    Foretold,
    ManyWrites,
    OneOfMany,
    OneWrite,
    Reply,
    Unanswered,
    failed,
    refusal,
)
from penstock.handlers.route import NEVER_FLUSHED, Route
from penstock.handlers.taking_part import (
    Fates,
    check_first_sequence,
    claim_of,
    is_transactional,
    may_write,
)
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.replica.hearsay import as_leader
from penstock.wire import (
    ProducePrefix,
    ProduceRequest,
    ProduceResult,
    Repeated,
    RequestHeader,
    TopicKey,
    parse_produce,
    produce_reply,
    produce_reply_one,
)

_ACKS = (0, 1, ALL_IN_SYNC)

_ATTRIBUTES_AT = 22
"""The low byte of a batch's attributes."""
_TRANSACTIONAL = 0x10

Place: TypeAlias = tuple[int, int]
"""Of a partition in its request: the topic's number, and its own."""


def produce_again(
    context: Context, session: Session, prefix: ProducePrefix, repeated: Repeated
) -> Reply | Later[Reply] | None:
    """A request that begins like the last one of its connection, and has one partition."""
    header, request = prefix.header, prefix.request
    assert header is not None
    assert request is not None
    correlation_id, number, records = repeated
    route = session.route
    if route is not None and route.leads_to(request, number):
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
        told = _told(context, session, topic, number, records, error)
        return _refuse(context, version, correlation_id, request, topic, number, told)
    if (
        not request.topics and session.prefix is not None
    ):  # it is what the connection remembers, without records
        session.route = Route(context, session.prefix, partition)
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
    *,
    may: bool = False,
) -> Reply | Later[Reply] | None:
    """Write a batch; `may` where it is part of a transaction and known to be."""
    acks = request.acks
    now_ms = context.world.now_ms()
    if not records:
        return _refuse(
            context, version, correlation_id, request, topic, partition.number, _no_records(partition)
        )
    if not may and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        return _write_in_transaction(
            context, session, version, correlation_id, request, topic, partition, records
        )
    try:
        if session.missed is not None:
            session.missed.check(topic, partition, records)
        appended = partition.stage(records, acks, now_ms)
    except KafkaError as error:
        told = _told(context, session, topic, partition.number, records, error)
        return _refuse(context, version, correlation_id, request, topic, partition.number, told)
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
        partition.foretold.append(
            Foretold(
                appended.last_offset, reply, context.metrics.produce, version, correlation_id, topic, number
            )
        )
        return [reply]
    if acks == 0:
        partition.wait(Unanswered(session, appended))
        return None
    write = OneWrite(
        context.metrics.produce,
        version,
        correlation_id,
        topic,
        partition,
        appended,
        acks,
        now_ms + request.timeout_ms,
    )
    partition.wait(write)
    return write


def _write_in_transaction(
    context: Context,
    session: Session,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    partition: Partition,
    records: memoryview,
) -> Reply | Later[Reply] | None:
    """Write a batch that says it is part of a transaction, once its coordinator has said so too."""
    number, acks = partition.number, request.acks
    if not is_transactional(records):
        return _write_one(
            context, session, version, correlation_id, request, topic, partition, records, may=True
        )
    try:
        claim = claim_of(context, session, request.transactional_id, version, [records])
    except KafkaError as error:
        return _refuse(context, version, correlation_id, request, topic, number, error)
    asked = may_write(context, claim, [partition])
    if asked.is_answered:
        try:
            _check_fate(partition, asked.value)
            check_first_sequence(claim, partition, records)
        except KafkaError as error:
            told = _told(context, session, topic, number, records, error)
            return _refuse(context, version, correlation_id, request, topic, number, told)
        return _write_one(
            context, session, version, correlation_id, request, topic, partition, records, may=True
        )
    kept = memoryview(bytearray(records))  # the frame is gone when the turn ends
    reply: HoldingLater[Reply] = HoldingLater()

    def answered(fates: Fates) -> None:
        now_ms = context.world.now_ms()
        try:
            _check_fate(partition, fates)
            check_first_sequence(claim, partition, kept)
            if session.missed is not None:
                session.missed.check(topic, partition, kept)
            appended = partition.stage(kept, acks, now_ms)
        except KafkaError as error:
            told = _told(context, session, topic, number, kept, error)
            if acks == 0:
                session.end(str(told))
            else:
                reply.answer([refusal(context.metrics.produce, version, correlation_id, topic, number, told)])
            return
        if acks == 0:
            partition.wait(Unanswered(session, appended))
            return
        deadline_ms = now_ms + request.timeout_ms
        write = OneWrite(
            context.metrics.produce, version, correlation_id, topic, partition, appended, acks, deadline_ms
        )
        write.then(reply.answer)
        partition.wait(write)

    asked.then(answered)
    return None if acks == 0 else reply


def _check_fate(partition: Partition, fates: Fates) -> None:
    error = fates.get(partition.name)
    if error is not None:
        raise error


def _told(
    context: Context,
    session: Session,
    topic: TopicKey,
    number: int,
    records: memoryview | None,
    error: KafkaError,
) -> KafkaError:
    """What the producer is told of a batch that is refused; one that will come again is remembered."""
    partition = context.replicas.led(topic, number)
    if partition is not None:
        error = as_leader(partition, error)
    if session.missed is None:
        session.missed = Missed()
    session.missed.refused(topic, number, records, error)
    return error


def _refuse(
    context: Context,
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
    refused.answer([refusal(context.metrics.produce, version, correlation_id, topic, number, error)])
    return refused


def _produce_many(
    context: Context, session: Session, header: RequestHeader, request: ProduceRequest
) -> Later[Reply] | None:
    acks = request.acks
    now_ms = context.world.now_ms()
    whole = ManyWrites(context.metrics.produce, header, request)
    refused: list[tuple[Place, ProduceResult]] = []
    transactional: list[_Transactional] = []
    for topic_at, (topic, partitions) in enumerate(request.topics):
        for at, (number, records) in enumerate(partitions):
            place = topic_at, at
            try:
                partition = _admit(context, session, header.client_id, request, topic, number)
                if not records:
                    raise _no_records(partition)
                if (
                    len(records) > _ATTRIBUTES_AT
                    and records[_ATTRIBUTES_AT] & _TRANSACTIONAL
                    and is_transactional(records)
                ):
                    transactional.append(_Transactional(place, topic, partition, records))
                    continue
                if session.missed is not None:
                    session.missed.check(topic, partition, records)
                appended = partition.stage(records, acks, now_ms)
            except KafkaError as error:
                if acks == 0:
                    raise
                told = _told(context, session, topic, number, records, error)
                refused.append((place, failed(whole.meter, number, told)))
                continue
            if acks == 0:
                partition.wait(Unanswered(session, appended))
            else:
                partition.wait(
                    OneOfMany(whole, place, partition, appended, acks, now_ms + request.timeout_ms)
                )
    if transactional:
        _write_many_in_transaction(context, session, header.api_version, request, whole, transactional)
    for place, result in refused:
        whole.settled(place, result)
    if not request.topics:
        whole.later.answer([produce_reply(header.api_version, header.correlation_id, [])])
    return None if acks == 0 else whole.later


class _Transactional(NamedTuple):
    """A batch of a request for several partitions."""

    place: Place
    topic: TopicKey
    partition: Partition
    records: memoryview


def _write_many_in_transaction(
    context: Context,
    session: Session,
    version: int,
    request: ProduceRequest,
    whole: ManyWrites,
    batches: list[_Transactional],
) -> None:
    """As with one: the coordinator is asked once for all of them."""
    acks = request.acks

    def refuse(each: _Transactional, error: KafkaError) -> None:
        number = each.partition.number
        told = _told(context, session, each.topic, number, each.records, error)
        if acks == 0:
            session.end(str(told))
        else:
            whole.settled(each.place, failed(whole.meter, number, told))

    try:
        claim = claim_of(
            context, session, request.transactional_id, version, [each.records for each in batches]
        )
    except KafkaError as error:
        for each in batches:
            refuse(each, error)
        return
    asked = may_write(context, claim, [each.partition for each in batches])
    if not asked.is_answered:
        batches = [each._replace(records=memoryview(bytearray(each.records))) for each in batches]
        whole.later = HoldingLater()

    def answered(fates: Fates) -> None:
        now_ms = context.world.now_ms()
        for each in batches:
            place, topic, partition, records = each
            try:
                _check_fate(partition, fates)
                check_first_sequence(claim, partition, records)
                if session.missed is not None:
                    session.missed.check(topic, partition, records)
                appended = partition.stage(records, acks, now_ms)
            except KafkaError as error:
                refuse(each, error)
                continue
            if acks == 0:
                partition.wait(Unanswered(session, appended))
            else:
                deadline_ms = now_ms + request.timeout_ms
                partition.wait(OneOfMany(whole, place, partition, appended, acks, deadline_ms))

    asked.then(answered)


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
    if partition.topic in INTERNAL_TOPICS and client_id != "__admin_client":
        raise KafkaError(
            f"{partition.topic} is written by coordinators alone", ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return partition


def _no_records(partition: Partition) -> KafkaError:
    return KafkaError(f"{partition.name}: there are no records", ErrorCode.INVALID_RECORD)
