"""Offsets that groups have committed: written, read and deleted.

Whether a topic is there, and whether the client may use it, is seen to here, partition by partition; who may commit
for a group, and what is written, the group's coordinator decides. A response has a row for each partition that was
asked for, in the client's order.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import (
    FetchedOffset,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchReply,
    PartitionsReply,
    WantedOffset,
)
from penstock.metadata import NO_UUID
from penstock.wire import Api

from .support.commit_parts import (
    FIRST_WITH_IDS,
    CommitTopic,
    commit_asked,
    is_there,
    named,
    sift_commit,
    topic_error,
)
from .support.context import AclResourceType, Call, Context, Operation
from .support.response_fields import NO_THROTTLE, uuid_out
from .support.time_slices import in_turns
from .support.waiting import after, after_all, chained

FIRST_WITH_GROUPS = 8
"""Of OffsetFetch: many groups in one request (KIP-709)."""


# -- committed ------------------------------------------------------------------------------------------


def offset_commit(context: Context, call: Call) -> Any | Promise[Any]:
    """OffsetCommit 2 to 10: how far a group has come, by one of its members, or by anybody where it has none.

    A partition that is not there gets UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID, and the others are
    committed. What refuses the commit as such is said in each of them.

    Versions 2 to 4 say how long offsets are kept, which since is `offsets.retention.minutes`; 6 has leader epochs, 7
    static members, 8 is flexible, 9 is for members of the consumer protocol, and can be told of stale epochs and of
    groups that are not there, 10 has ids of topics.
    """
    request = call.message
    topics = [(named(context, call, each), each) for each in request.topics]
    sifted = sift_commit(context, call)
    if sifted is None:
        return _committed(call, topics, lambda *_: ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = sifted.refused

    def respond(reply: PartitionsReply) -> Any:
        codes = {(each.topic, each.partition): each.code for each in reply.partitions}
        return _committed(
            call,
            topics,
            lambda topic, number: refused.get((topic, number)) or codes.get((topic.name, number), reply.code),
        )

    if not sifted.partitions:
        return respond(PartitionsReply())
    return after(context.groups.handle(request.group_id, commit_asked(call, sifted.partitions)), respond)


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
    """None for all that it has committed."""
    member_id: str | None = None
    member_epoch: int = -1


class GroupOffsets(NamedTuple):
    """And of its answer."""

    code: ErrorCode
    topics: tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...] = ()


OFFSETS_A_TURN: Final = 1000
"""Offsets that are told of before others are served: some 3 ms."""


def offset_fetch(context: Context, call: Call) -> Any | Promise[Any]:
    """OffsetFetch 1 to 10: how far groups have come; offset -1 where nothing is committed.

    A group that is not there has committed nothing, which is no error. Without topics all that a group has is told, as
    far as the client may describe it.

    Version 2 takes null for all topics and has an error for the group, which before was said in each partition; 5
    tells leader epochs, 6 is flexible, 7 can have UNSTABLE_OFFSET_COMMIT where a transaction is open (KIP-447), 8 asks
    for many groups (KIP-709), 9 has members' epochs and is told STALE_MEMBER_EPOCH, 10 has ids of topics: what is
    committed for topics that have none is left out.
    """
    wanted = _wanted(context, call)
    require_stable = getattr(call.message, "require_stable", False)
    answers = [_fetch(context, call, each, require_stable) for each in wanted]
    return chained(
        after_all(answers, lambda fetched: fetched),
        lambda fetched: in_turns(context.world, _fetch_response(call, wanted, fetched)),
    )


def _wanted(context: Context, call: Call) -> list[GroupRequest]:
    request = call.message

    def topics(rows: Iterable[Any] | None) -> tuple[tuple[CommitTopic, tuple[int, ...]], ...] | None:
        if rows is None:
            return None
        return tuple((named(context, call, each), tuple(each.partition_indexes)) for each in rows)

    if call.version < FIRST_WITH_GROUPS:
        return [GroupRequest(request.group_id, topics(request.topics))]
    # A group that is named again is told of once: each may have thousands of offsets.
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


def _fetch(context: Context, call: Call, wanted: GroupRequest, require_stable: bool) -> Promise[GroupOffsets]:
    later: Promise[GroupOffsets] = Promise()
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, wanted.group):
        later.resolve(GroupOffsets(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return later
    refused: dict[CommitTopic, ErrorCode] = {}
    partitions: list[WantedOffset] | None = None
    if wanted.topics is not None:
        partitions = []
        for topic, numbers in wanted.topics:
            code = topic_error(context, call, topic, Operation.DESCRIBE)
            if code is ErrorCode.NONE:
                partitions += (WantedOffset(topic.name, number, topic.id) for number in numbers)
            else:
                refused[topic] = code
    asked = OffsetFetch(
        wanted.group,
        None if partitions is None else tuple(partitions),
        wanted.member_id,
        wanted.member_epoch,
        require_stable,
    )

    def told(reply: OffsetFetchReply) -> None:
        if reply.code is not ErrorCode.NONE:
            later.resolve(GroupOffsets(reply.code))
        elif wanted.topics is None:
            later.resolve(GroupOffsets(ErrorCode.NONE, _all_of(context, call, reply.offsets)))
        else:
            later.resolve(GroupOffsets(ErrorCode.NONE, _asked_for(wanted.topics, reply.offsets, refused)))

    context.groups.handle(wanted.group, asked).then(told)
    return later


def _all_of(
    context: Context, call: Call, offsets: tuple[FetchedOffset, ...]
) -> tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...]:
    """What a group has committed, by topic, as far as the client may know and its version can say."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for each in offsets:
        by_topic.setdefault(each.topic, []).append(each)
    told = []
    for name, rows in by_topic.items():
        if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name):
            continue
        topic = context.image.topics.get(name)
        if call.version >= FIRST_WITH_IDS and topic is None:
            continue
        told.append((CommitTopic(name, NO_UUID if topic is None else topic.id), tuple(rows)))
    return tuple(told)


def _asked_for(
    topics: tuple[tuple[CommitTopic, tuple[int, ...]], ...],
    offsets: tuple[FetchedOffset, ...],
    refused: dict[CommitTopic, ErrorCode],
) -> tuple[tuple[CommitTopic, tuple[FetchedOffset, ...]], ...]:
    """The coordinator's rows, which are in the order of the question, with those of refused topics in their places."""
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
    call: Call, wanted: list[GroupRequest], fetched: list[GroupOffsets]
) -> Generator[None, None, Any]:
    make, version = call.make, call.version
    if version >= FIRST_WITH_GROUPS:
        groups = []
        for asked, each in zip(wanted, fetched, strict=True):
            topics = yield from _fetched_topics(call, each, make.OffsetFetchResponseTopics, "Partitions")
            groups.append(
                make.OffsetFetchResponseGroup(group_id=asked.group, topics=topics, error_code=each.code)
            )
        return make.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
    [asked], [one] = wanted, fetched
    if version < 2 and one.code is not ErrorCode.NONE:
        rows = tuple(
            (topic, tuple(FetchedOffset(topic.name, number, code=one.code) for number in numbers))
            for topic, numbers in asked.topics or ()
        )
        one = GroupOffsets(one.code, rows)
    topics = yield from _fetched_topics(call, one, make.OffsetFetchResponseTopic, "Partition")
    return make.OffsetFetchResponse(throttle_time=NO_THROTTLE, topics=topics, error_code=one.code)


def _fetched_topics(
    call: Call, fetched: GroupOffsets, make_topic: Callable[..., Any], suffix: str
) -> Generator[None, None, tuple[Any, ...]]:
    make_partition = getattr(call.make, f"OffsetFetchResponse{suffix}")
    topics: list[Any] = []
    told = 0
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
            told += 1
            if told % OFFSETS_A_TURN == 0:
                yield
        topics.append(make_topic(**_name_of(call, topic), partitions=tuple(partitions)))
    return tuple(topics)


# -- deleted --------------------------------------------------------------------------------------------


def offset_delete(context: Context, call: Call) -> Any | Promise[Any]:
    """OffsetDelete 0: offsets are forgotten, of topics that no live member is subscribed to (KIP-496).

    Such a one gets GROUP_SUBSCRIBED_TO_TOPIC, a partition that is not there UNKNOWN_TOPIC_OR_PARTITION. A group that
    is not there is GROUP_ID_NOT_FOUND, one whose members are no consumers NON_EMPTY_GROUP, and nothing is looked at.
    """
    make, request = call.make, call.message
    if not context.authorize(call.session, Operation.DELETE, AclResourceType.GROUP, request.group_id):
        return make.OffsetDeleteResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, throttle_time=NO_THROTTLE, topics=()
        )
    refused: dict[tuple[str, int], ErrorCode] = {}
    places: list[tuple[str, int]] = []
    for topic in request.topics:
        may = context.authorize(call.session, Operation.READ, AclResourceType.TOPIC, topic.name)
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            if not may:
                refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not is_there(context, *place):
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                places.append(place)

    def respond(reply: PartitionsReply) -> Any:
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

    answer = context.groups.handle(request.group_id, OffsetDelete(request.group_id, tuple(places)))
    return after(answer, respond)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.OFFSET_DELETE: offset_delete,
}
