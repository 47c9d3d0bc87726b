"""What a request about committed offsets names, and what of a commit is the coordinator's business.

Which topics are there, and which the client may use, is found out before the coordinator is asked, partition by
partition.
"""

from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.groups.requests import CommittedPartition, OffsetCommit
from penstock.metadata import NO_UUID

from .context import AclResourceType, Call, Context, Operation
from .controller_call import wait_ms_of
from .response_fields import uuid_in

FIRST_WITH_IDS = 10
"""Of both OffsetCommit and OffsetFetch (KIP-848)."""
FIRST_WITH_MEMBER_EPOCHS = 9


class CommitTopic(NamedTuple):
    """A topic of a request: by name, or by id with the name that goes with it, "" where there is none."""

    name: str
    id: Uuid = NO_UUID


def named(context: Context, call: Call, topic: Any) -> CommitTopic:
    if call.version < FIRST_WITH_IDS:
        return CommitTopic(topic.name)
    topic_id = uuid_in(topic.topic_id)
    found = None if topic_id == NO_UUID else context.image.topic_by_id(topic_id)
    return CommitTopic("" if found is None else found.name, topic_id)


def topic_error(context: Context, call: Call, topic: CommitTopic, operation: Operation) -> ErrorCode:
    """What keeps a client from a topic's offsets, whatever the partition."""
    if call.version >= FIRST_WITH_IDS and not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.authorize(call.session, operation, AclResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def is_there(context: Context, topic: str, partition: int) -> bool:
    held = context.image.topics.get(topic)
    return held is not None and partition in held.partitions


class SiftedCommit(NamedTuple):
    """What of a commit the coordinator is asked for, in the client's order, and what is refused before."""

    partitions: list[CommittedPartition]
    refused: dict[tuple[CommitTopic, int], ErrorCode]


def sift_commit(context: Context, call: Call) -> SiftedCommit | None:
    """None for a client that may not commit for the group."""
    if not context.authorize(call.session, Operation.READ, AclResourceType.GROUP, call.message.group_id):
        return None
    sifted = SiftedCommit([], {})
    for row in call.message.topics:
        topic = named(context, call, row)
        whole = topic_error(context, call, topic, Operation.READ)
        for each in row.partitions:
            number = each.partition_index
            code = whole
            if code is ErrorCode.NONE and not is_there(context, topic.name, number):
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


def commit_asked(call: Call, partitions: list[CommittedPartition]) -> OffsetCommit:
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
