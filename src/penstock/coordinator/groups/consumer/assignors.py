"""The coordinator's own assignors: who is to have what.

`uniform` keeps what members have as far as the loads stay within one partition of each other, and prefers members
in a rack that has a replica. `range` gives each member a run of neighbouring partitions of every topic, so that
topics with as many partitions are split alike, and their records with the same keys meet; it looks at names and
not at what was. The same group and topics give the same answer, wherever it is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.base.ids import Uuid

from ..settings import Topic
from .member import Target

Place: TypeAlias = tuple[Uuid, int]
Assigned: TypeAlias = dict[str, Target]


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """What an assignor knows of a member."""

    topics: frozenset[Uuid]
    """Subscribed to, and there."""
    target: Target
    """What it was to have so far."""
    instance_id: str | None = None
    rack_id: str | None = None


Members: TypeAlias = Mapping[str, AssignedMember]
Assignor: TypeAlias = Callable[[Members, Mapping[Uuid, Topic]], Assigned]


def assign_range(members: Members, topics: Mapping[Uuid, Topic]) -> Assigned:
    """Static members first, by instance; then the others, by id."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    result: dict[str, dict[Uuid, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id in sorted(topics):
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        each, extra = divmod(topics[topic_id].partitions, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + each + (index < extra)
            if end > start:
                result[member_id][topic_id] = tuple(range(start, end))
            start = end
    return {**result}


def assign_uniform(members: Members, topics: Mapping[Uuid, Topic]) -> Assigned:
    order = sorted(members)
    free = {
        (topic_id, partition): None
        for topic_id in sorted(topics)
        if any(topic_id in member.topics for member in members.values())
        for partition in range(topics[topic_id].partitions)
    }
    kept: dict[str, dict[Place, None]] = {}
    for member_id in order:
        member = members[member_id]
        kept[member_id] = {
            (topic_id, partition): None
            for topic_id, partitions in member.target.items()
            if topic_id in member.topics
            for partition in partitions
            if (topic_id, partition) in free
        }
        for place in kept[member_id]:
            del free[place]  # each is kept once, whatever the targets say
    if len({member.topics for member in members.values()}) <= 1:
        _even(kept, free, members, topics)
    else:
        _uneven(kept, free, members, topics)
    return {member_id: _as_target(kept[member_id]) for member_id in members}


def _as_target(places: Mapping[Place, None]) -> Target:
    target: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(places):
        target.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(partitions) for topic_id, partitions in target.items()}


def _even(
    kept: dict[str, dict[Place, None]],
    free: dict[Place, None],
    members: Members,
    topics: Mapping[Uuid, Topic],
) -> None:
    """All want the same topics: everybody gets the same number, and some one more."""
    if not kept:
        return
    total = len(free) + sum(len(places) for places in kept.values())
    each, extra = divmod(total, len(kept))
    quotas: dict[str, int] = {}
    for member_id in sorted(kept, key=lambda member_id: -len(kept[member_id])):
        has_extra = extra > 0 and len(kept[member_id]) > each
        extra -= has_extra
        quotas[member_id] = each + has_extra
        for place in [*kept[member_id]][quotas[member_id] :]:
            del kept[member_id][place]
            free[place] = None
    for member_id in kept:
        if extra > 0 and quotas[member_id] == each:
            quotas[member_id] += 1
            extra -= 1
    wanting = {
        member_id: quotas[member_id] - len(places)
        for member_id, places in kept.items()
        if quotas[member_id] > len(places)
    }

    def give(place: Place, member_id: str) -> None:
        kept[member_id][place] = None
        wanting[member_id] -= 1
        if not wanting[member_id]:
            del wanting[member_id]

    if any(members[member_id].rack_id for member_id in wanting):
        for place in [*free]:
            racks = topics[place[0]].racks(place[1])
            near = next((each for each in wanting if members[each].rack_id in racks), None)
            if near is not None:
                give(place, near)
                del free[place]
    for place in free:
        give(place, next(iter(wanting)))


def _uneven(
    kept: dict[str, dict[Place, None]],
    free: dict[Place, None],
    members: Members,
    topics: Mapping[Uuid, Topic],
) -> None:
    """Members want different topics: whoever may have a partition and has least gets it, until no move helps."""
    subscribers = {
        topic_id: [member_id for member_id in kept if topic_id in members[member_id].topics]
        for topic_id in sorted(topics)
    }

    def load(member_id: str) -> int:
        return len(kept[member_id])

    def far(member_id: str, place: Place) -> bool:
        return members[member_id].rack_id not in topics[place[0]].racks(place[1])

    for place in sorted(free, key=lambda place: (len(subscribers[place[0]]), place)):
        least = min(subscribers[place[0]], key=lambda each: (load(each), far(each, place)))
        kept[least][place] = None
    moved = True
    while moved:  # each move makes the loads more even, so there is an end
        moved = False
        for topic_id, able in subscribers.items():
            for most in sorted(able, key=load, reverse=True):
                for place in [place for place in kept[most] if place[0] == topic_id]:
                    least = min(able, key=load)
                    if load(most) - load(least) < 2:
                        break
                    del kept[most][place]
                    kept[least][place] = None
                    moved = True


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
