"""Requests to transactions, whichever broker coordinates them."""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.base.internal_topics import TRANSACTIONS_TOPIC
from penstock.base.steps import Steps, sleep
from penstock.coordinator.transactions.requests import (
    Described,
    DescribeTransaction,
    InitProducerId,
    Listed,
    ProducerReply,
)
from penstock.gateway.peer_rpc.administration import ask_brokers
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import ListTransactions
from penstock.gateway.peer_rpc.retry import RETRIABLE, RETRY_MS, is_alone, retry_while_moving
from penstock.handlers.support.context import Context

ABORT_MS_MAX: Final = 20_000
"""An abort is answered when all partitions have their markers."""


def coordinator_of(context: Context, transactional_id: str) -> int:
    """The broker that coordinates a transactional id."""
    topic = context.image.topics.get(TRANSACTIONS_TOPIC)
    if topic is None:  # which the first transactional producer creates
        raise absent(transactional_id)
    number = partition_for(transactional_id, len(topic.partitions))
    leader: int = topic.partitions[number].leader
    if leader < 0:
        raise KafkaError(
            f"the coordinator of {transactional_id!r} is not known yet. Retry.",
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    return leader


def absent(transactional_id: str) -> KafkaError:
    return KafkaError(f"no such transactional id: {transactional_id!r}", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def _ask(context: Context, request: DescribeTransaction | InitProducerId) -> Steps[Any]:
    """The coordinator's reply. Raises while the coordinator moves for longer than clients are kept waiting."""
    name = request.transactional_id

    def attempt() -> Steps[Any]:
        broker_id = coordinator_of(context, name)
        if broker_id == context.node_id or is_alone(context):
            reply = yield context.transactions.handle(name, request)
        else:
            reply = yield peer_rpc_of(context).send(broker_id, request)
        if reply.code in RETRIABLE:
            raise KafkaError(f"the coordinator of {name!r} is not available. Retry.", reply.code)
        return reply

    return retry_while_moving(context, attempt)


def describe_transaction(context: Context, transactional_id: str) -> Steps[Described]:
    """Raises TRANSACTIONAL_ID_NOT_FOUND."""
    described: Described = yield from _ask(context, DescribeTransaction(transactional_id))
    if described.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise absent(transactional_id)
    if described.code is not ErrorCode.NONE:
        raise KafkaError(f"transactional id {transactional_id!r} cannot be described", described.code)
    return described


def fence(context: Context, transactional_id: str, timeout_ms: int) -> Steps[ProducerReply]:
    """Abort the open transaction as Kafka's admin client does: as a new producer with the id, which fences the former
    one. Returns once the markers are written."""
    until_ms = context.world.now_ms() + ABORT_MS_MAX
    while True:
        reply: ProducerReply = yield from _ask(context, InitProducerId(transactional_id, timeout_ms))
        if reply.code is ErrorCode.NONE:
            return reply
        if reply.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            raise KafkaError(f"the transaction of {transactional_id!r} cannot be aborted", reply.code)
        if context.world.now_ms() >= until_ms:
            raise KafkaError(
                f"the transaction of {transactional_id!r} is being aborted, and some partitions have no marker yet",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        yield sleep(context.world, RETRY_MS)


def list_transactions(context: Context, wanted: ListTransactions) -> Steps[dict[str, tuple[int, Listed]]]:
    """The transactions of all coordinators, with the broker of each. Raises if a broker does not answer: its
    transactions would be missing."""
    answers = yield from ask_brokers(context, wanted)
    found: dict[str, tuple[int, Listed]] = {}
    for broker_id, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        for each in answer:
            found[each.transactional_id] = broker_id, each
    return found
