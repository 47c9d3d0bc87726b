"""Ids of idempotent and of transactional producers."""

from datetime import timedelta
from typing import Any, NamedTuple

from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .coordinators import Kind, ask_coordinator
from .errors import RETRIABLE, check, code_of, refused

INT32_MAX = 2**31 - 1


class ProducerIdentity(NamedTuple):
    """The default is that of a producer without idempotence."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


def init_producer_id(cluster: Cluster) -> ProducerIdentity:
    """Get a new id, from any broker: without a transactional id there is no coordinator."""
    request = _request(None, INT32_MAX)  # there is no transaction to time out
    backoff = cluster.backoff()
    while True:
        reply = cluster.ask_any(request, backoff.left_ms)
        code = code_of(reply)
        if not code:
            return ProducerIdentity(reply.producer_id, reply.producer_epoch)
        problem = refused("a producer id", code)
        if code not in RETRIABLE:
            raise problem
        backoff.pause(problem)


def init_transactions(cluster: Cluster, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
    """Take a transactional id over: its open transaction is aborted, and the producer that had it is fenced. Returns
    when the abort is complete."""
    request = _request(transactional_id, timeout_ms)
    _, reply = ask_coordinator(cluster, Kind.TRANSACTION, transactional_id, request)
    check(f"transactional id {transactional_id}", reply)
    return ProducerIdentity(reply.producer_id, reply.producer_epoch)


def _request(transactional_id: str | None, timeout_ms: int) -> Request[Any]:
    return through_kio(
        Api.INIT_PRODUCER_ID,
        lambda make: make.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
        ),
    )
