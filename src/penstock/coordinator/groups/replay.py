"""Applies records of the topic to a coordinator's state: those that it loads, and those that it has written."""

from penstock.base.ids import NO_PRODUCER_ID

from .classic.group import ClassicGroup
from .classic.rebalance import Rebalances
from .consumer.replay import replay_consumer
from .offset_store import OffsetRecord, from_record
from .schemas import (
    AnyRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
)
from .state import CoordinatorState


def replay(
    state: CoordinatorState, rebalances: Rebalances, record: AnyRecord, offset: int, producer_id: int
) -> None:
    if isinstance(record, OffsetRecord):
        _know(state, record.group)
        record.put_into(state.offsets, offset, producer_id)
        return
    assert isinstance(record, GroupRecord)
    key, value = record
    if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        _replay_offset(state, key, value, offset, producer_id)
    elif isinstance(key, GroupMetadataKey):
        assert value is None or isinstance(value, GroupMetadataValue)
        _replay_classic(state, rebalances, key, value)
    else:
        replay_consumer(state, record)


def _replay_offset(
    state: CoordinatorState,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: Value | None,
    offset: int,
    producer_id: int,
) -> None:
    place = (key.topic, key.partition)
    if value is None:
        state.offsets.remove(key.group, place)
        return
    assert isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
    _know(state, key.group)
    committed = from_record(value, offset)
    if producer_id == NO_PRODUCER_ID:
        state.offsets.put(key.group, place, committed)
    else:
        state.offsets.hold(producer_id, key.group, place, committed)


def _know(state: CoordinatorState, group: str) -> None:
    """A group that has only offsets is a simple group."""
    if group not in state.groups:
        state.groups[group] = ClassicGroup(group, state_since_ms=state.now_ms)


def _replay_classic(
    state: CoordinatorState, rebalances: Rebalances, key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    if value is not None:
        state.groups[key.group] = ClassicGroup.from_record(key.group, value)
        return
    group = state.groups.get(key.group)
    if isinstance(group, ClassicGroup):
        rebalances.forget(group)
