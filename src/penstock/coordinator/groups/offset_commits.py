"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, and the expiry of offsets.

A group without members that only commits offsets is a simple group: it exists as long as its offsets do. As in Kafka,
a live group keeps the offsets of topics that it is subscribed to, and others until `offsets.retention.minutes` after
their commit; an empty group keeps its offsets that long after it became empty. An empty group is deleted with its last
offset.
"""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.records.structs import NO_UUID

from .classic.group import ClassicGroup, State
from .classic.membership import Membership
from .offset_store import NEVER, CommittedOffset, OffsetRecord, offset_tombstone
from .requests import (
    CommittedPartition,
    FetchedOffset,
    ForgetPartitions,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchReply,
    PartitionResult,
    PartitionsReply,
    TxnOffsetCommit,
    WantedOffset,
)
from .schemas import GroupRecord
from .state import CoordinatorState
from .write import GroupWrite, Producer

if TYPE_CHECKING:
    from .consumer.group import ConsumerGroup

_new = tuple.__new__


class OffsetCommits:
    def __init__(self, state: CoordinatorState, membership: Membership) -> None:
        self._state = state
        self._membership = membership

    def commit(self, request: OffsetCommit) -> Outcome[PartitionsReply]:
        self._check_commit(request)
        retention_ms = request.retention_ms
        expire_ms = NEVER if retention_ms == -1 else self._state.after_ms(retention_ms)
        return self._committed(request.group, request.partitions, expire_ms, None)

    def _check_commit(self, request: OffsetCommit) -> None:
        group = self._state.groups.get(request.group)
        if group is None:
            if request.generation < 0:
                return  # creates a simple group
            if request.knows_epochs:
                raise _not_found(request.group)
            raise KafkaError(f"group {request.group} does not exist", ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ClassicGroup):
            self._membership.may_commit(
                group, request.member_id, request.instance_id, request.generation, transactional=False
            )
            return
        group.may_commit(request, transactional=False, topics=self._state.topics)

    def commit_in_transaction(self, request: TxnOffsetCommit) -> Outcome[PartitionsReply]:
        if not request.group:
            raise KafkaError("the group id is empty", ErrorCode.INVALID_GROUP_ID)
        group = self._state.groups.get(request.group)
        if group is None:
            if request.generation >= 0:
                raise KafkaError(f"group {request.group} does not exist", ErrorCode.ILLEGAL_GENERATION)
        elif isinstance(group, ClassicGroup):
            self._membership.may_commit(
                group, request.member_id, request.instance_id, request.generation, transactional=True
            )
        else:
            try:
                group.may_commit(request, transactional=True, topics=self._state.topics)
            except KafkaError as error:
                # Producers know generations, not epochs.
                if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                    raise KafkaError(str(error), ErrorCode.ILLEGAL_GENERATION) from error
                raise
        producer = Producer(request.producer_id, request.producer_epoch)
        return self._committed(request.group, request.partitions, NEVER, producer)

    def _committed(
        self,
        group: str,
        partitions: tuple[CommittedPartition, ...],
        expire_ms: int,
        producer: Producer | None,
    ) -> Outcome[PartitionsReply]:
        now_ms, limit = self._state.now_ms, self._state.settings.offset_metadata_bytes_max
        results: list[PartitionResult] = []
        records: list[OffsetRecord] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in partitions:
            if metadata is not None and len(metadata) > limit:
                results.append(PartitionResult(topic, partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            results.append(_new(PartitionResult, (topic, partition, ErrorCode.NONE)))
            committed = _new(
                CommittedOffset, (offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id, -1)
            )
            records.append(_new(OffsetRecord, (group, topic, partition, committed)))
        reply = PartitionsReply(ErrorCode.NONE, tuple(results))
        return Outcome(reply, tuple(records), None if producer is None else GroupWrite(producer=producer))

    def fetch(self, request: OffsetFetch) -> Outcome[OffsetFetchReply]:
        """A group that does not exist has no offsets, which is no error."""
        group = self._state.groups.get(request.group)
        if group is not None and not isinstance(group, ClassicGroup):
            group.may_fetch_offsets(request.member_id, request.member_epoch)
        wanted = request.partitions
        if wanted is None:
            wanted = tuple(WantedOffset(*place) for place in self._state.offsets.of_group(request.group))
        offsets = tuple(self._fetched(request, *each) for each in wanted)
        return Outcome(OffsetFetchReply(ErrorCode.NONE, offsets))

    def _fetched(self, request: OffsetFetch, topic: str, partition: int, topic_id: bytes) -> FetchedOffset:
        place = (topic, partition)
        store = self._state.offsets
        if request.require_stable and store.is_pending(request.group, place):
            return FetchedOffset(topic, partition, code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = store.get(request.group, place)
        if found is None or (NO_UUID not in (topic_id, found.topic_id) and topic_id != found.topic_id):
            return FetchedOffset(topic, partition)
        return FetchedOffset(topic, partition, found.offset, found.leader_epoch, found.metadata)

    # Deletion and expiry.

    def delete(self, request: OffsetDelete) -> Outcome[PartitionsReply]:
        if not request.group:
            raise KafkaError("the group id is empty", ErrorCode.INVALID_GROUP_ID)
        group = self._state.groups.get(request.group)
        if group is None:
            raise _not_found(request.group)
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
            raise KafkaError(
                f"group {request.group} has members, and their subscriptions are unknown",
                ErrorCode.NON_EMPTY_GROUP,
            )
        results: list[PartitionResult] = []
        records: list[GroupRecord] = []
        store = self._state.offsets
        for place in request.partitions:
            if group.is_subscribed_to(place[0]):
                results.append(PartitionResult(*place, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            results.append(PartitionResult(*place))
            if store.get(request.group, place) is not None or store.is_pending(request.group, place):
                records.append(offset_tombstone(request.group, place))
        return Outcome(PartitionsReply(ErrorCode.NONE, tuple(results)), tuple(records))

    def delete_all(self, group: str) -> list[GroupRecord]:
        return [offset_tombstone(group, place) for place in self._state.offsets.places(group)]

    def forget(self, request: ForgetPartitions) -> Outcome[PartitionsReply]:
        found = self._state.offsets.places_of(set(request.partitions))
        records = tuple(offset_tombstone(group, place) for group, place in found)
        return Outcome(PartitionsReply(), records)

    def expired(self, group: "ClassicGroup | ConsumerGroup") -> tuple[list[GroupRecord], bool]:
        """Tombstones of the offsets that expire now, and whether no offset is left."""
        store, group_id = self._state.offsets, group.group_id
        gone: list[GroupRecord] = []
        offsets = store.of_group(group_id)
        for place, committed in offsets.items():
            if (
                self._is_over(group, committed)
                and not group.is_subscribed_to(place[0])
                and not store.is_pending(group_id, place)
            ):
                gone.append(offset_tombstone(group_id, place))
        return gone, len(gone) == len(offsets) and not store.has_open_transactions(group_id)

    def _is_over(self, group: "ClassicGroup | ConsumerGroup", committed: CommittedOffset) -> bool:
        since_ms = committed.commit_ms
        if isinstance(group, ClassicGroup) and group.protocol_type is not None:
            if group.state is State.EMPTY:
                if group.state_since_ms != -1:
                    since_ms = group.state_since_ms
            elif group.state is not State.STABLE or group.subscribed_topics is None:
                return False
        if committed.expire_ms != NEVER:
            return self._state.now_ms >= committed.expire_ms
        return self._state.now_ms - since_ms >= self._state.settings.offsets_retention_ms


def _not_found(group: str) -> KafkaError:
    return KafkaError(f"group {group} does not exist", ErrorCode.GROUP_ID_NOT_FOUND)
