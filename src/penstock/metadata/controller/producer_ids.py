"""Allocates producer ids to brokers in blocks. No id is allocated twice."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.metadata.records import ProducerIdsRecord

from .requests import AllocateProducerIds, ProducerIdBlock
from .view import ControllerView

BLOCK_SIZE = 1000
"""Size of a block, as in Kafka."""
PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(view: ControllerView, request: AllocateProducerIds) -> Outcome[ProducerIdBlock]:
    view.broker(request.broker_id, request.broker_epoch)
    first = view.image.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise KafkaError(
            f"no producer ids are left: the next would be {first}", ErrorCode.UNKNOWN_SERVER_ERROR
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Outcome(ProducerIdBlock(first, BLOCK_SIZE), (record,))
