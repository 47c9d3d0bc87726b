"""A member of a consumer group: its subscription, and its assignment.

A member is immutable: a change makes another one, and replaying the record of the change gives the same one.
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
"""Client id of members that joined over HTTP."""

Target: TypeAlias = Mapping[Uuid, tuple[int, ...]]
"""Partitions by topic, in order. Every topic has some."""
Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""The same, with the epoch at which the member got each partition."""


class MemberState(IntEnum):
    """The numbers are Kafka's."""

    STABLE = 0
    """Its assignment is the target of its epoch."""
    UNREVOKED = 1
    """It must revoke partitions first."""
    UNRELEASED = 2
    """It waits for other members to revoke partitions of its target."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    """Topics that it is subscribed to by name, in order."""
    regex: str | None = None
    """Regular expression that it is subscribed to; None or empty if there is none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set if it uses the classic protocol."""
    epoch: int = 0
    previous_epoch: int = 0
    """Accepted in heartbeats too: the reply that raised the epoch may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """Partitions to be revoked. No other member gets them before this member has revoked them."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def is_of_http(self) -> bool:
        """Whether it joined over HTTP, so that a broker sends its heartbeats. A Kafka client may use the same client
        id, but its host begins with a slash, as in Kafka, and that of an HTTP client does not."""
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
    """Kafka before 4.3 wrote no epochs of partitions; the member's epoch is used for them."""
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
