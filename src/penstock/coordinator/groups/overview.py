"""ListGroups and DescribeGroups: groups as others see them."""

from penstock.base.errors import ErrorCode

from .classic.group import DEAD, ClassicGroup, State
from .requests import (
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    DescribeReply,
    ListedGroup,
    ListGroups,
    ListReply,
)
from .shard import Shard


def listed(shard: Shard, request: ListGroups) -> ListReply:
    groups = tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state, group.kind)
        for group in shard.groups.values()
        if (not request.states or group.state.lower() in request.states)
        and (not request.types or group.kind.lower() in request.types)
    )
    return ListReply(ErrorCode.NONE, groups)


def described(shard: Shard, request: DescribeGroups) -> DescribeReply:
    return DescribeReply(ErrorCode.NONE, tuple(_described(shard, group_id) for group_id in request.groups))


def _described(shard: Shard, group_id: str) -> DescribedGroup:
    group = shard.groups.get(group_id)
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
            member.assignment if is_stable else b"",
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
