"""Transactions as people and brokers have them: listed, described, and ended by a marker from outside."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs, TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.groups.consumer.regex import compile_regex
from penstock.coordinator.transactions import Described, DescribeTransaction, ListReply, ListTransactions
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.response_fields import NO_THROTTLE
from .support.waiting import after_all
from .transactions import by_topic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_txn_markers(context: Context, call: Call) -> Any | Promise[Any]:
    """WriteTxnMarkers 1 and 2: the ends of transactions, written to partitions that are led here.

    Coordinators elsewhere ask for it, and people who end a transaction that hangs; they need CLUSTER_ACTION or ALTER
    on the cluster. Each partition is answered when its marker is committed: INVALID_PRODUCER_EPOCH and
    TRANSACTION_COORDINATOR_FENCED where a newer one was there before.

    Version 2 says which `transaction.version` the end is of: from 2 on its epoch must be above that of the records it
    ends (KIP-1228).
    """
    message, make, session = call.message, call.make, call.session
    may = any(
        context.authorize(session, operation, AclResourceType.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    )

    def write(marker: Any, name: TopicPartition) -> Promise[ErrorCode]:
        written: Promise[ErrorCode] = Promise()
        if not may:
            written.resolve(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return written

        context.markers.append(
            name,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            version=getattr(marker, "transaction_version", 0),
        ).then(lambda _: written.resolve(ErrorCode.NONE), lambda error: written.resolve(error.code))
        return written

    asked = [
        [(topic, number) for topic in marker.topics for number in topic.partition_indexes]
        for marker in message.markers
    ]

    def respond(codes: list[ErrorCode]) -> Any:
        told = iter(codes)
        return make.WriteTxnMarkersResponse(
            markers=tuple(
                make.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        make.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                make.WritableTxnMarkerPartitionResult(
                                    partition_index=number, error_code=next(told)
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

    return after_all(
        [
            write(marker, TopicPartition(topic.name, number))
            for marker, partitions in zip(message.markers, asked, strict=True)
            for topic, number in partitions
        ],
        respond,
    )


def list_transactions(context: Context, call: Call) -> Any:
    """ListTransactions 0 to 2: all that the coordinators here know, but for what the client may not describe.

    Filters: by state (one that no state has is told back), by producer id, from 1 on by how long ago the transaction
    began, from 2 on by a pattern that the whole transactional id must fit (KIP-1152), in RE2's syntax; a pattern that
    is none gets INVALID_REGULAR_EXPRESSION. Sets of characters have ASCII in them and nothing else.
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
                if context.authorize(
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


def describe_transactions(context: Context, call: Call) -> Any | Promise[Any]:
    """DescribeTransactions 0: state, producer, timeout, begin and partitions of transactional ids (KIP-664).

    An id that is not known gets TRANSACTIONAL_ID_NOT_FOUND. Topics that the client may not describe are left out.
    """
    names = call.message.transactional_ids

    def ask(transactional_id: str) -> Promise[Described]:
        if context.authorize(
            call.session, Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return context.transactions.handle(transactional_id, DescribeTransaction(transactional_id))
        refused: Promise[Described] = Promise()
        refused.resolve(Described(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return refused

    return after_all(
        [ask(each) for each in names],
        lambda answers: call.make.DescribeTransactionsResponse(
            throttle_time=NO_THROTTLE,
            transaction_states=tuple(
                _described(context, call, name, each) for name, each in zip(names, answers, strict=True)
            ),
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
            if context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, topic)
        ),
    )


def _moment(timestamp: TimestampMs) -> datetime:
    """As kio has it; -1, for a transaction that has not begun, is a moment like any other."""
    return _EPOCH + timedelta(milliseconds=timestamp)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.WRITE_TXN_MARKERS: write_txn_markers,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
}
