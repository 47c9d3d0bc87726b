"""Which member of a group may read and commit a partition.

A group without members lets every client read and commit. In a group with members only the owner of a partition reads
it, and offsets are committed in the owner's name.
"""

from collections.abc import Sequence

from penstock.coordinator.groups.classic.group import ClassicGroup
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.consumer.member import ConsumerMember
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.gateway.peer_rpc.messages import Assignments, Commit, Conflict, Consume
from penstock.metadata.image import ClusterImage

__all__ = ["Assignments", "Conflict", "assignments_of", "check_reader", "committer", "is_live", "member_of"]


def is_live(group: ClassicGroup | ConsumerGroup | None) -> bool:
    return group is not None and bool(group.members)


def member_of(group: ClassicGroup | ConsumerGroup | None, name: str | None) -> ConsumerMember | None:
    """The member of this name, if it joined over HTTP."""
    if name is None or not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(name)
    return member if member is not None and member.is_of_http else None


def assignments_of(member: ConsumerMember, image: ClusterImage) -> Assignments:
    found: dict[str, Sequence[int]] = {}
    for name in member.names:
        topic = image.topics.get(name)
        found[name] = sorted(member.assigned.get(topic.id, ())) if topic is not None else ()
    return found


def check_reader(coordinator: GroupCoordinator, image: ClusterImage, asked: Consume | Commit) -> None:
    """Raise a `Conflict` unless the consumer may read the partition as a member of the group now."""
    group_id, name = asked.group, asked.consumer
    group = coordinator.find(group_id)
    if not is_live(group):
        return
    if name is None:
        raise Conflict("unknown_member", f"group {group_id!r} has members: name the consumer")
    member = member_of(group, name)
    if member is None:
        raise Conflict(
            "unknown_member",
            f"consumer {name!r} is not in group {group_id!r}, which has members. Join first.",
        )
    if coordinator.owner_of(group_id, asked.topic, asked.partition) != name:
        raise Conflict(
            "not_assigned",
            f"partition {asked.partition} of topic {asked.topic!r} is not assigned to consumer {name!r} "
            f"of group {group_id!r} now",
            assignments_of(member, image),
        )


def committer(
    coordinator: GroupCoordinator, group_id: str, topic: str, partition: int
) -> ConsumerMember | None:
    """The member in whose name an offset is committed; None if the group has no members. Raises a `Conflict` unless
    the owner of the partition joined over HTTP."""
    group = coordinator.find(group_id)
    if not is_live(group):
        return None
    owner = coordinator.owner_of(group_id, topic, partition)
    what = f"partition {partition} of topic {topic!r} in group {group_id!r}"
    if owner is None:
        raise Conflict("not_assigned", f"{what} is not assigned to any member, and only members may commit")
    member = member_of(group, owner)
    if member is None:
        raise Conflict(
            "owned_elsewhere", f"{what} is assigned to the Kafka client {owner!r}, which commits itself"
        )
    return member
