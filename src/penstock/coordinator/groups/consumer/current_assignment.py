"""Moves a member from its current assignment to its target assignment, one heartbeat at a time.

A partition has one owner. So a member first revokes partitions that left its target, and confirms that by no longer
listing them as owned; only then does its epoch rise, and it gets only partitions that no other member holds:

    has 0 1 2, target 1 2 3         UNREVOKED   has 1 2, must revoke 0
    owns 1 2                        STABLE      has 1 2 3, if 3 is free
                                    UNRELEASED  has 1 2, and waits until 3 is free
"""

from collections.abc import Callable
from dataclasses import replace

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.coordinator.groups.requests import Partitions

from .member import ConsumerMember, Held, MemberState, Target


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Target,
    subscribed: set[Uuid],
    owned: Partitions | None,
    owner_of: Callable[[Uuid, int], str | None],
    subscription_changed: bool = False,
) -> ConsumerMember:
    """The member after its heartbeat; the same one if it cannot move. `owned` is None if the heartbeat omits it."""
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return _without_unsubscribed(member, subscribed, owned) if subscription_changed else member
        return _next(member, member.epoch, target_epoch, target, subscribed, owned, owner_of)
    if member.state is MemberState.UNREVOKED:
        if _owns_any(owned, member.revoking):
            return _without_unsubscribed(member, subscribed, owned) if subscription_changed else member
        epoch = min(member.epoch + 1, target_epoch)
        return _next(member, epoch, target_epoch, target, subscribed, owned, owner_of)
    if member.state is MemberState.UNRELEASED:
        return _next(member, member.epoch, target_epoch, target, subscribed, owned, owner_of)
    if owned is None or any(partitions for _, partitions in owned):
        raise KafkaError(
            f"member {member.member_id} has a state that this version does not know; join again",
            ErrorCode.FENCED_MEMBER_EPOCH,
        )
    return _next(member, target_epoch, target_epoch, target, subscribed, owned, owner_of)


def _owns_any(owned: Partitions | None, held: Held) -> bool:
    if owned is None:
        return True
    return any(
        partition in held.get(topic_id, ()) for topic_id, partitions in owned for partition in partitions
    )


def _without_unsubscribed(
    member: ConsumerMember, subscribed: set[Uuid], owned: Partitions | None
) -> ConsumerMember:
    """Revoke topics that the member is no longer subscribed to, before there is a new target."""
    gone = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not gone:
        return member
    assigned = {topic_id: each for topic_id, each in member.assigned.items() if topic_id in subscribed}
    revoking: dict[Uuid, dict[int, int]] = {
        topic_id: dict(each) for topic_id, each in member.revoking.items()
    }
    for topic_id in gone:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _owns_any(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED, assigned=assigned, revoking=revoking)
    return replace(member, assigned=assigned)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Target,
    subscribed: set[Uuid],
    owned: Partitions | None,
    owner_of: Callable[[Uuid, int], str | None],
) -> ConsumerMember:
    assigned: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    granted: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, ()) if topic_id in subscribed else ()
        had = member.assigned.get(topic_id, {})
        kept = {partition: had[partition] for partition in wanted if partition in had}
        lost = {partition: since for partition, since in had.items() if partition not in kept}
        if kept:
            assigned[topic_id] = kept
        if lost:
            revoking[topic_id] = lost
        for partition in wanted:
            if partition not in had:
                if owner_of(topic_id, partition) in (None, member.member_id):
                    granted.setdefault(topic_id, []).append(partition)
                else:
                    waits = True
    if revoking and _owns_any(owned, revoking):
        return member.at(epoch, MemberState.UNREVOKED, assigned, revoking)
    for topic_id, partitions in granted.items():
        merged = assigned.get(topic_id, {}) | dict.fromkeys(partitions, target_epoch)
        assigned[topic_id] = dict(sorted(merged.items()))
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return member.at(target_epoch, state, assigned, {})
