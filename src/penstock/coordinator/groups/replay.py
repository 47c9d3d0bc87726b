"""What each record of the topic does to a coordinator, when it is loaded and when it has just been written."""

from penstock.base.ids import NO_PRODUCER_ID

from .classic.group import ClassicGroup
from .classic.rounds import Rounds
from .consumer.replaying import replay_consumer
from .offsets import OffsetRecord, from_record
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
from .shard import Shard


def replay(shard: Shard, rounds: Rounds, record: AnyRecord, offset: int, producer_id: int) -> None:
    if isinstance(record, OffsetRecord):
        _know(shard, record.group)
        record.put_into(shard.offsets, offset, producer_id)
        return
    assert isinstance(record, GroupRecord)
    key, value = record
    if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
        _replay_offset(shard, key, value, offset, producer_id)
    elif isinstance(key, GroupMetadataKey):
        assert value is None or isinstance(value, GroupMetadataValue)
        _replay_classic(shard, rounds, key, value)
    else:
        replay_consumer(shard, record)


def _replay_offset(
    shard: Shard,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: Value | None,
    offset: int,
    producer_id: int,
) -> None:
    place = (key.topic, key.partition)
    if value is None:
        shard.offsets.remove(key.group, place)
        return
    assert isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
    _know(shard, key.group)
    committed = from_record(value, offset)
    if producer_id == NO_PRODUCER_ID:
        shard.offsets.put(key.group, place, committed)
    else:
        shard.offsets.hold(producer_id, key.group, place, committed)


def _know(shard: Shard, group: str) -> None:
    """A group of which nothing but offsets is known is a simple one."""
    if group not in shard.groups:
        shard.groups[group] = ClassicGroup(group, state_since_ms=shard.now_ms)


def _replay_classic(
    shard: Shard, rounds: Rounds, key: GroupMetadataKey, value: GroupMetadataValue | None
) -> None:
    if value is not None:
        shard.groups[key.group] = ClassicGroup.from_record(key.group, value)
        return
    group = shard.groups.get(key.group)
    if isinstance(group, ClassicGroup):
        rounds.forget(group)
