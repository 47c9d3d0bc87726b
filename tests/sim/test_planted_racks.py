"""Consumers that read from the replica near them (KIP-392), and what a follower could get wrong about that."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.metadata.config_table import RACK_AWARE
from penstock.replica.partition import Partition
from penstock.sim.checkers.cluster import HighWatermarkHeld
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.run import Simulation

NEAR = replace(
    BUSY,
    settings=BUSY.settings | {"replica.selector.class": RACK_AWARE},
    consumers=tuple(
        replace(BUSY.consumers[0], name=f"reader-{rack}", rack=str(rack), pause_us_max=5_000)
        for rack in (1, 2, 3)
    ),
    cluster=replace(BUSY.cluster, has_racks=True),
)

DYING = replace(
    NEAR,
    crash_us_mean=2_500_000,
    cluster=replace(NEAR.cluster, power_cuts=PowerCuts.NONE, hiccups=0.05),
)
"""Leaders die with what they alone have, and somebody always reads elsewhere."""


@pytest.mark.long
def test_consumers_read_near_them_and_at_the_leader_where_that_fails() -> None:
    told = "".join("\n".join(Simulation(replace(NEAR, seed=seed)).run().trace) for seed in range(3))
    for node in (1, 2, 3):
        assert f"reads orders-0 at node {node} from now on" in told
    assert "at its leader again" in told


@pytest.mark.long
def test_a_follower_that_shows_what_is_not_committed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Partition.follow_high_watermark

    def show_all(partition: Partition, _: int, leader_log_start: int) -> None:
        follow(partition, partition.log.log_end, leader_log_start)

    plant(monkeypatch, Partition.follow_high_watermark, show_all)
    assert_caught(DYING, first=3, by=HighWatermarkHeld)
