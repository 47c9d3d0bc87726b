"""Fetches and commits a group's offsets through its coordinator, as a Kafka client that is not a member.

The coordinator accepts such commits while the group has no members. The offsets topic is created on first use, and a
coordinator that is loading is waited for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.steps import Steps, sleep
from penstock.coordinator.groups.consumer.member import HTTP_CLIENT_ID
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    ConsumerGroupDescribe,
    DescribedConsumer,
    DescribedMember,
    DescribeGroups,
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
    Request,
    WantedOffset,
)
from penstock.gateway.peer_rpc.coordinators import ask_group
from penstock.gateway.shared.topics import ensure_offsets_topic
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic

WAIT_MS_MAX = 10_000
"""How long to wait for a coordinator that is not available yet."""

RETRY_MS = 20

MEMBERS_SHOWN_MAX = 3

_NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)

_IN_USE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""Errors for a client that is not a member of a group with members."""


def committed(
    context: Context, group: str, topic: Topic, numbers: Sequence[int]
) -> Steps[dict[int, Offset | None]]:
    """The group's committed offsets in these partitions; None for a partition without one."""
    wanted = tuple(WantedOffset(topic.name, number, topic.id) for number in numbers)
    reply = yield from _ask(context, group, OffsetFetch(group, wanted))
    rows: tuple[FetchedOffset, ...] = reply.offsets
    for each in rows:
        _check(each.code, group)
    return {each.partition: each.offset if each.offset >= 0 else None for each in rows}


def all_committed(context: Context, group: str) -> Steps[dict[TopicPartition, Offset]]:
    """All committed offsets of a group; none if it does not exist."""
    if OFFSETS_TOPIC not in context.image.topics:
        return {}
    reply = yield from _ask(context, group, OffsetFetch(group, None))
    return {
        TopicPartition(each.topic, each.partition): each.offset for each in reply.offsets if each.offset >= 0
    }


def commit(context: Context, group: str, topic: Topic, offsets: Mapping[int, Offset]) -> Steps[None]:
    """Commit offsets in one topic. Returns when they are durable."""
    rows = [
        CommittedPartition(topic.name, number, offset, topic_id=topic.id)
        for number, offset in offsets.items()
    ]
    yield from commit_all(context, group, rows)


def commit_all(context: Context, group: str, rows: Iterable[CommittedPartition]) -> Steps[None]:
    """Commit offsets, all of them in one batch. Returns when they are durable."""
    reply = yield from _ask(context, group, OffsetCommit(group, tuple(rows)))
    for each in reply.partitions:
        _check(each.code, group)


def why_refused(context: Context, group: str) -> Steps[str | None]:
    """Why a commit by a client that is not a member would fail now; None if the group has no members."""
    if OFFSETS_TOPIC not in context.image.topics:
        return None
    members = yield from _members(context, group)
    return _in_use(group, _shown(members)) if members else None


def _in_use(group: str, members: str) -> str:
    return f"group {group!r} has members ({members}): only they may commit its offsets"


def _ask(context: Context, group: str, request: Request) -> Steps[Any]:
    yield from ensure_offsets_topic(context)
    reply = yield from ask_group(context, group, request)
    waited_ms = 0
    while reply.code in _NOT_YET and waited_ms < WAIT_MS_MAX:
        yield sleep(context.world, RETRY_MS)
        waited_ms += RETRY_MS
        reply = yield from ask_group(context, group, request)
    if reply.code in _IN_USE:
        members = yield from _members(context, group)
        shown = _shown(members) if members else "members that joined it"
        raise KafkaError(_in_use(group, shown), reply.code)
    _check(reply.code, group)
    return reply


def _members(context: Context, group: str) -> Steps[list[DescribedMember | DescribedConsumer]]:
    """The members of a group, of either protocol."""
    found = yield from ask_group(context, group, DescribeGroups((group,)))
    members = [each for row in found.groups for each in row.members]
    if not members:
        found = yield from ask_group(context, group, ConsumerGroupDescribe((group,)))
        members = [each for row in found.groups for each in row.members]
    return members


def _shown(members: Sequence[DescribedMember | DescribedConsumer]) -> str:
    """The members, for an error message."""
    shown = ", ".join(
        _member(each.member_id, each.client_id, each.client_host) for each in members[:MEMBERS_SHOWN_MAX]
    )
    return shown + (f" and {more} more" if (more := len(members) - MEMBERS_SHOWN_MAX) > 0 else "")


def _member(member_id: str, client_id: str, host: str) -> str:
    """A Kafka client by its client id, since its member id is random; an HTTP member by its name."""
    if client_id == HTTP_CLIENT_ID and not host.startswith("/"):
        return f"{member_id!r} over HTTP at {host}"
    return f"{client_id!r} at {host}"


def _check(code: ErrorCode, group: str) -> None:
    if code in _NOT_YET or code is ErrorCode.NOT_COORDINATOR:
        raise KafkaError(f"the coordinator of group {group!r} is moving to another broker. Retry.", code)
    if code is not ErrorCode.NONE:
        raise KafkaError(f"the coordinator of group {group!r} returned {code.name}", code)
