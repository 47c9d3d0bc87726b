"""The id of an idempotent producer."""

from datetime import timedelta
from typing import Any, NamedTuple

from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .errors import RETRIABLE, refused

INT32_MAX = 2**31 - 1


class ProducerIdentity(NamedTuple):
    """By default, that of a producer without idempotence."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


def init_producer_id(cluster: Cluster) -> ProducerIdentity:
    """Get a new id, from any broker: without a transactional id there is no coordinator."""
    request = through_kio(
        Api.INIT_PRODUCER_ID,
        lambda make: make.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=timedelta(milliseconds=INT32_MAX),  # there is no transaction to time out
            producer_id=-1,
            producer_epoch=-1,
        ),
    )
    backoff = cluster.backoff()
    while True:
        reply: Any = cluster.ask_any(request, backoff.left_ms)
        code = int(reply.error_code)
        if not code:
            return ProducerIdentity(reply.producer_id, reply.producer_epoch)
        problem = refused("a producer id", code)
        if code not in RETRIABLE:
            raise problem
        backoff.pause(problem)
