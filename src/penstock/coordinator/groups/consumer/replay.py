"""Applies the records of consumer groups."""

from dataclasses import replace

from penstock.coordinator.groups.classic.group import ClassicGroup
from penstock.coordinator.groups.schemas import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
    Key,
    Value,
)
from penstock.coordinator.groups.state import CoordinatorState
from penstock.records.structs import CorruptStruct

from .group import ConsumerGroup, Resolved
from .member import LEAVING_EPOCH, ConsumerMember, target_of


def replay_consumer(state: CoordinatorState, record: GroupRecord) -> None:
    key, value = record
    group_id = getattr(key, "group_id", None)
    if group_id is None:
        return
    group = _group(state, group_id, creates=value is not None)
    if group is None:
        return  # a tombstone of something that does not exist
    if isinstance(key, ConsumerGroupMetadataKey) and value is None:
        del state.groups[group_id]
        return
    _apply(group, key, value)


def _group(state: CoordinatorState, group_id: str, creates: bool) -> ConsumerGroup | None:
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if not creates:
        return None
    if isinstance(group, ClassicGroup) and not group.is_simple:
        raise CorruptStruct(f"a consumer group record follows classic group {group_id} without a tombstone")
    # A simple group has only offsets, which the consumer group takes over.
    made = state.groups[group_id] = ConsumerGroup(group_id)
    return made


def _apply(group: ConsumerGroup, key: Key, value: Value | None) -> None:
    if isinstance(key, ConsumerGroupMetadataKey):
        assert isinstance(value, ConsumerGroupMetadataValue)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        group.checked_version = -1
    elif isinstance(key, ConsumerGroupPartitionMetadataKey):
        group.has_old_metadata = value is not None
    elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
        assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        group.target_epoch = 0 if value is None else value.assignment_epoch
    elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            group.target[key.member_id] = target_of(value)
    elif isinstance(key, ConsumerGroupRegularExpressionKey):
        if value is None:
            group.regexes.pop(key.regular_expression, None)
        else:
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            group.regexes[key.regular_expression] = Resolved(
                frozenset(value.topics), value.regex_version, value.timestamp
            )
            group.regexes_checked = (value.regex_version, value.timestamp)
    else:
        assert isinstance(key, ConsumerGroupMemberMetadataKey | ConsumerGroupCurrentMemberAssignmentKey)
        _apply_member(group, key, value)


def _apply_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey | ConsumerGroupCurrentMemberAssignmentKey,
    value: Value | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            group.remove(key.member_id)
        elif member is not None:
            group.update(
                replace(member, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, revoking={})
            )
        return
    # After compaction, a member's assignment may come before the member.
    member = ConsumerMember(key.member_id) if member is None else member
    if isinstance(value, ConsumerGroupMemberMetadataValue):
        group.update(member.with_subscription(value))
    else:
        assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        group.update(member.with_current(value))
