"""Topics and partitions of requests about committed offsets, checked before the coordinator is asked: whether they
exist, and whether the client is authorized."""

from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.groups.requests import CommittedPartition, OffsetCommit
from penstock.metadata.acls import AclResourceType, Operation
from penstock.records.structs import NO_UUID

from .context import Call, Context
from .controller_call import wait_ms_of
from .response_fields import uuid_in

FIRST_WITH_IDS = 10
"""The version of OffsetCommit and OffsetFetch with topic ids (KIP-848)."""
FIRST_WITH_MEMBER_EPOCHS = 9


class CommitTopic(NamedTuple):
    """A topic of a request, by name; or by id, with its name, which is empty for an unknown id."""

    name: str
    id: Uuid = NO_UUID


def commit_topic(context: Context, call: Call, topic: Any) -> CommitTopic:
    if call.version < FIRST_WITH_IDS:
        return CommitTopic(topic.name)
    topic_id = uuid_in(topic.topic_id)
    found = None if topic_id == NO_UUID else context.image.topic_by_id(topic_id)
    return CommitTopic("" if found is None else found.name, topic_id)


def topic_error(context: Context, call: Call, topic: CommitTopic, operation: Operation) -> ErrorCode:
    """The error of all partitions of a topic, or NONE."""
    if call.version >= FIRST_WITH_IDS and not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.authorize(call.session, operation, AclResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def partition_exists(context: Context, topic: str, partition: int) -> bool:
    held = context.image.topics.get(topic)
    return held is not None and partition in held.partitions


class SiftedCommit(NamedTuple):
    """The partitions of a commit that go to the coordinator, in the client's order, and the errors of the others."""

    partitions: list[CommittedPartition]
    refused: dict[tuple[CommitTopic, int], ErrorCode]


def sift_commit(context: Context, call: Call) -> SiftedCommit | None:
    """None for a client that is not authorized for the group."""
    if not context.authorize(call.session, Operation.READ, AclResourceType.GROUP, call.message.group_id):
        return None
    sifted = SiftedCommit([], {})
    for row in call.message.topics:
        topic = commit_topic(context, call, row)
        whole = topic_error(context, call, topic, Operation.READ)
        for each in row.partitions:
            number = each.partition_index
            code = whole
            if code is ErrorCode.NONE and not partition_exists(context, topic.name, number):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is not ErrorCode.NONE:
                sifted.refused[topic, number] = code
                continue
            sifted.partitions.append(
                CommittedPartition(
                    topic.name,
                    number,
                    each.committed_offset,
                    getattr(each, "committed_leader_epoch", -1),
                    each.committed_metadata,
                    topic.id,
                )
            )
    return sifted


def commit_request(call: Call, partitions: list[CommittedPartition]) -> OffsetCommit:
    request = call.message
    retention = getattr(request, "retention_time", None)
    return OffsetCommit(
        request.group_id,
        tuple(partitions),
        request.member_id,
        request.generation_id_or_member_epoch,
        getattr(request, "group_instance_id", None),
        -1 if retention is None else wait_ms_of(retention),
        knows_epochs=call.version >= FIRST_WITH_MEMBER_EPOCHS,
    )
