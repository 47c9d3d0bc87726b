"""Preferred leaders come back by themselves, in their time."""

from typing import Any

import pytest
from tests.metadata.world import CLUSTER, World

from penstock.metadata import records as s
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.controller import Controller, balancing

INTERVAL = "leader.imbalance.check.interval.seconds"
ENABLED = "auto.leader.rebalance.enable"


def world(**settings: str) -> World:
    """Broker 1, which led t, was away: 2 leads it now, and 1 is in sync again."""
    made = World((1, 2, 3))
    made.controller = Controller(
        made.image,
        cluster_id=CLUSTER,
        rng=made.controller._view.rng,
        now_ms=made.now_ms,
        settings=BrokerSettings(None, {key.replace("_", "."): value for key, value in settings.items()}),
        session_timeout_ms=10**9,
    )
    made.create("t", (1, 2, 3))
    made.fence(1)
    made.start(1)
    made.shrink("t", 1, 2, 3)
    assert made.partition("t").leader == 2
    return made


def leader_after(made: World, seconds: int) -> int:
    made.tick(1000 * seconds)
    return made.partition("t").leader


@pytest.mark.parametrize("seconds", [300, 7])
def test_preferred_leaders_return_when_the_interval_is_over(seconds: int) -> None:
    made = world(**({} if seconds == 300 else {INTERVAL: str(seconds)}))
    epoch = made.partition("t").leader_epoch
    assert leader_after(made, seconds - 1) == 2
    assert leader_after(made, 1) == 1
    assert made.partition("t").leader_epoch == epoch + 1
    assert made.partition("t").isr == (1, 2, 3)


@pytest.mark.parametrize(("enabled", "leader"), [("true", 1), ("false", 2)])
def test_an_operator_may_want_leaders_to_stay_where_they_are(enabled: str, leader: int) -> None:
    assert leader_after(world(**{ENABLED: enabled}), 301) == leader


def out_of_sync(made: World) -> None:
    made.shrink("t", 2, 3)


def fenced(made: World) -> None:
    made.fence(1)


def leaderless(made: World) -> None:
    for broker in (1, 2, 3):
        made.fence(broker)


@pytest.mark.parametrize(
    ("happen", "leader"),
    [(out_of_sync, 2), (fenced, 2), (leaderless, s.NO_LEADER)],
    ids=["out of sync", "fenced", "leaderless"],
)
def test_a_preferred_replica_that_may_not_lead_is_left_alone(happen: Any, leader: int) -> None:
    made = world()
    happen(made)
    before = made.partition("t")
    assert leader_after(made, 301) == leader
    assert made.partition("t") == before


def test_it_is_looked_again_after_each_interval() -> None:
    made = world()
    assert leader_after(made, 301) == 1
    made.fence(1)
    made.start(1)
    made.shrink("t", 1, 2, 3)
    assert leader_after(made, 299) == 2
    assert leader_after(made, 2) == 1


def test_many_return_in_pieces_one_tick_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancing, "ELECTIONS_MAX", 2)
    made = World((1, 2))
    made.ask(r.CreateTopics((r.NewTopic("u", assignments=tuple((each, (1, 2)) for each in range(5))),)))
    made.fence(1)
    made.start(1)
    topic = made.image.topics["u"]
    changes = tuple(
        r.IsrChange(
            topic.id, number, each.leader_epoch, each.partition_epoch, (r.IsrMember(1), r.IsrMember(2))
        )
        for number, each in sorted(topic.partitions.items())
    )
    made.ask(r.AlterPartition(2, made.broker(2).epoch, changes))
    made.now_ms += 301_000
    for broker in (1, 2):
        made.beat(broker)
    counts = []
    for _ in range(4):
        outcome = made.controller.tick(made.now_ms)
        made.write(outcome.records)
        counts.append(outcome.reply)
    assert counts == [2, 2, 1, 0]
    assert {each.leader for each in made.image.topics["u"].partitions.values()} == {1}
