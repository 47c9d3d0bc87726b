"""The state of a classic group and of its members. `rebalance` makes the decisions.

    Empty --join--> PreparingRebalance --all joined, or time--> CompletingRebalance --leader's sync--> Stable
      ^                  |    ^                                    |                                     |
      +--no member joined+    +---- a member joins, leaves, or changes its protocols -+-----------------+

A rebalance ends with a new generation. Members send its number with each request, so requests of an earlier
generation are rejected.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.coordinator.groups.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_topics
from penstock.coordinator.groups.requests import JoinedMember, JoinReply, Protocols, SyncReply
from penstock.coordinator.groups.schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)
from penstock.coordinator.groups.settings import Topics
from penstock.records.structs import CorruptStruct


class State(StrEnum):
    """The names that ListGroups returns."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


DEAD = "Dead"
"""The state of a group that does not exist."""


@dataclass(slots=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    """The member's assignment in this generation, as the leader sent it."""
    awaits_join: Promise[JoinReply] | None = None
    """The reply to its JoinGroup in this rebalance."""
    awaits_sync: Promise[SyncReply] | None = None
    is_new: bool = False
    """Its first JoinGroup is not answered: it does not know its id yet, and cannot send heartbeats."""

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    @property
    def is_excused(self) -> bool:
        """Whether its session is suspended: it waits for a reply, and sends no heartbeats. Not for a new member, whose
        client may have disconnected."""
        return not self.is_new and (self.awaits_join is not None or self.awaits_sync is not None)


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    previous_state: State | None = None
    generation: int = 0
    protocol_type: str | None = None
    """None for a simple group, which only has committed offsets."""
    protocol: str | None = None
    """The assignor that was chosen for this generation."""
    leader: str | None = None
    state_since_ms: int = -1
    """When the state was entered; -1 if an old record does not contain it."""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id. Invariant: the members are in the group."""
    pending_joins: dict[str, None] = field(default_factory=dict)
    """Ids of members that have not joined with them yet (KIP-394)."""
    pending_syncs: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent SyncGroup."""
    supported: Counter[str] = field(default_factory=Counter)
    """Number of members that support each protocol."""
    joins_awaited: int = 0
    """Number of joins that wait for a reply. Invariant: the number of members with `awaits_join`."""
    had_newcomer: bool = False
    """A member joined during the initial rebalance delay."""
    subscribed_topics: frozenset[str] | None = None
    """The topics of all members; None if they are not consumers, or a subscription cannot be read."""

    kind = "classic"

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, and none that is about to join."""
        return self.is_empty and not self.pending_joins

    @property
    def is_simple(self) -> bool:
        return self.is_idle and self.protocol_type is None

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return self.state is not State.PREPARING

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.joins_awaited and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def enter(self, state: State, now_ms: int) -> None:
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    # Members.

    def add(self, member: ClassicMember, joins: Promise[JoinReply] | None = None) -> None:
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supported.update(name for name, _ in member.protocols)
        self.pending_joins.pop(member.member_id, None)
        self.await_join(member, joins)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported.subtract(name for name, _ in member.protocols)
            if member.awaits_join is not None:
                self.joins_awaited -= 1
            if member.instance_id is not None:
                self.statics.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self.supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self.supported.update(name for name, _ in protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, member: ClassicMember, member_id: str) -> None:
        """Give a static member another member id. Requests that wait under the old id are fenced."""
        assert member.instance_id is not None
        old_id = member.member_id
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(member, JoinReply(fenced, old_id))
        self.answer_sync(member, SyncReply(fenced))
        del self.members[old_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.statics[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]

    def known(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            existing = self.statics.get(instance_id)
            if existing is not None and existing != member_id:
                raise KafkaError(
                    f"instance id {instance_id} of group {self.group_id} now belongs to member {existing}",
                    ErrorCode.FENCED_INSTANCE_ID,
                )
            if existing is None:
                raise self._unknown(member_id)
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        return member

    def _unknown(self, member_id: str) -> KafkaError:
        return KafkaError(f"group {self.group_id} has no member {member_id}", ErrorCode.UNKNOWN_MEMBER_ID)

    # Waiting members.

    def await_join(self, member: ClassicMember, joins: Promise[JoinReply] | None) -> None:
        """Wait for the rebalance. One join of a member waits at a time: a second one means that the client timed
        out."""
        if joins is not None:
            self.answer_join(member, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            self.joins_awaited += 1
            member.awaits_join = joins

    def answer_join(self, member: ClassicMember, reply: JoinReply) -> None:
        waiting, member.awaits_join = member.awaits_join, None
        if waiting is not None:
            self.joins_awaited -= 1
            waiting.resolve(reply)

    def answer_sync(self, member: ClassicMember, reply: SyncReply) -> bool:
        waiting, member.awaits_sync = member.awaits_sync, None
        if waiting is None:
            return False
        waiting.resolve(reply)
        return True

    # Protocols.

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join: all members support one of them."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.protocol_type and any(
            self.supported[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all members support; the most votes win."""
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[
                next(name for name, _ in member.protocols if self.supported[name] == len(self.members))
            ] += 1
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_of_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in read_topics(member.metadata(self.protocol))
            )
        except CorruptStruct:
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the group is subscribed to the topic; True if its subscriptions cannot be read."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    # Queries.

    def joined_members(self) -> tuple[JoinedMember, ...]:
        assert self.protocol is not None
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def owner_of(self, topic: str, partition: int, topics: Topics) -> str | None:
        """The member that owns the partition in this generation.

        It names topics, so `topics` is not needed."""
        if not self.is_of_consumers:
            return None
        for member in self.members.values():
            try:
                assigned = read_assignment(member.assignment).assigned_partitions
            except CorruptStruct:
                continue
            if any(each.topic == topic and partition in each.partitions for each in assigned):
                return member.member_id
        return None

    # Records.

    def record(self, assignments: dict[str, bytes]) -> GroupRecord:
        protocol = self.protocol
        members = tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
            if protocol is not None
        )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=members,
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        group = cls(
            group_id,
            state=State.STABLE if value.members else State.EMPTY,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol=value.protocol,
            leader=value.leader,
            state_since_ms=value.current_state_timestamp,
        )
        for each in value.members:
            timeout = each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout
            member = ClassicMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                timeout,
                each.session_timeout,
                ((value.protocol or "", each.subscription),),
                each.assignment,
            )
            group.add(member)
        group.subscribed_topics = group.compute_subscribed_topics()
        return group


def tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(GroupMetadataKey(group=group_id), None)
