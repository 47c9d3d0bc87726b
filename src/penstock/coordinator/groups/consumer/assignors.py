"""The coordinator's own assignors: who is to have what.

`uniform` keeps what members have as far as the loads stay within one partition of each other, and prefers members
in a rack that has a replica. `range` gives each member a run of neighbouring partitions of every topic, so that
topics with as many partitions are split alike, and their records with the same keys meet; it looks at names and
not at what was. The same group and topics give the same answer, wherever it is asked.

A group with members of the HTTP door has its partitions dealt, where it would be `uniform`. That keeps the promises of
`uniform` but for racks, and differs in what a member gives up: `uniform` takes its last ones, as Kafka does, and so
leaves alice 0 and 1 when bob comes; dealt like cards, they are 0 and 2 for her and 1 for him. It has no name that a
client could ask for, and none is written: Kafka, on the same directory, would look for it in vain.
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
    kept = _take_what_they_have(order, members, free)
    if len({member.topics for member in members.values()}) <= 1:
        _even(kept, free, members, topics)
    else:
        _uneven(kept, free, members, topics)
    return {member_id: _as_target(kept[member_id]) for member_id in members}


def _take_what_they_have(
    order: list[str], members: Members, free: dict[Place, None]
) -> dict[str, dict[Place, None]]:
    """By member, the partitions of its target that were free; they are removed from the free ones."""
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
    helps."""
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


def assign_dealt(members: Members, topics: Mapping[Uuid, Topic]) -> Assigned:
    """As cards are dealt, one after the other; but who has partitions keeps them as far as its share goes.

    alice 0 1 2                          alone
    alice 0   2    bob 1                 bob comes, and gets what a new deal would give him
    alice 0        bob 1    charlie 2    charlie comes

    Who has most is dealt to first: the shares that are one larger go to those who have that much already.
    """
    places = {
        (topic_id, partition): None
        for topic_id in sorted(topics, key=lambda each: (topics[each].name, each))
        if any(topic_id in member.topics for member in members.values())
        for partition in range(topics[topic_id].partitions)
    }
    has = _take_what_they_have(sorted(members), members, dict(places))
    order = sorted(members, key=lambda each: (-len(has[each]), each))
    dealt = _deal(order, members, places)
    shares = Counter(dealt.values())
    kept: dict[str, dict[Place, None]] = {}
    for member_id in order:
        # What the deal gives it goes last.
        wanted = sorted(has[member_id], key=lambda place: dealt[place] != member_id)
        kept[member_id] = dict.fromkeys(wanted[: shares[member_id]])
    held = {place for each in kept.values() for place in each}
    wanting = {each: shares[each] - len(kept[each]) for each in order if shares[each] > len(kept[each])}
    for place in places:
        if place in held:
            continue
        taker = dealt[place]
        if taker not in wanting:
            able = (each for each in wanting if place[0] in members[each].topics)
            taker = next(able, taker)  # no member has room: one gets more than its share
        kept[taker][place] = None
        if taker in wanting:
            wanting[taker] -= 1
            if not wanting[taker]:
                del wanting[taker]
    return {member_id: _as_target(kept[member_id]) for member_id in members}


def _deal(order: list[str], members: Members, places: Mapping[Place, None]) -> dict[Place, str]:
    """Each partition goes to the subscribed member with the fewest, the first in order among equals."""
    dealt: dict[Place, str] = {}
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
        dealt[place] = order[rank]
        loads[order[rank]] = load + 1
    return dealt


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
