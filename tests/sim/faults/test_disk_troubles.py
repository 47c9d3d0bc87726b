"""Disks that fail for a while under running nodes: each kind of trouble happens, and the nodes bear it."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.replica import isr
from penstock.replica.failing_disk import FailingDisk
from penstock.replica.isr import Isr
from penstock.sim.checkers.pauses import AckedInTime
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.faults.disk_troubles import DiskPlan, Trouble
from penstock.sim.run import Simulation
from penstock.sim.scenario import Scenario

CALM = replace(
    BUSY,
    crash_us_mean=0,
    has_disk_faults=True,
    cuts_power=False,
    cluster=replace(BUSY.cluster, power_cuts=PowerCuts.FEW, cut_us_mean=0, hiccups=0.0, faulty=-1),
)
"""Nothing fails but disks."""


def troubled(kind: Trouble, seed: int = 0) -> Scenario:
    plan = replace(CALM.cluster, disks=DiskPlan((kind,), mean_us=2_000_000))
    return replace(CALM, seed=seed, cluster=plan)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        pytest.param(Trouble.FULL, "full after", marks=pytest.mark.long),
        pytest.param(Trouble.READ_ONLY, "Read-only file system", marks=pytest.mark.long),
        pytest.param(Trouble.WRITES_FAIL, "Input/output error", marks=pytest.mark.long),
        pytest.param(Trouble.SYNCS_FAIL, "fails syncs", marks=pytest.mark.long),
        pytest.param(Trouble.READS_FAIL, "Input/output error", marks=pytest.mark.long),
        pytest.param(Trouble.SLOW, "is slow", marks=pytest.mark.long),
    ],
)
def test_nodes_bear_a_disk_in_trouble(kind: Trouble, told: str) -> None:
    trace = "\n".join(line for seed in range(2) for line in Simulation(troubled(kind, seed)).run().trace)
    assert f"has a disk that {kind.value}" in trace
    assert "has a disk that works" in trace
    assert told in trace


# -- liveness with a bound -------------------------------------------------------------------------------

PATIENT = replace(
    CALM,
    duration_us=30_000_000,
    settings=CALM.settings | {"replica.lag.time.max.ms": "30000"},
    producers=CALM.producers[:1],
)
"""A leader that finds out by itself that a follower stands still takes 30 s and more."""


def failing(kind: Trouble, seed: int) -> Scenario:
    plan = replace(PATIENT.cluster, disks=DiskPlan((kind,), mean_us=2_000_000))
    return replace(PATIENT, seed=seed, cluster=plan)


@pytest.mark.long
def test_a_follower_that_waits_to_be_found_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before replicas left the ISR by themselves."""
    Simulation(failing(Trouble.WRITES_FAIL, 0)).run()
    plant(monkeypatch, FailingDisk._send, lambda _: None)
    assert_caught(failing(Trouble.WRITES_FAIL, 0), first=7, by=AckedInTime)


@pytest.mark.long
def test_a_leader_that_waits_for_who_has_left_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its high watermark waited for a replica that had been at the log end of late."""
    decided = Isr.decided

    def keep(of: Isr, members: tuple[int, ...]) -> None:
        before = {
            each: (follower.caught_up_ms, follower.last_fetch, follower.fetched_end)
            for each, follower in of.followers.items()
        }
        decided(of, members)
        for each, follower in of.followers.items():
            follower.caught_up_ms, follower.last_fetch, follower.fetched_end = before[each]

    assert isr.JOINING_MS_MAX < 30_000
    monkeypatch.setattr(isr, "JOINING_MS_MAX", 30_000)
    plant(monkeypatch, decided, keep)
    assert_caught(failing(Trouble.WRITES_FAIL, 0), by=AckedInTime)
