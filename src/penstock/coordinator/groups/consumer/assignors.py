"""The coordinator's assignors: which member gets which partitions. All are deterministic.

`uniform` keeps assignments as far as the members' loads differ by one partition at most, and prefers members in a rack
that has a replica. `range` gives each member consecutive partitions of every topic, so that topics with the same
number of partitions are co-partitioned; it depends on the members' names, and not on the previous assignment.

A group with HTTP members uses a sticky round robin in place of `uniform`. It balances and keeps assignments as
`uniform` does, but ignores racks, and a member gives up other partitions:

                                 uniform, as in Kafka       round robin
    member 1 alone               1: 0 1 2                   1: 0 1 2
    member 2 joins               1: 0 1     2: 2            1: 0 2     2: 1

It has no name, so that clients cannot select it and none is written: Kafka would not know it on the same directory.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TypeAlias

from penstock.base.ids import Uuid
from penstock.coordinator.groups.settings import Topic

from .member import Target

Place: TypeAlias = tuple[Uuid, int]
Assigned: TypeAlias = dict[str, Target]


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """A member as assignors see it."""

    topics: frozenset[Uuid]
    """The existing topics that it is subscribed to."""
    target: Target
    """Its previous target assignment."""
    instance_id: str | None = None
    rack_id: str | None = None


Members: TypeAlias = Mapping[str, AssignedMember]
Assignor: TypeAlias = Callable[[Members, Mapping[Uuid, Topic]], Assigned]


def assign_range(members: Members, topics: Mapping[Uuid, Topic]) -> Assigned:
    """Static members first, by instance id; then the others, by member id."""
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
    kept = _take_what_they_have(order, members, free)
    if len({member.topics for member in members.values()}) <= 1:
        _even(kept, free, members, topics)
    else:
        _uneven(kept, free, members, topics)
    return {member_id: _as_target(kept[member_id]) for member_id in members}


def _take_what_they_have(
    order: list[str], members: Members, free: dict[Place, None]
) -> dict[str, dict[Place, None]]:
    """The partitions of each member's previous target that are free. Removes them from the free ones."""
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
            del free[place]  # each is kept once, even if several targets have it
    return kept


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
    """All members subscribe to the same topics: each gets the same number of partitions, and some one more."""
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
    """Members subscribe to different topics: a partition goes to the subscribed member with the fewest, until no move
    improves the balance."""
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
    while moved:  # each move improves the balance, so this ends
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


def assign_round_robin(members: Members, topics: Mapping[Uuid, Topic]) -> Assigned:
    """Assign by sticky round robin: a round robin decides each member's share, and members keep their partitions up to
    their share.

    1: 0 1 2                     one member
    1: 0   2    2: 1             member 2 joins, and gets what the round robin gives it
    1: 0        2: 1    3: 2     member 3 joins

    The round robin starts with the member that has the most partitions, so that larger shares go to members that
    already have as many.
    """
    places = {
        (topic_id, partition): None
        for topic_id in sorted(topics, key=lambda each: (topics[each].name, each))
        if any(topic_id in member.topics for member in members.values())
        for partition in range(topics[topic_id].partitions)
    }
    has = _take_what_they_have(sorted(members), members, dict(places))
    order = sorted(members, key=lambda each: (-len(has[each]), each))
    by_turn = _round_robin(order, members, places)
    shares = Counter(by_turn.values())
    kept: dict[str, dict[Place, None]] = {}
    for member_id in order:
        # Partitions that the round robin gives it are kept first.
        wanted = sorted(has[member_id], key=lambda place: by_turn[place] != member_id)
        kept[member_id] = dict.fromkeys(wanted[: shares[member_id]])
    held = {place for each in kept.values() for place in each}
    wanting = {each: shares[each] - len(kept[each]) for each in order if shares[each] > len(kept[each])}
    for place in places:
        if place in held:
            continue
        taker = by_turn[place]
        if taker not in wanting:
            able = (each for each in wanting if place[0] in members[each].topics)
            taker = next(able, taker)  # no subscribed member is below its share
        kept[taker][place] = None
        if taker in wanting:
            wanting[taker] -= 1
            if not wanting[taker]:
                del wanting[taker]
    return {member_id: _as_target(kept[member_id]) for member_id in members}


def _round_robin(order: list[str], members: Members, places: Mapping[Place, None]) -> dict[Place, str]:
    """Each partition goes to the subscribed member with the fewest, the first in order among equals."""
    by_turn: dict[Place, str] = {}
    loads = dict.fromkeys(order, 0)
    topic_id, least = None, [(0, 0)]
    for place in places:
        if place[0] != topic_id:
            topic_id = place[0]
            least = [
                (loads[each], rank) for rank, each in enumerate(order) if topic_id in members[each].topics
            ]
            heapify(least)
        load, rank = least[0]
        heapreplace(least, (load + 1, rank))
        by_turn[place] = order[rank]
        loads[order[rank]] = load + 1
    return by_turn


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
