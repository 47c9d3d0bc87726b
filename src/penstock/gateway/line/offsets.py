"""Fetches and commits a group's offsets through its coordinator, as a Kafka client that is not a member.

The coordinator accepts such commits while the group has no members. The offsets topic is created on first use, and a
coordinator that is loading is waited for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps, sleep
from penstock.coordinator.groups.consumer.member import HTTP_CLIENT_ID
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    ConsumerGroupDescribe,
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


def commit(context: Context, group: str, topic: Topic, offsets: Mapping[int, Offset]) -> Steps[None]:
    """Commit offsets. Returns when they are durable."""
    rows = tuple(
        CommittedPartition(topic.name, number, offset, topic_id=topic.id)
        for number, offset in offsets.items()
    )
    reply = yield from _ask(context, group, OffsetCommit(group, rows))
    for each in reply.partitions:
        _check(each.code, group)


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
        raise KafkaError(
            f"group {group!r} has members ({members}): only they may commit its offsets", reply.code
        )
    _check(reply.code, group)
    return reply


def _members(context: Context, group: str) -> Steps[str]:
    """The members of a group, for an error message."""
    found = yield from ask_group(context, group, DescribeGroups((group,)))
    members = [each for row in found.groups for each in row.members]
    if not members:
        found = yield from ask_group(context, group, ConsumerGroupDescribe((group,)))
        members = [each for row in found.groups for each in row.members]
    if not members:
        return "members that joined it"
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
