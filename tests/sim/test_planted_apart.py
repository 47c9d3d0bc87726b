"""Controllers that are nodes of their own, beside brokers that only follow them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.ids import Offset
from penstock.metadata.controller import brokers
from penstock.raft.replicas import Replicas as Quorum
from penstock.sim.checkers.cluster import MetadataIdentical
from penstock.sim.checkers.records import AckedNotLost
from penstock.sim.cluster_extras import CONTROLLERS, Extra, with_extras
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.run import Simulation
from penstock.sim.world.process_world import TRUE

APART = replace(
    BUSY,
    crash_us_mean=1_000_000,
    cluster=replace(BUSY.cluster, controllers=CONTROLLERS, clocks=(TRUE,) * 6),
)


@pytest.mark.long
def test_controllers_lead_the_quorum_and_brokers_the_partitions_while_both_go_down() -> None:
    told = "\n".join(Simulation(APART).run().trace)
    for number in (1, 2, 3):
        assert f"node-{number} leads the quorum" not in told
        assert f"node-{number + 3} leads orders" not in told
    for numbers in ((1, 2, 3), (4, 5, 6)):
        assert any(told.count(f"of node-{number} starts") > 1 for number in numbers)
    assert "leads the quorum in epoch 2" in told
    assert "leads orders-0 in epoch 1" in told


@pytest.mark.long
def test_metadata_that_is_committed_without_a_majority_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached_by_one(_: Quorum, __: object, local_flushed: Offset) -> Offset:
        return local_flushed

    plant(monkeypatch, Quorum.reached_by_majority, reached_by_one)
    assert_caught(APART, first=7, by=MetadataIdentical)


def test_a_replica_that_lost_what_it_had_and_stays_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(_: object, broker: Any) -> Iterable[Any]:
        yield brokers.s.BrokerRegistrationChangeRecord(
            version=0, broker_id=broker.id, broker_epoch=broker.epoch, fenced=1
        )

    plant(monkeypatch, brokers._former_life, lambda *_: ())
    plant(monkeypatch, brokers._fenced, keep)
    assert_caught(APART, by=AckedNotLost)


def test_an_extra_leaves_everything_else_as_the_seed_has_it() -> None:
    for seed in range(1, 11):
        plain = draw_cluster(seed, 3, MINUTE_US)
        apart = with_extras(plain, [Extra.APART])
        assert apart.cluster.clocks[:3] == plain.cluster.clocks
        assert len(apart.cluster.clocks) == 3 + CONTROLLERS
        assert replace(apart, extras=(), cluster=plain.cluster) == plain
        assert apart.length.endswith("--nodes 3 --with apart")
        assert with_extras(plain, []) == plain
