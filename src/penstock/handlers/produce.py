"""Produce: batches in, offsets out.

Versions 3 to 13; 0 to 2 are advertised, since older librdkafka compresses nothing otherwise, and refused.

- A partition's records are one batch of format 2. It is judged by its header, CRC and sequence, not decoded; where the
  topic's settings ask for records, a batch that takes long to decode is inspected beside the event loop, and what its
  client sent next waits until it is staged (`replica.inspections`).
- acks 0 gets no reply; an error closes its connection, the only way to tell. acks 1 is answered when the batch is
  in the file, acks all when it is committed and, where this is the only replica in sync, synced (`replica.partition`).
- A retry of one of an idempotent producer's last nine batches is answered with the offset of the first copy. A batch
  behind one that was refused for a passing reason gets the same error, until that one comes again
  (`replica.refused_batches`).
- A leader that may be deposed says NOT_LEADER_OR_FOLLOWER where it would refuse for good (`replica.deposed_leader`).
- A batch that is not synced within the request's timeout is answered REQUEST_TIMED_OUT, and may be there nevertheless.
- Internal topics belong to the coordinators: INVALID_TOPIC_EXCEPTION.
- A transactional batch is written if its coordinator knows of it (`taking_part`). The first one of a transaction may
  have to wait for the coordinator's answer, and what its client sent next waits too: sequences are in order. Without
  a transactional id in the request it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Version notes: 5 tells the log start, 8 what is wrong with a batch in words, 10 who leads now, 11 knows
TRANSACTION_ABORTABLE, 12 adds its partitions to the transaction, 13 names topics by id.
"""

from penstock.base.errors import KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.deferred_batches import DeferredBatch, check_verified
from penstock.handlers.support.produce_admission import admit, batch_error, no_records
from penstock.handlers.support.produce_fast_path import NEVER_FLUSHED, ProduceFastPath
from penstock.handlers.support.produce_many import produce_many
from penstock.handlers.support.produce_writers import DelayedProduce, Foretold, Reply, Unanswered, refusal
from penstock.handlers.support.txn_verification import (
    Claim,
    check_first_sequence,
    claim_of,
    is_transactional,
    verify_partitions,
)
from penstock.records.batch import FLAGS_AT, TRANSACTIONAL_MASK
from penstock.replica import Partition
from penstock.storage import Appended, NeedsInspection
from penstock.wire import (
    ProducePrefix,
    ProduceRequest,
    Repeated,
    RequestHeader,
    TopicKey,
    parse_produce,
    produce_reply_one,
)


def produce_again(
    context: Context, session: Session, prefix: ProducePrefix, repeated: Repeated
) -> Reply | Promise[Reply] | None:
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
) -> Reply | Promise[Reply] | None:
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
    return produce_many(context, session, header, request)


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
) -> Reply | Promise[Reply] | None:
    try:
        partition = admit(context, session, client_id, request, topic, number)
    except KafkaError as error:
        refused = batch_error(context, topic, number, records, error)
        return _refuse(context, version, correlation_id, request, topic, number, refused)
    if (
        not request.topics and session.prefix is not None
    ):  # it is what the connection remembers, without records
        session.route = ProduceFastPath(context, session.prefix, partition)
    return _write_one(context, session, version, correlation_id, request, topic, partition, records)


def _write_one(  # noqa: PLR0911  # the hot path: a function for each way out would cost a call
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
    claim: Claim | None = None,
) -> Reply | Promise[Reply] | None:
    """Write a batch; `may` where it is not asked, or not any more, whether it is part of a transaction, and `claim` is
    what it says of that."""
    acks = request.acks
    now_ms = context.world.now_ms()
    if not records:
        return _refuse(
            context, version, correlation_id, request, topic, partition.number, no_records(partition)
        )
    if not may and len(records) > FLAGS_AT and records[FLAGS_AT] & TRANSACTIONAL_MASK:
        return _write_in_transaction(
            context, session, version, correlation_id, request, topic, partition, records
        )
    try:
        partition.check_refused(records)
        appended = partition.stage(records, acks, now_ms)
    except NeedsInspection as needs:
        data = needs.inspection.data
        batch, later = _late(
            context, session, version, correlation_id, request, topic, partition, data, claim
        )
        batch.inspect(needs.inspection)
        return later
    except KafkaError as error:
        refused = batch_error(context, topic, partition.number, records, error)
        return _refuse(context, version, correlation_id, request, topic, partition.number, refused)
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
        partition.appends.prepared_replies.append(
            Foretold(
                appended.last_offset, reply, context.metrics.produce, version, correlation_id, topic, number
            )
        )
        return [reply]
    if acks == 0:
        partition.wait(Unanswered(session, appended))
        return None
    write = DelayedProduce(
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
) -> Reply | Promise[Reply] | None:
    """Write a batch that says it is part of a transaction, once its coordinator has said so too."""
    number = partition.number
    if not is_transactional(records):
        return _write_one(
            context, session, version, correlation_id, request, topic, partition, records, may=True
        )
    try:
        claim = claim_of(context, session, request.transactional_id, version, [records])
    except KafkaError as error:
        return _refuse(context, version, correlation_id, request, topic, number, error)
    asked = verify_partitions(context, claim, [partition])
    if asked.is_settled:
        try:
            partition.check_refused(records)
            check_verified(partition, asked.value)
            check_first_sequence(claim, partition, records)
        except KafkaError as error:
            refused = batch_error(context, topic, number, records, error)
            return _refuse(context, version, correlation_id, request, topic, number, refused)
        return _write_one(
            context,
            session,
            version,
            correlation_id,
            request,
            topic,
            partition,
            records,
            may=True,
            claim=claim,
        )
    # The frame is gone when the turn ends.
    data = bytearray(records)
    batch, reply = _late(context, session, version, correlation_id, request, topic, partition, data, claim)
    asked.then(batch.stage)
    return reply


def _late(
    context: Context,
    session: Session,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    partition: Partition,
    data: bytes | bytearray,
    claim: Claim | None,
) -> tuple[DeferredBatch, HoldingPromise[Reply]]:
    """The batch of a request for one partition that is staged in a later turn, and the reply. What the client sends
    next waits until it is staged. With acks 0 the reply is empty."""
    meter, acks = context.metrics.produce, request.acks
    reply: HoldingPromise[Reply] = HoldingPromise()

    def finish(outcome: Appended | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            number = partition.number
            refused = batch_error(context, topic, number, batch.records, outcome)
            if acks == 0:
                session.end(str(refused))
                reply.resolve([])
            else:
                reply.resolve([refusal(meter, version, correlation_id, topic, number, refused)])
        elif acks == 0:
            partition.wait(Unanswered(session, outcome))
            reply.resolve([])
        else:
            deadline_ms = context.world.now_ms() + request.timeout_ms
            write = DelayedProduce(
                meter, version, correlation_id, topic, partition, outcome, acks, deadline_ms
            )
            write.then(reply.resolve)
            partition.wait(write)
        reply.let_go()

    batch = DeferredBatch(context, partition, data, acks, claim, finish)
    return batch, reply


def _refuse(
    context: Context,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
    error: KafkaError,
) -> Promise[Reply]:
    if request.acks == 0:
        raise error
    refused: Promise[Reply] = Promise()
    refused.resolve([refusal(context.metrics.produce, version, correlation_id, topic, number, error)])
    return refused
