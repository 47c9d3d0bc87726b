"""Consumer groups: listed, described, how far they lag, moved to other offsets, deleted.

Members that come through any door are shown: Kafka clients of both protocols, and those of `/join`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from heapq import nsmallest
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, TopicPartition, Uuid
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.steps import Steps, next_tick
from penstock.coordinator.groups.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_topics
from penstock.coordinator.groups.requests import (
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    ListGroups,
    OffsetFetch,
)
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import (
    GROUP_CHARS_MAX,
    MOMENT,
    PARTITION_MAX,
    TopicName,
    one_of,
    parse_moment,
)
from penstock.gateway.line.offsets import commit
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.coordinators import ask_group, list_groups
from penstock.gateway.peer_rpc.messages import GetLagTimes
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.peer_rpc.service import lag_times
from penstock.gateway.shared.access import CLUSTER, GROUP, TOPIC, Need, Rule
from penstock.gateway.shared.ranges import RangeQuery, resolve
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.consumer_groups import is_enabled
from penstock.handlers.support.context import Context
from penstock.metadata.acls import CLUSTER_NAME, Operation
from penstock.records.structs import CorruptStruct

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000

PARTITIONS_A_TICK: Final = 500

_STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
    "Dead",
)
"""Of groups of both protocols."""

_DEAD: Final = "Dead"
"""The state of a group that does not exist."""

_NOT_A_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""Errors for a commit by a client that is not a member of a group with members."""


_DESCRIBE_GROUP: Final = Need(Operation.DESCRIBE, GROUP, "group")
_DESCRIBE_TOPIC: Final = Need(Operation.DESCRIBE, TOPIC, "topic")

ROUTES = Routes("groups")


class GroupListing(msgspec.Struct):
    group: str
    state: str
    type: str
    """`classic` or `consumer`: the rebalance protocol."""
    protocol_type: str


class GroupList(msgspec.Struct):
    groups: list[GroupListing]
    """In order of name."""
    next: str | None
    """The `after` of the next page; null on the last page."""


class MemberDescription(msgspec.Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed: list[str]
    assignments: dict[str, list[int]]
    """The assigned partitions, by topic."""


class GroupDescription(msgspec.Struct):
    group: str
    state: str
    type: str
    protocol: str
    """Name of the assignor; empty if none is chosen yet."""
    epoch: int | None
    """Group epoch; null for a classic group."""
    members: list[MemberDescription]


class PartitionLag(msgspec.Struct):
    topic: str
    partition: int
    committed: int | None
    """The committed offset; null if there is none."""
    end: int | None
    """The high watermark; null if the partition has no leader or was deleted."""
    lag: int | None
    """`end` minus `committed`; without a committed offset, all offsets of the partition."""
    lag_seconds: float | None
    """How long ago the first record was written that is not consumed: now minus its timestamp. 0 if there is none,
    null if it is not known."""
    member_id: str | None
    """The member that is assigned the partition."""


class GroupLag(msgspec.Struct):
    group: str
    state: str
    lag: int
    """Sum over all partitions."""
    lag_seconds: float
    """Largest of all partitions."""
    partitions: list[PartitionLag]


_RESET_TARGET: Final = one_of("earliest", "latest", MOMENT)


class ResetOffsetsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New committed offsets of a group."""

    topic: TopicName
    to: (
        Annotated[int, Meta(ge=0)]
        | Annotated[str, Meta(max_length=64, extra_json_schema={"pattern": _RESET_TARGET})]
    )
    """`earliest`, `latest`, an offset as a number, or a time as text: ISO 8601, or milliseconds since 1970."""
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)] | None = None
    """Default: all partitions of the topic."""


class PartitionOffset(msgspec.Struct):
    partition: int
    offset: int


class ResetOffsetsResponse(msgspec.Struct):
    group: str
    topic: str
    partitions: list[PartitionOffset]


class DeleteGroupResponse(msgspec.Struct):
    status: str = "deleted"


def _check(code: ErrorCode, message: str) -> None:
    if code is not ErrorCode.NONE:
        raise KafkaError(message, code)


def _absent(group: str) -> KafkaError:
    return KafkaError(f"no such group: {group!r}", ErrorCode.GROUP_ID_NOT_FOUND)


# -- listing and describing ------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/groups",
    "List groups in order of name.",
    query=(
        Query("after", str, "Only names after this one, in order.", max=GROUP_CHARS_MAX),
        Query("limit", int, "Maximum number of groups.", default=LISTED, min=1, max=LISTED_MAX),
        Query(
            "state",
            str,
            "Only groups in this state. Lower case works too.",
            one_of=(*_STATES, *map(str.lower, _STATES)),
        ),
        Query("type", str, "Only groups of this protocol.", one_of=("classic", "consumer")),
    ),
    answer=GroupList,
    rule=Rule(shows=(Need(Operation.DESCRIBE, GROUP, "group", or_on_cluster=True),)),
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    after, limit = request.query["after"], request.query["limit"]
    state, kind = request.query["state"], request.query["type"]
    asked = ListGroups(
        frozenset() if state is None else frozenset({state.lower()}),
        frozenset() if kind is None else frozenset({kind}),
    )
    sees_all = context.permits(request.session, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    reply = yield from list_groups(context, asked)
    _check(reply.code, "groups cannot be listed. Retry.")
    shown = (
        each
        for each in reply.groups
        if (after is None or each.group > after)
        and (sees_all or context.permits(request.session, Operation.DESCRIBE, GROUP, each.group))
    )
    found = nsmallest(limit + 1, shown, key=lambda each: each.group)
    rows = [GroupListing(each.group, each.state, each.type, each.protocol_type) for each in found[:limit]]
    return json(GroupList(rows, rows[-1].group if len(found) > limit else None))


@ROUTES.add(
    "GET",
    "/groups/{group}",
    "Describe a group and its members.",
    answer=GroupDescription,
    errors=(404,),
    rule=Rule((_DESCRIBE_GROUP,), shows=(_DESCRIBE_TOPIC,)),
)
def _describe(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    described = yield from _find(context, _group_in(request))
    for member in described.members:
        member.subscribed = [each for each in member.subscribed if _is_shown(context, request, each)]
        member.assignments = {
            topic: numbers
            for topic, numbers in member.assignments.items()
            if _is_shown(context, request, topic)
        }
    return json(described)


def _is_shown(context: Context, request: Request, topic: str) -> bool:
    return context.permits(request.session, Operation.DESCRIBE, TOPIC, topic)


@ROUTES.add(
    "DELETE",
    "/groups/{group}",
    "Delete a group that has no members, with its committed offsets.",
    answer=DeleteGroupResponse,
    errors=(404, 409),
    rule=Rule((Need(Operation.DELETE, GROUP, "group"),)),
)
def _delete(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group = _group_in(request)
    reply = yield from ask_group(context, group, DeleteGroups((group,)))
    code = reply.groups[0].code if reply.groups else reply.code
    if code is ErrorCode.GROUP_ID_NOT_FOUND or OFFSETS_TOPIC not in context.image.topics:
        raise _absent(group)
    if code is ErrorCode.NON_EMPTY_GROUP:
        raise KafkaError(f"group {group!r} has members. Only an empty group can be deleted.", code)
    _check(code, f"group {group!r} could not be deleted")
    return json(DeleteGroupResponse())


def _group_in(request: Request) -> str:
    group = request.path["group"]
    if not 0 < len(group) <= GROUP_CHARS_MAX:
        raise KafkaError("the group id is too long", ErrorCode.INVALID_GROUP_ID)
    return group


def _find(context: Context, group: str) -> Steps[GroupDescription]:
    """The group, whichever protocol it speaks."""
    if OFFSETS_TOPIC not in context.image.topics:
        raise _absent(group)  # the offsets topic does not exist yet: no group was ever used
    if is_enabled(context):
        reply = yield from ask_group(context, group, ConsumerGroupDescribe((group,)))
        found: DescribedConsumerGroup = (
            reply.groups[0] if reply.groups else DescribedConsumerGroup(group, reply.code)
        )
        if found.code is ErrorCode.NONE:
            return _consumer_group(found)
        if found.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise KafkaError(found.message or f"group {group!r} cannot be described now", found.code)
    reply = yield from ask_group(context, group, DescribeGroups((group,)))
    classic: DescribedGroup = reply.groups[0] if reply.groups else DescribedGroup(group, reply.code)
    if classic.code is ErrorCode.GROUP_ID_NOT_FOUND or classic.state == _DEAD:
        raise _absent(group)
    _check(classic.code, classic.message or f"group {group!r} cannot be described now")
    members = [_classic_member(each, classic.protocol_type) for each in classic.members]
    return GroupDescription(group, classic.state, "classic", classic.protocol, None, members)


def _consumer_group(found: DescribedConsumerGroup) -> GroupDescription:
    members = [
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            list(each.subscribed_names),
            {topic.topic: list(topic.partitions) for topic in each.assignment},
        )
        for each in found.members
    ]
    return GroupDescription(found.group, found.state, "consumer", found.assignor, found.group_epoch, members)


def _classic_member(member: DescribedMember, protocol_type: str) -> MemberDescription:
    topics: list[str] = []
    assignments: dict[str, list[int]] = {}
    if protocol_type == PROTOCOL_TYPE:  # members of Connect, say, put something else into these bytes
        try:
            topics = list(read_topics(member.metadata)) if member.metadata else []
            assigned = read_assignment(member.assignment).assigned_partitions if member.assignment else ()
            assignments = {each.topic: sorted(each.partitions) for each in assigned}
        except CorruptStruct:
            pass  # a client's own mistake; the rest of the group is shown all the same
    return MemberDescription(
        member.member_id, member.instance_id, member.client_id, member.client_host, topics, assignments
    )


# -- lag -------------------------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/groups/{group}/lag",
    "Lag of a group, by partition.",
    answer=GroupLag,
    errors=(404,),
    rule=Rule((_DESCRIBE_GROUP,), shows=(_DESCRIBE_TOPIC,)),
)
def _lag(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group = _group_in(request)
    described = yield from _find(context, group)
    reply = yield from ask_group(context, group, OffsetFetch(group, None))
    _check(reply.code, f"the offsets of group {group!r} cannot be read now")
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in reply.offsets if each.offset >= 0
    }
    members = dict(_assigned(described.members))
    names = [each for each in sorted({*committed, *members}) if _is_shown(context, request, each.topic)]
    led = yield from _led_partitions(context, names)
    ages = yield from _ages(context, led, committed)
    rows = []
    for count, name in enumerate(names, 1):
        rows.append(_row(name, led.get(name), committed.get(name), ages.get(name), members.get(name)))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    total = sum(row.lag or 0 for row in rows)
    longest = max((row.lag_seconds or 0.0 for row in rows), default=0.0)
    return json(GroupLag(group, described.state, total, longest, rows))


def _assigned(members: Iterable[MemberDescription]) -> Iterator[tuple[TopicPartition, str]]:
    for member in members:
        for topic, partitions in member.assignments.items():
            for number in partitions:
                yield TopicPartition(topic, number), member.member_id


def _led_partitions(
    context: Context, names: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, RoutedPartition]]:
    """Those of the partitions that are there and have a leader."""
    found = {}
    for name in names:
        known = context.image.partition(*name)
        if known is not None and known.leader >= 0:
            found[name] = find_partition(context, *name)
    yield from look_up_bounds(context, list(found.values()))
    return found


def _ages(
    context: Context,
    led: Mapping[TopicPartition, RoutedPartition],
    committed: Mapping[TopicPartition, Offset],
) -> Steps[dict[TopicPartition, float | None]]:
    """The lag in seconds of each partition, from its leader; those of a leader that does not answer are left out."""
    by_leader: dict[int | None, dict[TopicPartition, tuple[Uuid, int, Offset]]] = {}
    found: dict[TopicPartition, float | None] = {}
    for name, partition in led.items():
        offset = committed.get(name, partition.log_start)
        if offset >= partition.high_watermark:
            found[name] = 0.0
            continue
        with suppress(KafkaError):  # the partition has just lost its leader
            leader = None if partition.here is not None else partition.leader
            by_leader.setdefault(leader, {})[name] = (*partition.key, offset)
    for leader, asked in by_leader.items():
        offsets = tuple(asked.values())
        with suppress(KafkaError):
            if leader is None:
                ages = yield from lag_times(context, offsets)
            else:
                ages = yield peer_rpc_of(context).send(leader, GetLagTimes(offsets))
            found |= zip(asked, ages, strict=True)
    return found


def _row(
    name: TopicPartition,
    partition: RoutedPartition | None,
    committed: Offset | None,
    seconds: float | None,
    member: str | None,
) -> PartitionLag:
    end = None if partition is None else partition.high_watermark
    lag = None
    if partition is not None and end is not None:
        lag = max(end - (partition.log_start if committed is None else committed), 0)
    return PartitionLag(name.topic, name.partition, committed, end, lag, seconds, member)


# -- changing --------------------------------------------------------------------------------------------------


def _moment(text: str) -> TimestampMs:
    if re.fullmatch(MOMENT, text) is None:
        raise HttpError(
            400,
            "invalid_body",
            f"to is {text!r}, expected earliest, latest, an offset as a number such as 42, or a time as text: "
            "2026-01-31T12:00:00Z, or milliseconds since 1970",
        )
    return parse_moment("to", text)


@ROUTES.add(
    "POST",
    "/groups/{group}/offsets",
    "Reset the committed offsets of a group that has no members: to an offset, a time, `earliest` or `latest`.",
    body=ResetOffsetsRequest,
    answer=ResetOffsetsResponse,
    errors=(404, 409),
    rule=Rule((Need(Operation.READ, GROUP, "group"), Need(Operation.READ, TOPIC, "topic"))),
)
def _move(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group = _group_in(request)
    wanted: ResetOffsetsRequest = request.body
    topic = find_topic(context, wanted.topic)
    numbers = sorted(topic.partitions) if wanted.partition is None else [wanted.partition]
    partitions = [find_partition(context, topic.name, number) for number in numbers]
    match wanted.to:
        case int(offset):
            ends = RangeQuery(offset=offset)
        case "earliest":
            ends = RangeQuery()
        case "latest":
            ends = RangeQuery(from_end=0)
        case text:
            ends = RangeQuery(since_ms=_moment(text))
    ranges = yield from resolve(context, partitions, ends)
    moved = {each.partition.number: each.start for each in ranges}
    try:
        yield from commit(context, group, topic, moved)
    except KafkaError as error:
        if error.code in _NOT_A_MEMBER:
            raise HttpError(409, "non_empty_group", str(error)) from error
        raise
    return json(ResetOffsetsResponse(group, topic.name, [PartitionOffset(*each) for each in moved.items()]))
