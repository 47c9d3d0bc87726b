"""ListGroups, DescribeGroups and ConsumerGroupDescribe: groups as clients see them; and summaries for lists."""

from collections.abc import Iterable, Iterator, Mapping

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.records.structs import CorruptStruct

from .classic.group import DEAD, ClassicGroup, State
from .consumer.group import ConsumerGroup
from .consumer.member import ConsumerMember
from .consumer_protocol import read_assignment
from .offset_store import Place
from .requests import (
    NO_OFFSET,
    ConsumerDescribeReply,
    ConsumerGroupDescribe,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
    DescribeGroups,
    DescribeReply,
    GroupSummary,
    ListedGroup,
    ListGroups,
    ListReply,
)
from .state import CoordinatorState


def listed(state: CoordinatorState, request: ListGroups) -> ListReply:
    groups = tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state, group.kind)
        for group in state.groups.values()
        if (not request.states or group.state.lower() in request.states)
        and (not request.types or group.kind.lower() in request.types)
    )
    return ListReply(ErrorCode.NONE, groups)


def described(state: CoordinatorState, request: DescribeGroups) -> DescribeReply:
    return DescribeReply(ErrorCode.NONE, tuple(_described(state, group_id) for group_id in request.groups))


def _described(state: CoordinatorState, group_id: str) -> DescribedGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        message = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message, DEAD)
    is_stable = group.state is State.STABLE and group.protocol is not None
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol or "") if is_stable else b"",
            member.assignment,  # during a rebalance too: it applies until the next one is known
        )
        for member in group.members.values()
    )
    return DescribedGroup(
        group_id,
        ErrorCode.NONE,
        None,
        group.state,
        group.protocol_type or "",
        (group.protocol or "") if is_stable else "",
        members,
    )


def described_consumers(state: CoordinatorState, request: ConsumerGroupDescribe) -> ConsumerDescribeReply:
    groups = tuple(_described_consumer(state, group_id) for group_id in request.groups)
    return ConsumerDescribeReply(ErrorCode.NONE, groups)


def _described_consumer(state: CoordinatorState, group_id: str) -> DescribedConsumerGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} {'not found' if group is None else 'is not a consumer group'}."
        return DescribedConsumerGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    members = tuple(_described_member(state, group, member) for member in group.members.values())
    assignor = group.preferred_assignor(group.members.values()) or state.settings.consumer_assignors[0]
    return DescribedConsumerGroup(
        group_id, ErrorCode.NONE, None, group.state, group.epoch, group.target_epoch, assignor, members
    )


def _described_member(
    state: CoordinatorState, group: ConsumerGroup, member: ConsumerMember
) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.names,
        member.regex or "",
        _named(state, _held(member)),
        _named(state, group.target_of(member)),
        member.is_classic,
    )


def _held(member: ConsumerMember) -> dict[Uuid, list[int]]:
    """The partitions that the member owns, with those that it has not revoked yet."""
    held = {topic_id: [*partitions] for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.revoking.items():
        held[topic_id] = sorted({*held.get(topic_id, ()), *partitions})
    return held


def _named(
    state: CoordinatorState, partitions: Mapping[Uuid, Iterable[int]]
) -> tuple[DescribedTopicPartitions, ...]:
    """Topic names and partitions; deleted topics are left out."""
    named = []
    for topic_id, each in partitions.items():
        topic = state.topics.by_id(topic_id)
        if topic is not None:
            named.append(DescribedTopicPartitions(topic_id, topic.name, tuple(each)))
    return tuple(named)


def summarized(state: CoordinatorState, group_id: str) -> GroupSummary | None:
    """None if there is no such group."""
    group = state.groups.get(group_id)
    if group is None:
        return None
    committed = state.offsets.of_group(group_id)
    assigned = _assigned_partitions(state, group)
    waiting = dict.fromkeys(each for each in assigned if each not in committed)
    positions = [(*place, each.offset) for place, each in committed.items()]
    positions += [(*place, NO_OFFSET) for place in waiting]
    metadata = next((each.metadata for each in committed.values() if each.metadata), "")
    return GroupSummary(
        group_id,
        group.state,
        group.kind,
        group.protocol_type or "",
        len(group.members),
        tuple(positions),
        metadata,
    )


def _assigned_partitions(state: CoordinatorState, group: ClassicGroup | ConsumerGroup) -> Iterator[Place]:
    if isinstance(group, ConsumerGroup):
        for member in group.members.values():
            for named in _named(state, _held(member)):
                for number in named.partitions:
                    yield named.topic, number
    elif group.is_of_consumers:
        for classic in group.members.values():
            try:
                found = read_assignment(classic.assignment).assigned_partitions if classic.assignment else ()
            except CorruptStruct:
                continue  # a client's own mistake
            for each in found:
                for number in each.partitions:
                    yield each.topic, number
