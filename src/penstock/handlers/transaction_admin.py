"""Administration of transactions.

WriteTxnMarkers 1 to 2             markers from coordinators on other brokers, and from operators
ListTransactions 0 to 2
DescribeTransactions 0
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs, TopicPartition
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.coordinator.groups.consumer.regex import compile_regex
from penstock.coordinator.transactions.requests import (
    Described,
    DescribeTransaction,
    ListReply,
    ListTransactions,
)
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.wire import Api

from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE
from .support.waiting import all_of, in_steps, settled
from .transactions import by_topic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@in_steps
def write_txn_markers(context: Context, call: Call) -> Steps[Any]:
    """WriteTxnMarkers 1 to 2: write transaction markers to partitions that this broker leads. Needs CLUSTER_ACTION or
    ALTER on the cluster.

    Coordinators on other brokers send it, and operators who end a hanging transaction. The reply waits until the
    markers are committed. A marker older than the partition's state gets INVALID_PRODUCER_EPOCH or
    TRANSACTION_COORDINATOR_FENCED.

    Version notes: 2 adds the `transaction.version`: from 2 on the marker's epoch must be above that of the records it
    ends (KIP-1228).
    """
    message, make, session = call.message, call.make, call.session
    may = context.permits(
        session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME
    ) or context.authorize(session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    session.state.is_exempt = may

    def write(marker: Any, name: TopicPartition) -> Promise[ErrorCode]:
        if not may:
            return settled(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        written: Promise[ErrorCode] = Promise()

        context.markers.append(
            name,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            version=getattr(marker, "transaction_version", 0),
        ).then(lambda _: written.resolve(ErrorCode.NONE), lambda error: written.resolve(error.code))
        return written

    written = [
        write(marker, TopicPartition(topic.name, number))
        for marker in message.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    ]
    codes = iter((yield all_of(written)))
    return make.WriteTxnMarkersResponse(
        markers=tuple(
            make.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    make.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            make.WritableTxnMarkerPartitionResult(
                                partition_index=number, error_code=next(codes)
                            )
                            for number in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in message.markers
        )
    )


def list_transactions(context: Context, call: Call) -> Any:
    """ListTransactions 0 to 2: the transactions that this broker coordinates and the client may describe.

    Filters: by state (unknown states are returned), by producer id, by age, and by a pattern in RE2 syntax that must
    match the whole transactional id (KIP-1152). An invalid pattern gets INVALID_REGULAR_EXPRESSION.

    Version notes: 1 adds the filter by age; 2 the pattern.
    """
    message = call.message

    def respond(reply: ListReply, code: ErrorCode = ErrorCode.NONE) -> Any:
        return call.make.ListTransactionsResponse(
            throttle_time=NO_THROTTLE,
            error_code=code,
            unknown_state_filters=reply.unknown_states,
            transaction_states=tuple(
                call.make.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state,
                )
                for each in reply.transactions
                if context.permits(
                    call.session, Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, each.transactional_id
                )
            ),
        )

    nothing = ListReply((), ())
    if context.transactions.is_loading():
        return respond(nothing, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = getattr(message, "transactional_id_pattern", None)
    try:
        matches = compile_regex(pattern).matches if pattern else None
    except KafkaError as error:
        return respond(nothing, error.code)
    request = ListTransactions(
        frozenset(message.state_filters),
        frozenset(message.producer_id_filters),
        getattr(message, "duration_filter", -1),
        matches,
    )
    return respond(context.transactions.list_transactions(request))


@in_steps
def describe_transactions(context: Context, call: Call) -> Steps[Any]:
    """DescribeTransactions 0: state, producer, timeout, start time and partitions of transactional ids (KIP-664).

    An unknown id gets TRANSACTIONAL_ID_NOT_FOUND. Topics that the client may not describe are left out.
    """
    names = call.message.transactional_ids

    def describe(transactional_id: str) -> Promise[Described]:
        if context.authorize(
            call.session, Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return context.transactions.handle(transactional_id, DescribeTransaction(transactional_id))
        return settled(Described(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

    described = yield all_of([describe(each) for each in names])
    return call.make.DescribeTransactionsResponse(
        throttle_time=NO_THROTTLE,
        transaction_states=tuple(
            _described(context, call, name, each) for name, each in zip(names, described, strict=True)
        ),
    )


def _described(context: Context, call: Call, transactional_id: str, described: Described) -> Any:
    topics = by_topic(described.partitions)
    return call.make.TransactionState(
        error_code=described.code,
        transactional_id=transactional_id,
        transaction_state=described.state,
        transaction_timeout=timedelta(milliseconds=described.timeout_ms),
        transaction_start_time=_moment(described.started_ms if described.code is ErrorCode.NONE else 0),
        producer_id=described.producer_id,
        producer_epoch=described.epoch,
        topics=tuple(
            call.make.TopicData(topic=topic, partitions=tuple(numbers))
            for topic, numbers in topics.items()
            if context.permits(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, topic)
        ),
    )


def _moment(timestamp: TimestampMs) -> datetime:
    """The type that kio uses; -1, for a transaction that has not begun, is converted too."""
    return _EPOCH + timedelta(milliseconds=timestamp)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.WRITE_TXN_MARKERS: write_txn_markers,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
}
