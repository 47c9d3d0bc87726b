"""The committed offsets of a coordinator's groups, and the pending ones of open transactions.

A consumer that processes within a transaction commits its offsets in it too (KIP-98). They are in the log at once,
in the transaction's batches, but count only once it is committed: until then they are pending, by the id of
their producer. Of a pending and an ordinary commit the later one in the log wins, which is what compaction keeps.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from penstock.base.ids import NO_PRODUCER_ID, Uuid
from penstock.records.structs import NO_UUID

from .schemas import (
    GroupRecord,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_value,
    offset_key,
    plain_offset,
)

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""

NEVER = -1
_new = tuple.__new__


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER
    """Set if the client asked for a retention time (OffsetCommit 2 to 4)."""
    topic_id: Uuid = NO_UUID
    record_offset: int = -1
    """The offset of its record in `__consumer_offsets`."""

    def record(self, group: str, topic: str, partition: int) -> "OffsetRecord":
        return OffsetRecord(group, topic, partition, self)


class OffsetRecord(NamedTuple):
    """The record of a commit. There are thousands a second, so it is written and replayed without being spelled out as
    key and value in between."""

    group: str
    topic: str
    partition: int
    committed: CommittedOffset

    @property
    def key(self) -> OffsetCommitKey:
        return _key(self.group, self.topic, self.partition)

    @property
    def value(self) -> OffsetCommitValue:
        """As Kafka 4.3 writes it: version 4, or version 1 where it has an expiry of its own."""
        offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = self.committed
        if expire_ms != NEVER:
            return OffsetCommitValue(
                version=1,
                offset=offset,
                metadata=metadata,
                commit_timestamp=commit_ms,
                expire_timestamp=expire_ms,
            )
        return OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_ms,
            topic_id=topic_id,
        )

    def encoded(self) -> tuple[bytes, bytes | None]:
        key = offset_key(self.group, self.topic, self.partition)
        offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = self.committed
        if metadata or expire_ms != NEVER:
            return key, encode_value(self.value)
        return key, plain_offset(offset, leader_epoch, commit_ms, topic_id)

    def put_into(self, offsets: "OffsetStore", record_offset: int, producer_id: int) -> None:
        """Replay it, now that it is in the log."""
        committed = _new(CommittedOffset, (*self.committed[:-1], record_offset))
        if producer_id == NO_PRODUCER_ID:
            offsets.put(self.group, (self.topic, self.partition), committed)
        else:
            offsets.hold(producer_id, self.group, (self.topic, self.partition), committed)


@lru_cache(8192)  # a member commits the same partitions again and again
def _key(group: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


def from_record(value: OffsetCommitValue | LegacyOffsetCommitValue, record_offset: int) -> CommittedOffset:
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(
            value.offset, -1, value.metadata, value.commit_timestamp, record_offset=record_offset
        )
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        record_offset,
    )


def offset_tombstone(group: str, place: Place) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group=group, topic=place[0], partition=place[1]), None)


class OffsetStore:
    __slots__ = ("_committed", "_open", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, CommittedOffset]] = {}
        self._pending: dict[int, dict[tuple[str, Place], CommittedOffset]] = {}
        """By producer id."""
        self._open: dict[str, dict[Place, dict[int, None]]] = {}
        """Producers with pending offsets, by group and place. Invariant: the inverse of `_pending`."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OffsetStore)
            and self._committed == other._committed
            and self._pending == other._pending
        )

    __hash__ = None  # type: ignore[assignment]

    def get(self, group: str, place: Place) -> CommittedOffset | None:
        offsets = self._committed.get(group)
        return None if offsets is None else offsets.get(place)

    def of_group(self, group: str) -> dict[Place, CommittedOffset]:
        return self._committed.get(group, {})

    def groups(self) -> Iterator[str]:
        return iter(self._committed)

    def is_pending(self, group: str, place: Place) -> bool:
        return place in self._open.get(group, {})

    def has_open_transactions(self, group: str) -> bool:
        return group in self._open

    def places(self, group: str) -> list[Place]:
        """Partitions for which the group has a committed or a pending offset."""
        return list(dict.fromkeys((*self.of_group(group), *self._open.get(group, {}))))

    def places_of(self, places: set[Place]) -> Iterator[tuple[str, Place]]:
        """Groups that have an offset for one of these partitions, with the partition."""
        for group in dict.fromkeys((*self._committed, *self._open)):
            for place in self.places(group):
                if place in places:
                    yield group, place

    # Replay.

    def put(self, group: str, place: Place, committed: CommittedOffset) -> None:
        offsets = self._committed.get(group)
        if offsets is None:
            offsets = self._committed[group] = {}
        offsets[place] = committed

    def hold(self, producer_id: int, group: str, place: Place, committed: CommittedOffset) -> None:
        self._pending.setdefault(producer_id, {})[group, place] = committed
        self._open.setdefault(group, {}).setdefault(place, {})[producer_id] = None

    def remove(self, group: str, place: Place) -> None:
        """Committed and pending alike."""
        offsets = self._committed.get(group)
        if offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self._committed[group]
        for producer_id in [*self._open.get(group, {}).get(place, ())]:
            self._release(producer_id, group, place)
            pending = self._pending[producer_id]
            del pending[group, place]
            if not pending:
                del self._pending[producer_id]

    def _release(self, producer_id: int, group: str, place: Place) -> None:
        places = self._open[group]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._open[group]

    def end(self, producer_id: int, committed: bool) -> None:
        """Apply the marker of the producer's transaction: its pending offsets are committed or dropped."""
        for (group, place), offset in self._pending.pop(producer_id, {}).items():
            self._release(producer_id, group, place)
            if committed:
                existing = self.get(group, place)
                if existing is None or existing.record_offset < offset.record_offset:
                    self.put(group, place, offset)
