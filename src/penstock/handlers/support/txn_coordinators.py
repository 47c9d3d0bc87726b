"""Requests of a partition's leader to the coordinator of a transaction.

A coordinator on this broker is called directly, one on another broker with AddPartitionsToTxn, where `verify_only`
means that the partitions must have been added before. If the coordinator cannot be reached, the code is
NETWORK_EXCEPTION, which `codes.for_write` maps to an error that producers retry.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import TRANSACTIONS_TOPIC
from penstock.base.promise import Promise
from penstock.coordinator.transactions.requests import AddPartitions, VerifyPartitions, VerifyReply
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .context import Context

_BY_BROKERS: Final = 4
"""The lowest version of AddPartitionsToTxn between brokers."""

ASK_MS_MAX: Final = 5000
"""Below the request timeout of producers, so that they get a reply before they retry."""

TxnRequest = AddPartitions | VerifyPartitions
Codes = dict[TopicPartition, ErrorCode]


def ask_coordinator(context: Context, request: TxnRequest) -> Promise[Codes]:
    """For each partition, whether it is part of the transaction."""
    answer: Promise[Codes] = Promise()
    names = request.partitions
    transactions = context.transactions
    try:
        number = transactions.shards.number_of(request.transactional_id)
    except KafkaError as error:
        answer.resolve(dict.fromkeys(names, error.code))
        return answer
    partition = context.image.partition(TRANSACTIONS_TOPIC, number)
    leader = -1 if partition is None else partition.leader
    if leader == context.node_id or leader < 0:
        transactions.handle(request.transactional_id, request).then(
            lambda reply: answer.resolve(
                reply.codes if isinstance(reply, VerifyReply) else dict.fromkeys(names, reply.code)
            )
        )
    else:
        context.broker_client.send(
            leader, _request(request), timeout_ms=ASK_MS_MAX, purpose="transactions"
        ).then(
            lambda reply: answer.resolve(_codes(names, reply)),
            lambda _: answer.resolve(dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION)),
        )
    return answer


def _request(request: TxnRequest) -> Request[Any]:
    topics: dict[str, list[int]] = {}
    for name in sorted(request.partitions):
        topics.setdefault(name.topic, []).append(name.partition)

    def build(make: Any) -> Any:
        transaction = make.AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer.producer_id,
            producer_epoch=request.producer.epoch,
            verify_only=isinstance(request, VerifyPartitions),
            topics=tuple(
                make.AddPartitionsToTxnTopic(name=topic, partitions=tuple(numbers))
                for topic, numbers in topics.items()
            ),
        )
        return make.AddPartitionsToTxnRequest(transactions=(transaction,))

    return through_kio(Api.ADD_PARTITIONS_TO_TXN, build, version_min=_BY_BROKERS)


def _codes(names: Iterable[TopicPartition], reply: Any) -> Codes:
    whole = ErrorCode(reply.error_code)
    codes = {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for result in reply.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    otherwise = ErrorCode.UNKNOWN_SERVER_ERROR if whole is ErrorCode.NONE else whole
    return {name: codes.get(name, otherwise) for name in names}
