"""Plans: even, rack by rack, and with as few replicas moved as that takes."""

from collections import Counter
from random import Random

import pytest

from penstock.base.ids import TopicPartition
from penstock.metadata.reassignment_plan import Assignment, CannotPlan, PlannedBroker, plan

T = TopicPartition


def brokers(*ids: int, **racks: str) -> list[PlannedBroker]:
    return [PlannedBroker(each, racks.get(f"b{each}")) for each in ids]


def topic(name: str, *replicas: tuple[int, ...]) -> Assignment:
    return {T(name, number): each for number, each in enumerate(replicas)}


def copies(before: Assignment, after: Assignment) -> int:
    return sum(len(set(after[each]) - set(before[each])) for each in before)


def test_what_is_even_already_stays_as_it_is() -> None:
    current = topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    assert plan(current, brokers(1, 2, 3)) == current


def test_a_new_broker_gets_its_share_and_no_more_is_moved() -> None:
    current = topic("t", *[(1, 2, 3)] * 4)
    after = plan(current, brokers(1, 2, 3, 4))
    load = Counter(each for replicas in after.values() for each in replicas)
    assert load == {1: 3, 2: 3, 3: 3, 4: 3}
    assert copies(current, after) == 3


def test_a_broker_that_is_not_named_gives_up_what_it_has() -> None:
    current = topic("t", (1, 2), (2, 3), (3, 1))
    after = plan(current, brokers(1, 2, 4))
    assert 3 not in {each for replicas in after.values() for each in replicas}
    assert copies(current, after) == 2
    assert after[T("t", 0)] in {(1, 2), (2, 1)}


def test_replicas_in_one_rack_are_spread_over_all() -> None:
    racks = {"b1": "a", "b2": "a", "b3": "b", "b4": "b"}
    after = plan(topic("t", (1, 2), (2, 1), (3, 4), (1, 3)), brokers(1, 2, 3, 4, **racks))
    for replicas in after.values():
        assert len({racks[f"b{each}"] for each in replicas}) == 2
    assert Counter(each for replicas in after.values() for each in replicas) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_more_replicas_are_added_and_fewer_are_dropped_from_the_end() -> None:
    current = topic("t", (1, 2), (2, 3), (3, 1))
    more = plan(current, brokers(1, 2, 3), 3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in more.values())
    assert copies(current, more) == 3
    fewer = plan(current, brokers(1, 2, 3), 1)
    assert fewer == topic("t", (1,), (2,), (3,))


def test_every_broker_is_first_about_as_often() -> None:
    current = topic("t", *[(1, 2, 3)] * 6)
    after = plan(current, brokers(1, 2, 3))
    assert copies(current, after) == 0
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}


def test_topics_of_one_partition_are_spread_over_all_brokers() -> None:
    current = {T(f"t{number}", 0): (1,) for number in range(6)}
    after = plan(current, brokers(1, 2, 3))
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}
    assert copies(current, after) == 4


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(CannotPlan, match="3 replicas of a partition need 3 brokers, but the plan has 2"):
        plan(topic("t", (1, 2, 3)), brokers(1, 2))
    with pytest.raises(CannotPlan, match="broker 2 has no rack"):
        plan(topic("t", (1,)), brokers(1, 2, b1="a"))


@pytest.mark.parametrize("seed", range(60))
def test_any_plan_is_sound_and_even(seed: int) -> None:
    rng = Random(seed)
    ids = list(range(1, rng.randint(3, 9)))
    racks = (
        {f"b{each}": f"rack-{each % 2}" for each in ids} if rng.random() < 0.5 and len(ids) % 2 == 0 else {}
    )
    factor = rng.randint(1, min(3, len(ids)))
    current = {
        T(f"t{name}", number): tuple(rng.sample(range(1, 12), factor))
        for name in range(rng.randint(1, 4))
        for number in range(rng.randint(1, 12))
    }
    after = plan(current, brokers(*ids, **racks))
    assert sorted(after) == sorted(current)
    for replicas in after.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(ids)
        if racks:
            spread = Counter(racks[f"b{each}"] for each in replicas)
            assert max(spread.values()) <= -(-factor // 2)
    load = Counter(dict.fromkeys(ids, 0))
    load.update(each for replicas in after.values() for each in replicas)
    assert max(load.values()) - min(load.values()) <= 2, "two passes, each even to one"
    assert plan(after, brokers(*ids, **racks)) == after, "nothing is left to be moved"
