"""Consumer groups: listed, described, how far they lag, deleted; and members removed.

Members that come through any door are shown: Kafka clients of both protocols, and those of `/join`.
"""

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Any, Final

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.base.steps import Steps, next_tick
from penstock.coordinator.groups.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_topics
from penstock.coordinator.groups.requests import (
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetFetch,
)
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import GROUP_CHARS_MAX
from penstock.gateway.peer_rpc.coordinators import ask_group, coordinator_of, list_groups, summarize_groups
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.shared.access import CLUSTER, GROUP, TOPIC, Need, Rule
from penstock.gateway.shared.group_lag import Position, lag_of
from penstock.handlers.consumer_groups import is_enabled
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import chosen_in_ticks
from penstock.metadata.acls import CLUSTER_NAME, Operation
from penstock.records.structs import CorruptStruct

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000

SUMMARIZED_MAX: Final = 1_000
"""Groups of a page with their lag."""

POSITIONS_MAX: Final = 20_000
"""Committed offsets of a page's groups at one coordinator, before the page ends early: a request for their ends is
a megabyte."""

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

_DESCRIBE_GROUP: Final = Need(Operation.DESCRIBE, GROUP, "group")
_DESCRIBE_TOPIC: Final = Need(Operation.DESCRIBE, TOPIC, "topic")

ROUTES = Routes("groups")


class GroupListing(msgspec.Struct, omit_defaults=True):
    group: str
    state: str
    type: str
    """`classic` or `consumer`: the rebalance protocol."""
    protocol_type: str
    coordinator: int | None = None
    """The broker that coordinates the group; left out while there is none. The following fields come with
    `lag=true`."""
    members: int | None = None
    """Number of members."""
    topics: list[str] | None = None
    """Topics with committed offsets or assigned partitions."""
    lag: int | None = None
    """Sum over the partitions whose lag is known."""
    lag_seconds: float | None = None
    """How long ago the oldest record was written that is not consumed; left out if that is not known."""
    unknown: int | None = None
    """Number of partitions whose lag is not known, because they have no leader, or it does not answer; left out if
    there are none."""
    spark: bool | None = None
    """True if a Spark query has committed the group's offsets."""


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
    coordinator: int | None = None
    """The broker that coordinates the group; null while there is none."""


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
    spark: bool = False
    """Whether a Spark query has committed its offsets."""


class DeleteGroupResponse(msgspec.Struct):
    status: str = "deleted"


def check_code(code: ErrorCode, message: str) -> None:
    """Raise the error of a coordinator's reply, if it has one."""
    if code is not ErrorCode.NONE:
        raise KafkaError(message, code)


def absent(group: str) -> KafkaError:
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
        Query("contains", str, "Only names with this text, in any case.", max=GROUP_CHARS_MAX),
        Query(
            "lag",
            bool,
            f"With members, topics and lag of each group. A page then has at most {SUMMARIZED_MAX} groups, and ends "
            f"early if they have many committed offsets.",
            default=False,
        ),
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
    check_code(reply.code, "groups cannot be listed. Retry.")
    contains = (request.query["contains"] or "").lower()
    shown = yield from chosen_in_ticks(
        context.world,
        reply.groups,
        lambda each: (
            (after is None or each.group > after)
            and contains in each.group.lower()
            and (sees_all or context.permits(request.session, Operation.DESCRIBE, GROUP, each.group))
        ),
    )
    if request.query["lag"]:
        limit = min(limit, SUMMARIZED_MAX)
    found = nsmallest(limit + 1, shown, key=lambda each: each.group)
    rows = [
        GroupListing(each.group, each.state, each.type, each.protocol_type, _coordinator(context, each.group))
        for each in found[:limit]
    ]
    last = found[limit - 1].group if len(found) > limit else None
    if request.query["lag"] and rows:
        listed = rows
        rows, looked_at = yield from retry_while_moving(context, lambda: _with_lag(context, request, listed))
        last = listed[looked_at - 1].group if looked_at < len(listed) else last
    return json(GroupList(rows, last))


def _coordinator(context: Context, group: str) -> int | None:
    try:
        found = coordinator_of(context, group)
    except KafkaError:
        return None
    return int(context.node_id) if found is None else found


def _with_lag(
    context: Context, request: Request, listed: list[GroupListing]
) -> Steps[tuple[list[GroupListing], int]]:
    """The rows with what `lag=true` adds, and how many of them were looked at before their positions were too many."""
    named = {each.group: each for each in listed}
    names, summaries = yield from summarize_groups(context, list(named), POSITIONS_MAX)
    asked: dict[str, list[Position]] = {}
    topics_shown: dict[str, bool] = {}
    count = 0
    for name in names:
        summary = summaries.get(name)
        positions = asked[name] = []
        for topic, partition, offset in () if summary is None else summary.positions:
            if topic not in topics_shown:
                topics_shown[topic] = _is_shown(context, request, topic)
            if topics_shown[topic]:
                positions.append((TopicPartition(topic, partition), offset if offset >= 0 else None))
            count += 1
            if count % PARTITIONS_A_TICK == 0:
                yield next_tick(context.world)
    lags = yield from lag_of(context, (each for some in asked.values() for each in some), retries=False)
    rows = []
    for name in names:
        row = named[name]
        summary = summaries.get(name)
        if summary is None:
            continue  # deleted meanwhile
        found = [lags[each] for each in asked[name]]
        seconds = [each.seconds for each in found if each.seconds is not None]
        rows.append(row)
        row.state, row.members = summary.state, summary.members
        row.topics = sorted({each.topic for each, _ in asked[name]})
        row.lag = sum(each.lag or 0 for each in found)
        row.lag_seconds = max(seconds) if seconds else 0.0 if not row.lag else None
        row.unknown = sum(each.lag is None for each in found) or None
        row.spark = summary.metadata == COMMIT_METADATA or None
        count += len(found)
        if count >= PARTITIONS_A_TICK:
            count = 0
            yield next_tick(context.world)
    return rows, len(names)


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
    described = yield from _find(context, group_in(request))
    described.coordinator = _coordinator(context, described.group)
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
    group = group_in(request)
    reply = yield from ask_group(context, group, DeleteGroups((group,)))
    code = reply.groups[0].code if reply.groups else reply.code
    if code is ErrorCode.GROUP_ID_NOT_FOUND or OFFSETS_TOPIC not in context.image.topics:
        raise absent(group)
    if code is ErrorCode.NON_EMPTY_GROUP:
        raise KafkaError(f"group {group!r} has members. Only an empty group can be deleted.", code)
    check_code(code, f"group {group!r} could not be deleted")
    return json(DeleteGroupResponse())


class RemoveMemberResponse(msgspec.Struct):
    status: str = "removed"


@ROUTES.add(
    "DELETE",
    "/groups/{group}/members/{member}",
    "Remove a member from a group, as if it had left. Its partitions are assigned to others. A client that still runs "
    "notices with its next heartbeat, and joins again.",
    answer=RemoveMemberResponse,
    errors=(404,),
    rule=Rule((Need(Operation.READ, GROUP, "group"),)),
)
def _remove_member(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group, member = group_in(request), request.path["member"]
    described = yield from _find(context, group)
    known = next((each for each in described.members if each.member_id == member), None)
    if known is None:
        raise KafkaError(f"group {group!r} has no member {member!r}", ErrorCode.UNKNOWN_MEMBER_ID)
    reply = yield from ask_group(
        context, group, LeaveGroup(group, (LeavingMember(member, known.instance_id),))
    )
    code = reply.members[0].code if reply.members else reply.code
    check_code(code, f"member {member!r} of group {group!r} could not be removed")
    return json(RemoveMemberResponse())


def group_in(request: Request) -> str:
    """The group in the path."""
    group = request.path["group"]
    if not 0 < len(group) <= GROUP_CHARS_MAX:
        raise KafkaError("the group id is too long", ErrorCode.INVALID_GROUP_ID)
    return group


def _find(context: Context, group: str) -> Steps[GroupDescription]:
    """The group, whichever protocol it speaks."""
    if OFFSETS_TOPIC not in context.image.topics:
        raise absent(group)  # the offsets topic does not exist yet: no group was ever used
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
        raise absent(group)
    check_code(classic.code, classic.message or f"group {group!r} cannot be described now")
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
    group = group_in(request)
    described = yield from _find(context, group)
    reply = yield from ask_group(context, group, OffsetFetch(group, None))
    check_code(reply.code, f"the offsets of group {group!r} cannot be read now")
    committed = {
        TopicPartition(each.topic, each.partition): each.offset for each in reply.offsets if each.offset >= 0
    }
    members = dict(_assigned(described.members))
    names = [each for each in sorted({*committed, *members}) if _is_shown(context, request, each.topic)]
    lags = yield from lag_of(context, [(name, committed.get(name)) for name in names])
    rows = []
    for count, name in enumerate(names, 1):
        offset = committed.get(name)
        end, lag, seconds = lags[name, offset]
        rows.append(PartitionLag(*name, offset, end, lag, seconds, members.get(name)))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    total = sum(row.lag or 0 for row in rows)
    longest = max((row.lag_seconds or 0.0 for row in rows), default=0.0)
    is_spark = any(each.metadata == COMMIT_METADATA for each in reply.offsets)
    return json(GroupLag(group, described.state, total, longest, rows, is_spark))


def _assigned(members: Iterable[MemberDescription]) -> Iterator[tuple[TopicPartition, str]]:
    for member in members:
        for topic, partitions in member.assignments.items():
            for number in partitions:
                yield TopicPartition(topic, number), member.member_id
