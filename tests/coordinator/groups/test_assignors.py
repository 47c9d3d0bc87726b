"""The coordinator's assignors: complete, balanced, sticky, near."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.groups.world import ATopic

from penstock.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    AssignedMember,
    assign_range,
    assign_round_robin,
    assign_uniform,
)
from penstock.coordinator.groups.consumer.member import Target


def a_topic(name: str, partitions: int, *racks: str) -> ATopic:
    return ATopic(name, name.encode() * 16, partitions, tuple(frozenset({rack}) for rack in racks))


def member(topics: Mapping[bytes, ATopic], target: Target | None = None, **said: str) -> AssignedMember:
    return AssignedMember(frozenset(topics), target or {}, **said)


def by_id(*topics: ATopic) -> dict[bytes, ATopic]:
    return {topic.topic_id: topic for topic in topics}


def places(target: Target) -> set[tuple[bytes, int]]:
    return {(topic_id, partition) for topic_id, partitions in target.items() for partition in partitions}


A, B = b"a" * 16, b"b" * 16


def test_range_gives_neighbouring_partitions_and_the_first_members_more() -> None:
    topics = by_id(a_topic("a", 7), a_topic("b", 3))
    members = {each: member(topics) for each in ("z", "x", "y")}
    result = assign_range(members, topics)
    assert result["x"] == {A: (0, 1, 2), B: (0,)}
    assert result["y"] == {A: (3, 4), B: (1,)}
    assert result["z"] == {A: (5, 6), B: (2,)}


def test_range_puts_static_members_first_so_that_new_ids_move_nothing() -> None:
    topics = by_id(a_topic("a", 3))
    members = {
        "9": member(topics, instance_id="i1"),
        "5": member(topics, instance_id="i2"),
        "0": member(topics),
    }
    result = assign_range(members, topics)
    assert (result["9"], result["5"], result["0"]) == ({A: (0,)}, {A: (1,)}, {A: (2,)})


def test_range_leaves_members_without_a_share_where_there_are_more_of_them() -> None:
    topics = by_id(a_topic("a", 1))
    assert assign_range({"x": member(topics), "y": member(topics)}, topics) == {"x": {A: (0,)}, "y": {}}


def test_uniform_moves_no_more_than_balance_needs() -> None:
    topics = by_id(a_topic("a", 6))
    members = {"x": member(topics, {A: (0, 2, 4)}), "y": member(topics, {A: (1, 3, 5)}), "z": member(topics)}
    result = assign_uniform(members, topics)
    assert {each: len(result[each][A]) for each in result} == {"x": 2, "y": 2, "z": 2}
    assert places(result["x"]) < {(A, 0), (A, 2), (A, 4)}
    assert places(result["y"]) < {(A, 1), (A, 3), (A, 5)}


def test_uniform_lets_those_keep_the_extra_ones_that_have_them() -> None:
    topics = by_id(a_topic("a", 5))
    members = {"x": member(topics, {A: (0, 1)}), "y": member(topics, {A: (2, 3, 4)})}
    assert assign_uniform(members, topics) == {"x": {A: (0, 1)}, "y": {A: (2, 3, 4)}}


def test_uniform_prefers_members_that_are_near() -> None:
    """KIP-881: where racks are known, and balance leaves a choice."""
    topics = by_id(a_topic("a", 4, "west", "east", "west", "east"))
    members = {"x": member(topics, rack_id="east"), "y": member(topics, rack_id="west")}
    assert assign_uniform(members, topics) == {"x": {A: (1, 3)}, "y": {A: (0, 2)}}


def test_uniform_forgets_partitions_and_topics_that_are_gone() -> None:
    topics = by_id(a_topic("a", 2))
    members = {"x": member(topics, {A: (1, 5), B: (0,)})}
    assert assign_uniform(members, topics) == {"x": {A: (0, 1)}}


def test_a_target_that_two_members_share_is_given_to_one() -> None:
    topics = by_id(a_topic("a", 2))
    members = {"x": member(topics, {A: (0, 1)}), "y": member(topics, {A: (0, 1)})}
    result = assign_uniform(members, topics)
    assert places(result["x"]) | places(result["y"]) == {(A, 0), (A, 1)}
    assert not places(result["x"]) & places(result["y"])


SOME = by_id(a_topic("a", 5), a_topic("b", 3, "r", "s", "r"), a_topic("c", 1), a_topic("d", 0))


@st.composite
def groups(draw: st.DrawFn, alike: bool) -> dict[str, AssignedMember]:
    everything = sorted(SOME)
    subscription = st.sets(st.sampled_from(everything)).map(frozenset)
    same = draw(subscription)
    free = [
        (topic_id, partition) for topic_id, topic in SOME.items() for partition in range(topic.partitions + 1)
    ]
    members = {}
    for number in range(draw(st.integers(1, 6))):
        target: dict[bytes, list[int]] = {}
        for topic_id, partition in draw(st.lists(st.sampled_from(free), unique=True, max_size=8)):
            target.setdefault(topic_id, []).append(partition)
        members[f"m{number}"] = AssignedMember(
            same if alike else draw(subscription),
            {topic_id: tuple(sorted(partitions)) for topic_id, partitions in target.items()},
            draw(st.none() | st.just(f"i{number}")),
            draw(st.none() | st.sampled_from(["r", "s"])),
        )
    return members


@given(st.sampled_from(sorted(ASSIGNORS)), st.booleans().flatmap(groups))
def test_every_subscribed_partition_has_one_subscribed_owner(
    name: str, members: dict[str, AssignedMember]
) -> None:
    result = ASSIGNORS[name](members, SOME)
    assert set(result) == set(members)
    given_out = [place for target in result.values() for place in places(target)]
    assert len(given_out) == len(set(given_out))
    wanted = {
        (topic_id, partition)
        for each in members.values()
        for topic_id in each.topics
        for partition in range(SOME[topic_id].partitions)
    }
    assert set(given_out) == wanted
    for member_id, target in result.items():
        assert set(target) <= members[member_id].topics
        assert all(partitions == tuple(sorted(partitions)) and partitions for partitions in target.values())


@given(groups(alike=True))
def test_uniform_is_balanced_and_done_when_it_is_asked_again(members: dict[str, AssignedMember]) -> None:
    result = assign_uniform(members, SOME)
    loads = [len(places(target)) for target in result.values()]
    assert max(loads) - min(loads) <= 1
    again = {
        member_id: AssignedMember(each.topics, result[member_id], each.instance_id, each.rack_id)
        for member_id, each in members.items()
    }
    assert assign_uniform(again, SOME) == result


@given(groups(alike=False))
def test_uniform_leaves_no_move_that_would_even_out_different_subscriptions(
    members: dict[str, AssignedMember],
) -> None:
    result = assign_uniform(members, SOME)
    loads = {member_id: len(places(target)) for member_id, target in result.items()}
    for most, target in result.items():
        for topic_id in target:
            for least, each in members.items():
                if topic_id in each.topics:
                    assert loads[most] - loads[least] < 2


@given(groups(alike=False), st.randoms(use_true_random=False))
def test_the_order_in_which_topics_are_named_makes_no_difference(
    members: dict[str, AssignedMember], rng: Random
) -> None:
    shuffled = [*SOME.items()]
    rng.shuffle(shuffled)
    for assign in ASSIGNORS.values():
        assert assign(members, dict(shuffled)) == assign(members, SOME)


# Dealt, to groups with members of the HTTP door.


def after(members: dict[str, AssignedMember], result: Mapping[str, Target]) -> dict[str, AssignedMember]:
    """The members when they have what they were assigned."""
    return {
        member_id: AssignedMember(each.topics, result.get(member_id, {}), each.instance_id, each.rack_id)
        for member_id, each in members.items()
    }


def test_round_robin_partitions_are_those_of_the_design() -> None:
    """DESIGN section 2: alice [0, 2] and bob [1]; charlie joins: [0], [1], [2]."""
    topics = by_id(a_topic("a", 3))
    members = {"alice": member(topics)}
    result = assign_round_robin(members, topics)
    assert result == {"alice": {A: (0, 1, 2)}}
    members = after({**members, "bob": member(topics)}, result)
    result = assign_round_robin(members, topics)
    assert result == {"alice": {A: (0, 2)}, "bob": {A: (1,)}}
    members = after({**members, "charlie": member(topics)}, result)
    result = assign_round_robin(members, topics)
    assert result == {"alice": {A: (0,)}, "bob": {A: (1,)}, "charlie": {A: (2,)}}
    del members["charlie"]
    assert assign_round_robin(after(members, result), topics) == {"alice": {A: (0, 2)}, "bob": {A: (1,)}}


def test_round_robin_depends_on_who_joined_first_and_not_on_names() -> None:
    topics = by_id(a_topic("a", 3))
    members = {"zoe": member(topics, {A: (0, 1, 2)}), "adam": member(topics)}
    assert assign_round_robin(members, topics) == {"zoe": {A: (0, 2)}, "adam": {A: (1,)}}


def test_dealing_goes_on_from_topic_to_topic() -> None:
    """So that who has more of one has less of the next."""
    topics = by_id(a_topic("a", 3), a_topic("b", 3))
    result = assign_round_robin({"x": member(topics), "y": member(topics)}, topics)
    assert result == {"x": {A: (0, 2), B: (1,)}, "y": {A: (1,), B: (0, 2)}}


def test_round_robin_gives_a_topic_only_to_its_subscribers() -> None:
    one, both = by_id(a_topic("a", 3)), by_id(a_topic("a", 3), a_topic("b", 3))
    result = assign_round_robin({"x": member(both), "y": member(one)}, both)
    assert result == {"x": {A: (0, 2), B: (0, 1, 2)}, "y": {A: (1,)}}


@given(st.booleans().flatmap(groups))
def test_round_robin_gives_every_partition_once_to_a_subscriber(members: dict[str, AssignedMember]) -> None:
    result = assign_round_robin(members, SOME)
    dealt = [place for target in result.values() for place in places(target)]
    wanted = {
        (topic_id, partition)
        for each in members.values()
        for topic_id in each.topics
        for partition in range(SOME[topic_id].partitions)
    }
    assert len(dealt) == len(set(dealt))
    assert set(dealt) == wanted
    for member_id, target in result.items():
        assert set(target) <= members[member_id].topics
        assert all(partitions == tuple(sorted(partitions)) and partitions for partitions in target.values())


@given(groups(alike=True))
def test_dealing_is_balanced_keeps_all_that_balance_allows_and_is_done_when_asked_again(
    members: dict[str, AssignedMember],
) -> None:
    result = assign_round_robin(members, SOME)
    loads = {member_id: len(places(target)) for member_id, target in result.items()}
    assert max(loads.values()) - min(loads.values()) <= 1
    taken: set[tuple[bytes, int]] = set()
    for member_id in sorted(members):  # a place that two were to have counts for one
        there = {
            place
            for place in places(members[member_id].target)
            if place[0] in members[member_id].topics and place[1] < SOME[place[0]].partitions
        } - taken
        taken |= there
        kept = there & places(result[member_id])
        assert len(kept) == min(len(there), loads[member_id])
    assert assign_round_robin(after(members, result), SOME) == result


@given(groups(alike=False), st.randoms(use_true_random=False))
def test_dealing_does_not_depend_on_the_order_in_which_topics_are_named(
    members: dict[str, AssignedMember], rng: Random
) -> None:
    shuffled = [*SOME.items()]
    rng.shuffle(shuffled)
    assert assign_round_robin(members, dict(shuffled)) == assign_round_robin(members, SOME)
