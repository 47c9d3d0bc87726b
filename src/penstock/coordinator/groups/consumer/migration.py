"""Online migration of groups between the classic and the consumer protocol (KIP-848).

A classic group becomes a consumer group when the first member of the consumer protocol joins. The other members keep
the classic protocol, which the coordinator translates (`classic_members`). The group becomes classic again when the
last member of the consumer protocol leaves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.base.outcome import Outcome
from penstock.coordinator.groups.classic.group import ClassicGroup, ClassicMember, State, tombstone
from penstock.coordinator.groups.classic.rebalance import Rebalances
from penstock.coordinator.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    TopicPartitions,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.coordinator.groups.schemas import ClassicMemberMetadata, ClassicProtocol, GroupRecord
from penstock.coordinator.groups.settings import GroupSettings, Topics
from penstock.coordinator.groups.write import GroupWrite
from penstock.records.structs import CorruptStruct

from .group import ConsumerGroup, metadata_hash
from .member import ConsumerMember, Target, target_record

if TYPE_CHECKING:
    from .sessions import Sessions


def upgrade(
    group: ClassicGroup, settings: GroupSettings, topics: Topics, records: list[GroupRecord]
) -> ConsumerGroup:
    """The consumer group that replaces the classic group, and the records of the change."""

    def refuse(why: str) -> KafkaError:
        return KafkaError(
            f"classic group {group.group_id} cannot become a consumer group: {why}",
            ErrorCode.GROUP_ID_NOT_FOUND,
        )

    if not settings.upgrades:
        raise refuse("that is switched off")
    if not group.is_of_consumers:
        raise refuse("its members are not consumers")
    if len(group.members) > settings.consumer_size_max:
        raise refuse(f"it has more than {settings.consumer_size_max} members")
    try:
        members = [_upgraded(group, member, topics) for member in group.members.values()]
    except CorruptStruct as error:
        raise refuse(str(error)) from error
    upgraded = ConsumerGroup(group.group_id, epoch=group.generation, target_epoch=group.generation)
    for member in members:
        upgraded.update(member)
        upgraded.target[member.member_id] = {
            topic_id: tuple(partitions) for topic_id, partitions in member.assigned.items()
        }
    upgraded.metadata_hash = metadata_hash({name for member in members for name in member.names}, topics)
    records.append(tombstone(group.group_id))
    records += (member.subscription_record(group.group_id) for member in members)
    records.append(upgraded.epoch_record(upgraded.epoch, upgraded.metadata_hash))
    records += (
        target_record(group.group_id, member_id, target) for member_id, target in upgraded.target.items()
    )
    records.append(upgraded.target_epoch_record(upgraded.target_epoch, group.state_since_ms))
    records += (member.current_record(group.group_id) for member in members)
    return upgraded


def _upgraded(group: ClassicGroup, member: ClassicMember, topics: Topics) -> ConsumerMember:
    known = dict(member.protocols)
    read_version(member.protocols[0][1])
    subscription = read_subscription(known.get(group.protocol or "", member.protocols[0][1]))
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise CorruptStruct("its assignor stores user data in assignments, which would be lost")
    assigned: dict[Uuid, dict[int, int]] = {}
    for each in assignment.assigned_partitions:
        topic = topics.by_name.get(each.topic)
        if topic is not None and each.partitions:
            assigned[topic.topic_id] = dict.fromkeys(sorted(each.partitions), group.generation)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        classic_metadata(member.session_timeout_ms, member.protocols),
        group.generation,
        group.generation,
        assigned=assigned,
    )


def classic_metadata(
    session_timeout_ms: int, protocols: tuple[tuple[str, bytes], ...]
) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=tuple(ClassicProtocol(name=name, metadata=data) for name, data in protocols),
    )


def can_downgrade(group: ConsumerGroup, gone: set[str], settings: GroupSettings) -> bool:
    """Whether there are remaining members, and all use the classic protocol."""
    stay = [member for member_id, member in group.members.items() if member_id not in gone]
    return (
        settings.downgrades
        and 0 < len(stay) <= settings.size_max
        and all(member.is_classic for member in stay)
    )


def downgrade(
    rebalances: Rebalances,
    sessions: "Sessions",
    group: ConsumerGroup,
    gone: set[str],
    joining: ConsumerMember | None = None,
    needs_rebalance: bool = True,
    before: Sequence[GroupRecord] = (),
) -> Outcome[None]:
    """The classic group that replaces a consumer group. `joining` replaces the static member that left."""
    state = rebalances.state
    members = [member for member_id, member in group.members.items() if member_id not in gone]
    targets = dict(group.target)
    if joining is not None:
        members.append(joining)
        targets[joining.member_id] = group.target_of(joining)
    classic = ClassicGroup(
        group.group_id,
        State.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        state_since_ms=state.now_ms,
    )
    for member in members:
        assert member.classic is not None
        protocols = tuple((each.name, each.metadata) for each in member.classic.supported_protocols)
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                protocols,
                assignment_of(member, targets.get(member.member_id, {}), state.topics),
            )
        )
    classic.protocol = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    tombstones = group.tombstones()
    if joining is not None:
        # Its record has just replaced its predecessor's, and is deleted with the others.
        tombstones = [_renamed(record, next(iter(gone)), joining.member_id) for record in tombstones]
    assignments = {member_id: member.assignment for member_id, member in classic.members.items()}
    records = (*before, *tombstones, classic.record(assignments))

    def applied() -> None:
        for member_id in group.members:
            sessions.forget(group.group_id, member_id)
        state.groups[group.group_id] = classic
        for member in classic.members.values():
            rebalances.renew(classic, member)
        if needs_rebalance:
            rebalances.prepare(classic)

    return Outcome(None, records, GroupWrite(replays=False, applied=applied))


def _renamed(record: GroupRecord, old: str, new: str) -> GroupRecord:
    if getattr(record.key, "member_id", None) != old:
        return record
    return GroupRecord(type(record.key)(**{**vars(record.key), "member_id": new}), record.value)


def assignment_of(member: ConsumerMember, target: Target, topics: Topics) -> bytes:
    """A member's target assignment in the format of the classic protocol, in the version that it uses."""
    assert member.classic is not None
    given = []
    for topic_id, partitions in target.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            given.append(TopicPartitions(topic=topic.name, partitions=tuple(partitions)))
    version = read_version(member.classic.supported_protocols[0].metadata)
    return write_assignment(Assignment(assigned_partitions=tuple(given)), version)
