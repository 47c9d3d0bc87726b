"""A member of a consumer group: its subscription, and its assignment.

A member is a value: a change makes another, and the record of the change makes the same one wherever it is replayed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from penstock.base.ids import Uuid
from penstock.coordinator.groups.requests import Partitions
from penstock.coordinator.groups.schemas import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupRecord,
    TopicPartition,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
AWAY_EPOCH = -2
"""The epoch of a static member that left and will return."""

HTTP_CLIENT_ID = "http"
"""What members that came through the HTTP door are called in place of a client id."""

Target: TypeAlias = Mapping[Uuid, tuple[int, ...]]
"""Partitions by topic, in order. No topic without any."""
Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""The same, each partition with the epoch since which it is the member's."""


class MemberState(IntEnum):
    """Kafka's numbers."""

    STABLE = 0
    """It has what its epoch's target gives it."""
    UNREVOKED = 1
    """It has to give up some first."""
    UNRELEASED = 2
    """It waits for others to give up what it is to get."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    """The topics it is subscribed to by name, in order."""
    regex: str | None = None
    """The topics it is subscribed to by expression; empty is none, too."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """What it brings along, if it speaks the classic protocol."""
    epoch: int = 0
    previous_epoch: int = 0
    """A heartbeat with it is from before the answer that raised the epoch, which may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """Partitions to be revoked. No other member gets them before this one has given them up."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def is_of_http(self) -> bool:
        """Whether it came through the HTTP door, and a broker speaks for it. A Kafka client may call itself what it
        likes, but its address is written with a slash, as Kafka does; the door writes it without."""
        return (
            self.client_id == HTTP_CLIENT_ID and self.classic is None and not self.client_host.startswith("/")
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int, state: MemberState, assigned: Held, revoking: Held) -> "ConsumerMember":
        previous = self.epoch if epoch != self.epoch else self.previous_epoch
        return replace(
            self, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking
        )

    # Records.

    def subscription_record(self, group_id: str) -> GroupRecord:
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.names,
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )
        return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id), value)

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            names=tuple(sorted(value.subscribed_topic_names)),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def current_record(self, group_id: str) -> GroupRecord:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_listed(self.assigned),
            partitions_pending_revocation=_listed(self.revoking),
        )
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id)
        return GroupRecord(key, value)

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        known = {each.value for each in MemberState}
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if value.state in known else MemberState.UNKNOWN,
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


def _listed(held: Held) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(epochs), assignment_epochs=tuple(epochs.values()))
        for topic_id, epochs in held.items()
    )


def _held(listed: Iterable[TopicPartitions], epoch: int) -> Held:
    """Kafka before 4.3 wrote no epochs; then the member's is the one that is sure."""
    held: dict[Uuid, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs
        if not epochs or len(epochs) != len(each.partitions):
            epochs = (epoch,) * len(each.partitions)
        held[each.topic_id] = dict(sorted(zip(each.partitions, epochs, strict=True)))
    return held


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    listed = tuple(TopicPartition(topic_id=topic_id, partitions=each) for topic_id, each in target.items())
    return GroupRecord(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=listed))


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Target:
    return {each.topic_id: tuple(sorted(each.partitions)) for each in value.topic_partitions}


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """In this order: the member's assignments before the member."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(**names), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(**names), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(**names), None),
    ]


def as_partitions(held: Held) -> Partitions:
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in held.items())


def is_subset(owned: Partitions | None, assigned: Held) -> bool:
    if owned is None:
        return False
    return all(
        partition in assigned.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions
    )
