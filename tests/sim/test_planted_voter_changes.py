"""Voters of the quorum that change while nodes go down and the network is cut; leaders that change them wrongly."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.ids import Offset
from penstock.raft.replicas import Replicas as Quorum
from penstock.raft.voters import VoterSet
from penstock.sim.checkers.cluster import MetadataIdentical
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.run import Simulation
from penstock.sim.world.process_world import TRUE

CHANGING = replace(
    BUSY,
    crash_us_mean=2_000_000,
    cluster=replace(
        BUSY.cluster,
        clocks=(TRUE,) * 3,
        down_us=(10_000, 1_000_000),
        cut_us_mean=4_000_000,
        operate_us_mean=500_000,
        voter_changes_us_mean=150_000,
    ),
)


def test_voters_come_and_go_and_the_quorum_goes_on() -> None:
    told = "\n".join(Simulation(CHANGING).run().trace)
    assert "voter operator adds voter 2: NONE" in told
    assert told.count("voter operator removes voter") > 2
    assert any(f"node-{number} leads the quorum" in told for number in (2, 3))


@pytest.mark.long
def test_controllers_that_are_nodes_of_their_own_change_too() -> None:
    apart = replace(CHANGING.cluster, controllers=3, clocks=(TRUE,) * 6)
    told = "\n".join(Simulation(replace(CHANGING, cluster=apart)).run().trace)
    assert "voter operator adds voter 5: NONE" in told
    assert "adds voter 1" not in told


@pytest.mark.long
def test_a_leader_that_counts_by_the_voters_that_its_epoch_began_with_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-853: a set is in force as soon as it is in the log. The first leader would commit alone for ever."""
    reached = Quorum.reached_by_majority

    def by_first_set(replicas: Quorum, voters: VoterSet, flushed: Offset) -> Offset:
        first = replicas.__dict__.setdefault("first_set", voters)
        return reached(replicas, first, flushed)

    plant(monkeypatch, Quorum.reached_by_majority, by_first_set)
    assert_caught(CHANGING, first=31, by=MetadataIdentical)


def test_the_extra_leaves_everything_else_as_the_seed_has_it() -> None:
    for seed in range(1, 6):
        plain = draw_cluster(seed, 3, MINUTE_US)
        changing = with_extras(plain, [Extra.VOTER_CHANGES])
        plan = replace(
            changing.cluster,
            voter_changes_us_mean=0,
            voters_join=False,
            harm=plain.cluster.harm,
            harm_us_mean=plain.cluster.harm_us_mean,
        )
        assert replace(changing, extras=(), cluster=plan) == plain
