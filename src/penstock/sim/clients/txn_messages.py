"""Requests of transactional producers, in any version. See also `messages`."""

from typing import NamedTuple

from penstock.sim.clients.group_messages import Membership, Position
from penstock.sim.clients.messages import Request, TopicName, read_code
from penstock.wire import Api


class ProducerIdentity(NamedTuple):
    """Identity of a transactional producer."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


def add_partitions(producer: ProducerIdentity, topic: str, partitions: list[int]) -> Request[list[int]]:
    """Versions up to 3, which clients use; later ones are for brokers. The reply has the error codes."""
    return Request(
        Api.ADD_PARTITIONS_TO_TXN,
        lambda make: make.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=(make.AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions)),),
        ),
        lambda response: [
            int(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ],
    )


def add_offsets(producer: ProducerIdentity, group: str) -> Request[int]:
    return Request(
        Api.ADD_OFFSETS_TO_TXN,
        lambda make: make.AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        ),
        read_code,
    )


def txn_offset_commit(
    producer: ProducerIdentity, member: Membership, topic: TopicName, positions: dict[int, Position]
) -> Request[list[int]]:
    """The reply has the error codes."""
    return Request(
        Api.TXN_OFFSET_COMMIT,
        lambda make: make.TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=member.group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            topics=(
                make.TxnOffsetCommitRequestTopic(
                    name=topic.name,
                    partitions=tuple(
                        make.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index, (offset, metadata) in positions.items()
                    ),
                ),
            ),
        ),
        lambda response: [int(each.error_code) for topic in response.topics for each in topic.partitions],
    )


class EndTxnReply(NamedTuple):
    code: int
    producer_id: int
    """Producer id and epoch from now on; -1 if the version does not have them."""
    epoch: int


def end_txn(producer: ProducerIdentity, *, commit: bool) -> Request[EndTxnReply]:
    return Request(
        Api.END_TXN,
        lambda make: make.EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        ),
        lambda response: EndTxnReply(
            int(response.error_code),
            getattr(response, "producer_id", -1),
            getattr(response, "producer_epoch", -1),
        ),
    )
