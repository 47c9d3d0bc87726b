"""Produce requests for one partition, which are nearly all of them.

`write_one` is on the hot path: it takes the parts of the request as arguments instead of building an object for them.
"""

from penstock.base.errors import KafkaError
from penstock.base.ids import INT64_MAX
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.deferred_batches import DeferredBatch, check_verified
from penstock.handlers.support.produce_admission import batch_error, no_records
from penstock.handlers.support.produce_writers import (
    AcksOneReply,
    Reply,
    SinglePartitionProduce,
    Unanswered,
    refusal,
)
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
from penstock.wire import ProduceRequest, TopicKey, produce_reply_one

NEVER_FLUSHED = INT64_MAX
"""`flush.messages` of a log whose records need no sync before they are acknowledged."""


def write_one(  # noqa: PLR0911  # the hot path: a function for each way out would cost a call
    context: Context,
    session: Session,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    partition: Partition,
    records: memoryview | None,
    *,
    is_verified: bool = False,
    claim: Claim | None = None,
) -> Reply | Promise[Reply] | None:
    """Stage a batch. `is_verified` where its transaction needs no check, or has passed it; `claim` is its
    transaction."""
    acks = request.acks
    now_ms = context.world.now_ms()
    if not records:
        return refuse(
            context, version, correlation_id, request, topic, partition.number, no_records(partition)
        )
    if not is_verified and len(records) > FLAGS_AT and records[FLAGS_AT] & TRANSACTIONAL_MASK:
        return _write_in_transaction(
            context, session, version, correlation_id, request, topic, partition, records
        )
    try:
        partition.check_refused(records)
        appended = partition.stage(records, acks, now_ms)
    except NeedsInspection as needs:
        data = needs.inspection.data
        batch, reply = _defer(
            context, session, version, correlation_id, request, topic, partition, data, claim
        )
        batch.inspect(needs.inspection)
        return reply
    except KafkaError as error:
        refused = batch_error(context, topic, partition.number, records, error)
        return refuse(context, version, correlation_id, request, topic, partition.number, refused)
    if acks == 1 and partition.log.settings.flush_messages == NEVER_FLUSHED:
        number = partition.number
        written = bytearray(
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
            AcksOneReply(
                appended.last_offset, written, context.metrics.produce, version, correlation_id, topic, number
            )
        )
        return [written]
    if acks == 0:
        partition.wait(Unanswered(session, appended))
        return None
    write = SinglePartitionProduce(
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
    """Stage a transactional batch once its coordinator has confirmed the transaction."""
    number = partition.number
    if not is_transactional(records):
        return write_one(
            context, session, version, correlation_id, request, topic, partition, records, is_verified=True
        )
    try:
        claim = claim_of(context, session, request.transactional_id, version, [records])
    except KafkaError as error:
        return refuse(context, version, correlation_id, request, topic, number, error)
    verified = verify_partitions(context, claim, [partition])
    if verified.is_settled:
        try:
            partition.check_refused(records)
            check_verified(partition, verified.value)
            check_first_sequence(claim, partition, records)
        except KafkaError as error:
            refused = batch_error(context, topic, number, records, error)
            return refuse(context, version, correlation_id, request, topic, number, refused)
        return write_one(
            context,
            session,
            version,
            correlation_id,
            request,
            topic,
            partition,
            records,
            is_verified=True,
            claim=claim,
        )
    # The frame is invalid after this tick.
    data = bytearray(records)
    batch, reply = _defer(context, session, version, correlation_id, request, topic, partition, data, claim)
    verified.then(batch.stage)
    return reply


def _defer(
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
    """A batch that is staged in a later tick, and its reply. The client's next request waits until the batch is
    staged. With acks 0 the reply is empty."""
    meter, acks = context.metrics.produce, request.acks
    reply: HoldingPromise[Reply] = HoldingPromise()

    def staged(appended: Appended) -> None:
        if acks == 0:
            partition.wait(Unanswered(session, appended))
            reply.resolve([])
        else:
            deadline_ms = context.world.now_ms() + request.timeout_ms
            write = SinglePartitionProduce(
                meter, version, correlation_id, topic, partition, appended, acks, deadline_ms
            )
            write.then(reply.resolve)
            partition.wait(write)
        reply.let_go()

    def rejected(error: KafkaError) -> None:
        refused = batch_error(context, topic, partition.number, batch.records, error)
        if acks == 0:
            session.end(str(refused))
            reply.resolve([])
        else:
            reply.resolve([refusal(meter, version, correlation_id, topic, partition.number, refused)])
        reply.let_go()

    batch = DeferredBatch(context, partition, data, acks, claim)
    batch.staged.then(staged, rejected)
    return batch, reply


def refuse(
    context: Context,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    topic: TopicKey,
    number: int,
    error: KafkaError,
) -> Promise[Reply]:
    """The reply to a request whose batch is rejected. With acks 0 it raises the error, which closes the connection."""
    if request.acks == 0:
        raise error
    refused: Promise[Reply] = Promise()
    refused.resolve([refusal(context.metrics.produce, version, correlation_id, topic, number, error)])
    return refused
