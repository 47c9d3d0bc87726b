"""Requests and replies of transactional producers, in any version. See also `messages`."""

from typing import NamedTuple

from penstock.sim.clients.group_messages import Membership, Position
from penstock.sim.clients.messages import TopicName, request_classes
from penstock.wire import Api, read_response, write_request


class ProducerIdentity(NamedTuple):
    """Identity of a transactional producer."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


def add_partitions(version: int, who: ProducerIdentity, topic: str, partitions: list[int]) -> bytes:
    """Versions up to 3, which clients use; later ones are for brokers."""
    make = request_classes(Api.ADD_PARTITIONS_TO_TXN, version)
    entity = make.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=(make.AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions)),),
    )
    return write_request(Api.ADD_PARTITIONS_TO_TXN, version, entity)


def read_add_partitions(version: int, body: memoryview) -> list[int]:
    """The error codes."""
    response = read_response(Api.ADD_PARTITIONS_TO_TXN, version, body)
    return [
        int(each.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def add_offsets(version: int, who: ProducerIdentity, group: str) -> bytes:
    make = request_classes(Api.ADD_OFFSETS_TO_TXN, version)
    entity = make.AddOffsetsToTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group,
    )
    return write_request(Api.ADD_OFFSETS_TO_TXN, version, entity)


def read_add_offsets(version: int, body: memoryview) -> int:
    return int(read_response(Api.ADD_OFFSETS_TO_TXN, version, body).error_code)


def txn_offset_commit(
    version: int, who: ProducerIdentity, member: Membership, topic: TopicName, positions: dict[int, Position]
) -> bytes:
    make = request_classes(Api.TXN_OFFSET_COMMIT, version)
    entity = make.TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=member.group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
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
    )
    return write_request(Api.TXN_OFFSET_COMMIT, version, entity)


def read_txn_offset_commit(version: int, body: memoryview) -> list[int]:
    """The error codes."""
    response = read_response(Api.TXN_OFFSET_COMMIT, version, body)
    return [int(each.error_code) for topic in response.topics for each in topic.partitions]


def end_txn(version: int, who: ProducerIdentity, *, commit: bool) -> bytes:
    make = request_classes(Api.END_TXN, version)
    entity = make.EndTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
    )
    return write_request(Api.END_TXN, version, entity)


class EndTxnReply(NamedTuple):
    code: int
    producer_id: int
    """Producer id and epoch from now on; -1 if the version does not have them."""
    epoch: int


def read_end_txn(version: int, body: memoryview) -> EndTxnReply:
    response = read_response(Api.END_TXN, version, body)
    return EndTxnReply(
        int(response.error_code),
        getattr(response, "producer_id", -1),
        getattr(response, "producer_epoch", -1),
    )
