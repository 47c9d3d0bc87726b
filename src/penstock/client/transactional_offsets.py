"""Offsets of a group, committed as a part of a transaction: they count if the transaction does.

From `transaction.version` 2 on the group's partition joins with the commit itself; below, AddOffsetsToTxn comes first.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_LEADER_EPOCH, Offset, TopicPartition
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .coordinators import Kind, ask_coordinator
from .errors import refused
from .transactional import OpenTransaction

COMMIT_ADDS_GROUP: Final = 5
"""The version of TxnOffsetCommit with which a group joins the transaction by itself."""
NO_MEMBER: Final = -1
"""The generation of a commit from outside of the group."""


def commit_in_transaction(
    cluster: Cluster,
    transaction: OpenTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, Offset],
    *,
    metadata: str = "",
    epoch_bumps: bool,
) -> None:
    """Set offsets of a group that has no members, if and when the transaction commits."""
    if not epoch_bumps:
        _join(cluster, transaction, group_id)
    by_topic: dict[str, list[TopicPartition]] = {}
    for each in offsets:
        by_topic.setdefault(each.topic, []).append(each)

    def build(make: Any) -> Any:
        return make.TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=group_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            generation_id=NO_MEMBER,
            member_id="",
            group_instance_id=None,
            topics=tuple(
                make.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        make.TxnOffsetCommitRequestPartition(
                            partition_index=each.partition,
                            committed_offset=offsets[each],
                            committed_leader_epoch=NO_LEADER_EPOCH,
                            committed_metadata=metadata,
                        )
                        for each in partitions
                    ),
                )
                for topic, partitions in by_topic.items()
            ),
        )

    request = through_kio(
        Api.TXN_OFFSET_COMMIT,
        build,
        version_min=COMMIT_ADDS_GROUP if epoch_bumps else 3,
        version_max=COMMIT_ADDS_GROUP if epoch_bumps else COMMIT_ADDS_GROUP - 1,
    )
    _, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, _first_error)
    code = _first_error(reply)
    if code:
        raise refused(f"offsets of group {group_id}", code)


def _first_error(reply: Any) -> int:
    codes = [int(each.error_code) for topic in reply.topics for each in topic.partitions]
    return next((code for code in codes if code), int(ErrorCode.NONE))


def _join(cluster: Cluster, transaction: OpenTransaction, group_id: str) -> None:
    request = through_kio(
        Api.ADD_OFFSETS_TO_TXN,
        lambda make: make.AddOffsetsToTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            group_id=group_id,
        ),
    )
    _, reply = ask_coordinator(
        cluster, Kind.TRANSACTION, transaction.transactional_id, request, lambda reply: int(reply.error_code)
    )
    code = int(reply.error_code)
    if code:
        raise refused(f"group {group_id} for transactional id {transaction.transactional_id}", code)
