"""Asking the coordinator of a transaction from the leader of one of its partitions, wherever the coordinator is.

Here it is asked directly. On another broker it is asked with AddPartitionsToTxn, which says with `verify_only` whether
the partitions are to join or must have joined before. A coordinator that cannot be reached is one that the producer
asks for again: the answer is NETWORK_EXCEPTION, which `codes.for_write` has words for.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.transactions import AddPartitions, VerifyPartitions, VerifyReply
from penstock.wire import Api
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request, through_kio

from .context import Context
from .internal_topics import TRANSACTIONS_TOPIC

_BY_BROKERS: Final = 4
"""The version of AddPartitionsToTxn from which brokers ask."""

ASK_MS_MAX: Final = 5000
"""For less than a producer waits: it must hear from us before it asks again."""

TxnRequest = AddPartitions | VerifyPartitions
Codes = dict[TopicPartition, ErrorCode]


def ask_coordinator(context: Context, request: TxnRequest) -> Promise[Codes]:
    """Whether partitions may be written to as part of a transaction; a code for each of them."""
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
        ).then(lambda reply: answer.resolve(_codes(names, reply)))
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
    if isinstance(reply, PeerFailed):
        return dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION)
    whole = ErrorCode(reply.error_code)
    told = {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for result in reply.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    otherwise = ErrorCode.UNKNOWN_SERVER_ERROR if whole is ErrorCode.NONE else whole
    return {name: told.get(name, otherwise) for name in names}
