"""Committed offsets of groups.

    OffsetCommit 2 to 10
    OffsetFetch 1 to 10
    OffsetDelete 0

The handlers check that topics exist and that the client is authorized, for each partition. The group's coordinator
decides whether a member may commit. A response has a row for each requested partition, in the client's order.
OffsetCommits that repeat the last one of their connection take a fast path (`support.commit_fast_path`).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.base.steps import Steps, next_tick
from penstock.coordinator.groups.requests import (
    FetchedOffset,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchReply,
    PartitionsReply,
    WantedOffset,
)
from penstock.metadata.acls import AclResourceType, Operation
from penstock.records.structs import NO_UUID
from penstock.wire import Api

from .support.commit_parts import (
    FIRST_WITH_IDS,
    CommitTopic,
    commit_request,
    commit_topic,
    partition_exists,
    sift_commit,
    topic_error,
)
from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE, uuid_out
from .support.waiting import all_of, in_steps, settled

FIRST_WITH_GROUPS = 8
"""The version of OffsetFetch with many groups in one request (KIP-709)."""


# -- committed ------------------------------------------------------------------------------------------


@in_steps
def offset_commit(context: Context, call: Call) -> Steps[Any]:
    """OffsetCommit 2 to 10: commit offsets for a group, as one of its members, or as any client if it has none. Needs
    READ on the group and the topics.

    An unknown partition gets UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID, and the others are committed. An
    error of the whole commit is set in each partition.

    Version notes: 2 to 4 have a retention time, later `offsets.retention.minutes` applies; 6 adds leader epochs; 7
    static members; 8 is flexible; 9 adds members of the consumer protocol, and returns STALE_MEMBER_EPOCH and
    GROUP_ID_NOT_FOUND; 10 has topic ids.
    """
    request = call.message
    topics = [(commit_topic(context, call, each), each) for each in request.topics]
    sifted = sift_commit(context, call)
    if sifted is None:
        return _committed(call, topics, lambda *_: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = sifted.refused
    reply = PartitionsReply()
    if sifted.partitions:
        reply = yield context.groups.handle(request.group_id, commit_request(call, sifted.partitions))
    codes = {(each.topic, each.partition): each.code for each in reply.partitions}
    return _committed(
        call,
        topics,
        lambda topic, number: refused.get((topic, number)) or codes.get((topic.name, number), reply.code),
    )


def _committed(
    call: Call, topics: list[tuple[CommitTopic, Any]], code_of: Callable[[CommitTopic, int], ErrorCode]
) -> Any:
    make = call.make
    return make.OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make.OffsetCommitResponseTopic(
                **_name_of(call, topic),
                partitions=tuple(
                    make.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code_of(topic, each.partition_index)
                    )
                    for each in row.partitions
                ),
            )
            for topic, row in topics
        ),
    )


def _name_of(call: Call, topic: CommitTopic) -> dict[str, Any]:
    return {"topic_id": uuid_out(topic.id)} if call.version >= FIRST_WITH_IDS else {"name": topic.name}


# -- fetched --------------------------------------------------------------------------------------------


class GroupRequest(NamedTuple):
    """One group's part of an OffsetFetch."""

    group: str
    topics: tuple[tuple[CommitTopic, tuple[int, ...]], ...] | None
    """None for all committed offsets of the group."""
    member_id: str | None = None
    member_epoch: int = -1


class GroupOffsets(NamedTuple):
    """One group's part of the response."""

    code: ErrorCode
    topics: tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...] = ()


OFFSETS_A_TURN: Final = 1000
"""Offsets written to a response in one tick: some 3 ms."""


@in_steps
def offset_fetch(context: Context, call: Call) -> Steps[Any]:
    """OffsetFetch 1 to 10: committed offsets of groups; -1 where none is committed. Needs DESCRIBE on the group and
    the topics.

    A group that does not exist has no committed offsets, without an error. A request without topics gets all offsets
    of topics that the client may describe.

    Version notes: 2 accepts null for all topics, and has an error for the group, which before is set in each
    partition; 5 adds leader epochs; 6 is flexible; 7 can return UNSTABLE_OFFSET_COMMIT while a transaction is open
    (KIP-447); 8 has many groups (KIP-709); 9 adds member epochs, and returns STALE_MEMBER_EPOCH; 10 has topic ids, and
    leaves out topics without one.
    """
    groups = _groups(context, call)
    require_stable = getattr(call.message, "require_stable", False)
    asked = [_ask(context, call, each, require_stable) for each in groups]
    replies = yield all_of([reply for reply, _ in asked])
    fetched = [
        _fetched(context, call, group, reply, refused)
        for group, reply, (_, refused) in zip(groups, replies, asked, strict=True)
    ]
    return (yield from _fetch_response(context, call, groups, fetched))


def _groups(context: Context, call: Call) -> list[GroupRequest]:
    request = call.message

    def topics(rows: Iterable[Any] | None) -> tuple[tuple[CommitTopic, tuple[int, ...]], ...] | None:
        if rows is None:
            return None
        return tuple((commit_topic(context, call, each), tuple(each.partition_indexes)) for each in rows)

    if call.version < FIRST_WITH_GROUPS:
        return [GroupRequest(request.group_id, topics(request.topics))]
    # A group that is named twice gets one row: it may have thousands of offsets.
    groups = {each.group_id: each for each in reversed(request.groups)}
    return [
        GroupRequest(
            each.group_id,
            topics(each.topics),
            getattr(each, "member_id", None),
            getattr(each, "member_epoch", -1),
        )
        for each in reversed(groups.values())
    ]


def _ask(
    context: Context, call: Call, group: GroupRequest, require_stable: bool
) -> tuple[Promise[OffsetFetchReply], dict[CommitTopic, ErrorCode]]:
    """The coordinator's reply, and the errors of topics that it was not asked for."""
    refused: dict[CommitTopic, ErrorCode] = {}
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, group.group):
        return settled(OffsetFetchReply(ErrorCode.GROUP_AUTHORIZATION_FAILED)), refused
    partitions: list[WantedOffset] | None = None
    if group.topics is not None:
        partitions = []
        for topic, numbers in group.topics:
            code = topic_error(context, call, topic, Operation.DESCRIBE)
            if code is ErrorCode.NONE:
                partitions += (WantedOffset(topic.name, number, topic.id) for number in numbers)
            else:
                refused[topic] = code
    request = OffsetFetch(
        group.group,
        None if partitions is None else tuple(partitions),
        group.member_id,
        group.member_epoch,
        require_stable,
    )
    return context.groups.handle(group.group, request), refused


def _fetched(
    context: Context,
    call: Call,
    group: GroupRequest,
    reply: OffsetFetchReply,
    refused: dict[CommitTopic, ErrorCode],
) -> GroupOffsets:
    if reply.code is not ErrorCode.NONE:
        return GroupOffsets(reply.code)
    if group.topics is None:
        return GroupOffsets(ErrorCode.NONE, _all_of(context, call, reply.offsets))
    return GroupOffsets(ErrorCode.NONE, _requested(group.topics, reply.offsets, refused))


def _all_of(
    context: Context, call: Call, offsets: tuple[FetchedOffset, ...]
) -> tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...]:
    """All committed offsets of a group, by topic, that the client may describe and its version can express."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for each in offsets:
        by_topic.setdefault(each.topic, []).append(each)
    topics = []
    for name, rows in by_topic.items():
        if not context.permits(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        topic = context.image.topics.get(name)
        if call.version >= FIRST_WITH_IDS and topic is None:
            continue
        topics.append((CommitTopic(name, NO_UUID if topic is None else topic.id), tuple(rows)))
    return tuple(topics)


def _requested(
    topics: tuple[tuple[CommitTopic, tuple[int, ...]], ...],
    offsets: tuple[FetchedOffset, ...],
    refused: dict[CommitTopic, ErrorCode],
) -> tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...]:
    """The coordinator's offsets, which are in the order of the request, merged with the errors of refused topics."""
    found = iter(offsets)
    return tuple(
        (
            topic,
            tuple(
                FetchedOffset(topic.name, number, code=refused[topic]) if topic in refused else next(found)
                for number in numbers
            ),
        )
        for topic, numbers in topics
    )


def _fetch_response(
    context: Context, call: Call, groups: list[GroupRequest], fetched: list[GroupOffsets]
) -> Steps[Any]:
    make, version = call.make, call.version
    if version >= FIRST_WITH_GROUPS:
        rows = []
        for group, each in zip(groups, fetched, strict=True):
            topics = yield from _fetched_topics(
                context, call, each, make.OffsetFetchResponseTopics, "Partitions"
            )
            rows.append(
                make.OffsetFetchResponseGroup(group_id=group.group, topics=topics, error_code=each.code)
            )
        return make.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(rows))
    [group], [one] = groups, fetched
    if version < 2 and one.code is not ErrorCode.NONE:
        errors = tuple(
            (topic, tuple(FetchedOffset(topic.name, number, code=one.code) for number in numbers))
            for topic, numbers in group.topics or ()
        )
        one = GroupOffsets(one.code, errors)
    topics = yield from _fetched_topics(context, call, one, make.OffsetFetchResponseTopic, "Partition")
    return make.OffsetFetchResponse(throttle_time=NO_THROTTLE, topics=topics, error_code=one.code)


def _fetched_topics(
    context: Context, call: Call, fetched: GroupOffsets, make_topic: Callable[..., Any], suffix: str
) -> Steps[tuple[Any, ...]]:
    make_partition = getattr(call.make, f"OffsetFetchResponse{suffix}")
    topics: list[Any] = []
    count = 0
    for topic, rows in fetched.topics:
        partitions: list[Any] = []
        for each in rows:
            partitions.append(
                make_partition(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.code,
                )
            )
            count += 1
            if count % OFFSETS_A_TURN == 0:
                yield next_tick(context.world)
        topics.append(make_topic(**_name_of(call, topic), partitions=tuple(partitions)))
    return tuple(topics)


# -- deleted --------------------------------------------------------------------------------------------


@in_steps
def offset_delete(context: Context, call: Call) -> Steps[Any]:
    """OffsetDelete 0: delete committed offsets of topics that no member subscribes to (KIP-496). Needs DELETE on the
    group and READ on the topics.

    A subscribed topic gets GROUP_SUBSCRIBED_TO_TOPIC, an unknown partition UNKNOWN_TOPIC_OR_PARTITION. An unknown
    group gets GROUP_ID_NOT_FOUND, one whose members are not consumers NON_EMPTY_GROUP, for the whole request.
    """
    make, request = call.make, call.message
    if not context.authorize(call.session, Operation.DELETE, AclResourceType.GROUP, request.group_id):
        return make.OffsetDeleteResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, throttle_time=NO_THROTTLE, topics=()
        )
    refused: dict[tuple[str, int], ErrorCode] = {}
    partitions: list[tuple[str, int]] = []
    for topic in request.topics:
        may = context.authorize(call.session, Operation.READ, AclResourceType.TOPIC, topic.name)
        for each in topic.partitions:
            partition = (topic.name, each.partition_index)
            if not may:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not partition_exists(context, *partition):
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partitions.append(partition)
    reply = yield context.groups.handle(request.group_id, OffsetDelete(request.group_id, tuple(partitions)))
    codes = {(each.topic, each.partition): each.code for each in reply.partitions} | refused
    topics = () if reply.code is not ErrorCode.NONE else request.topics
    return make.OffsetDeleteResponse(
        error_code=reply.code,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    make.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ),
            )
            for topic in topics
        ),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.OFFSET_DELETE: offset_delete,
}
