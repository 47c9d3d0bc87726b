"""A consumer group (KIP-848): epochs, members, the target assignment, and the owners of partitions.

All state comes from records: replaying them gives the same group. There are three epochs. The group epoch grows with
every change of members, subscriptions or topics. The target assignment has the group epoch that it was computed for.
A member's epoch is that of the target to which it has moved.

    group epoch 5 > target epoch 4        Assigning
    target epoch 5, a member at 4         Reconciling
    target epoch 5, all members at 5      Stable
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.coordinator.groups.consumer_protocol import PROTOCOL_TYPE
from penstock.coordinator.groups.requests import NO_GENERATION, NO_MEMBER_ID, OffsetCommit, TxnOffsetCommit
from penstock.coordinator.groups.schemas import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from penstock.coordinator.groups.settings import Topics

from .member import ConsumerMember, Target, member_tombstones

FIRST_EPOCH = 1
"""The epoch of a new group; the first member raises it to 2, as in Kafka 4.3."""


class Resolved(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """Version of the metadata that it was matched against."""
    timestamp_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """Hash of the subscribed topics when the epoch was last raised."""
    target_epoch: int = 0
    target: dict[str, Target] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    regexes: dict[str, Resolved] = field(default_factory=dict)
    """By expression. Invariant: some member is subscribed to each."""
    owners: dict[tuple[Uuid, int], str] = field(default_factory=dict)
    """The member that owns a partition, or has not given it up yet. Invariant: the inverse of the members'
    assignments."""
    has_old_metadata: bool = False
    """The log has a record with the topics, from Kafka before 4.1. It is deleted with the next write."""
    checked_version: int = -1
    """Version of the metadata that the hash was last compared with. Not in the log."""
    regexes_checked: tuple[int, int] = (-1, -1)
    """Version of the metadata that the expressions were last matched against, and when. The log has those of the last
    change."""

    kind = "consumer"
    protocol_type = PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(f"group {self.group_id} has no member {member_id}", ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def static(self, instance_id: str | None) -> ConsumerMember | None:
        return self.members.get(self.statics.get(instance_id or "", ""))

    def target_of(self, member: ConsumerMember) -> Target:
        """The target of a member; of a static member that replaces another, the target of its predecessor."""
        found = self.target.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = self.target.get(self.statics.get(member.instance_id, ""))
        return {} if found is None else found

    # Subscriptions.

    def topics_of(self, member: ConsumerMember, regexes: Mapping[str, Resolved] | None = None) -> set[str]:
        topics = set(member.names)
        if member.regex:
            resolved = (self.regexes if regexes is None else regexes).get(member.regex)
            if resolved is not None:
                topics |= resolved.topics
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in resolved.topics for resolved in self.regexes.values()) or any(
            topic in member.names for member in self.members.values()
        )

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str | None:
        votes = Counter(member.assignor for member in members if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else None

    # Checks of commits and fetches of offsets.

    def may_commit(
        self, request: OffsetCommit | TxnOffsetCommit, transactional: bool, topics: Topics
    ) -> None:
        epoch = request.generation
        if epoch < 0 and not self.members:
            return
        says_nothing = (
            epoch == NO_GENERATION and request.member_id == NO_MEMBER_ID and request.instance_id is None
        )
        if transactional and says_nothing:
            return
        member = self.known(request.member_id)
        if isinstance(request, OffsetCommit) and not member.is_classic and not request.knows_epochs:
            raise KafkaError(
                "members of the consumer protocol need OffsetCommit version 9 or later",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        if epoch == member.epoch:
            return
        # A commit that was sent before the epoch rose is valid for partitions that the member has owned since then.
        late = epoch < member.epoch and all(
            self._was_held(member, epoch, topics, each.topic, each.partition) for each in request.partitions
        )
        if not late:
            raise self._stale(member, epoch)

    @staticmethod
    def _was_held(member: ConsumerMember, epoch: int, topics: Topics, name: str, partition: int) -> bool:
        topic = topics.by_name.get(name)
        if topic is None:
            return False
        for held in (member.assigned, member.revoking):
            since = held.get(topic.topic_id, {}).get(partition)
            if since is not None:
                return epoch >= since
        return False

    def may_fetch_offsets(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.known(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, epoch)

    def _stale(self, member: ConsumerMember, epoch: int) -> KafkaError:
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return KafkaError(
            f"member {member.member_id} is at epoch {member.epoch}, the request has {epoch}", code
        )

    # Owners of partitions.

    def owner_of_id(self, topic_id: Uuid, partition: int) -> str | None:
        return self.owners.get((topic_id, partition))

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of this member's target."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    # Replay.

    def update(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and self.statics.get(old.instance_id) == old.member_id:
                del self.statics[old.instance_id]
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            if member.instance_id is not None and self.statics.get(member.instance_id) == member_id:
                del self.statics[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    # Records.

    def epoch_record(self, epoch: int, metadata_hash: int) -> GroupRecord:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return GroupRecord(ConsumerGroupMetadataKey(group_id=self.group_id), value)

    def target_epoch_record(self, epoch: int, now_ms: int) -> GroupRecord:
        value = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        )
        return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), value)

    def regex_record(self, regex: str, resolved: Resolved | None) -> GroupRecord:
        key = ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        if resolved is None:
            return GroupRecord(key, None)
        value = ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(resolved.topics)),
            regex_version=resolved.version,
            timestamp=resolved.timestamp_ms,
        )
        return GroupRecord(key, value)

    def old_metadata_tombstone(self) -> GroupRecord:
        return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None)

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones of the whole group, in an order in which each can be replayed."""
        each_member = [member_tombstones(self.group_id, member_id) for member_id in self.members]
        records = [records[0] for records in each_member]
        records += [records[1] for records in each_member]
        records.append(GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None))
        records += [records[2] for records in each_member]
        records += [self.regex_record(regex, None) for regex in self.regexes]
        if self.has_old_metadata:
            records.append(self.old_metadata_tombstone())
        records.append(GroupRecord(ConsumerGroupMetadataKey(group_id=self.group_id), None))
        return records

    def owner_of(self, topic: str, partition: int, topics: Topics) -> str | None:
        """The member that may read the partition; None while it is being revoked."""
        found = topics.by_name.get(topic)
        if found is None:
            return None
        member = self.members.get(self.owners.get((found.topic_id, partition), ""))
        if member is None or partition not in member.assigned.get(found.topic_id, ()):
            return None
        return member.member_id


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """64-bit hash of the topics: their names, ids, partitions, and racks.

    Kafka's hash differs: a group that moves between Kafka and Penstock is assigned again once.
    """
    known = [topics.by_name[name] for name in sorted(names) if name in topics.by_name]
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for topic in known:
        digest.update(f"{topic.name}\0{topic.partitions}\0".encode() + topic.topic_id)
        for partition in range(topic.partitions):
            racks = topic.racks(partition)
            if racks:
                digest.update(f"{partition}:{','.join(sorted(racks))};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
