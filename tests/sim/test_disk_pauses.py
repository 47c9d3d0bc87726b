"""One disk in trouble pauses acks=all for less than two seconds with default settings, in virtual time.

Virtual time has no load: what is measured is what nodes and clients wait for, their timers and back-offs.
"""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.faults.test_disk_troubles import CALM

from penstock.replica import isr
from penstock.replica.isr import Isr
from penstock.sim.checkers.history import Acked, Event, Survives
from penstock.sim.clients.pipelined import ClientRules, PipelinedPlan
from penstock.sim.clients.producers import ALL
from penstock.sim.faults.disk_troubles import DiskPlan, Trouble
from penstock.sim.run import Failure, Simulation
from penstock.sim.scenario import Scenario, TopicPlan

PAUSE_US_MAX = 2_000_000

STEADY = replace(
    CALM,
    duration_us=10_000_000,
    settings={"default.replication.factor": "3", "min.insync.replicas": "2"},
    topics=(TopicPlan("orders", 3, {}, replication=3),),
    producers=(),
    consumers=(),
    pipelined=tuple(
        PipelinedPlan(
            name=rules.value,
            topic="orders",
            acks=ALL,
            survives=Survives.POWER_CUT,
            is_idempotent=True,
            in_flight_max=15,
            batch_records_max=4,
            pace_us=120_000,
            timeout_ms=30_000,
            rules=rules,
        )
        for rules in ClientRules
    ),
)
"""Two producers that write at a steady pace, and wait for an answer as long as real clients do."""


class Pauses(Simulation):
    """Measures how long each partition acknowledges nothing."""

    def __init__(self, scenario: Scenario) -> None:
        self._longest_us = 0
        self._acked_us: dict[int, int] = {}
        super().__init__(scenario)

    def record(self, event: Event) -> None:
        if isinstance(event, Acked) and self._schedule.now_us < self.scenario.duration_us:
            now_us, partition = self._schedule.now_us, event.batch.at.partition
            self._longest_us = max(self._longest_us, now_us - self._acked_us.get(partition, now_us))
            self._acked_us[partition] = now_us
        super().record(event)

    @property
    def pause_us(self) -> int:
        """Pauses that had not ended when everyone was told to finish included."""
        return max(self._longest_us, self.scenario.duration_us - min(self._acked_us.values()))


def pause_us(trouble: Trouble, seed: int) -> int:
    plan = replace(STEADY.cluster, disks=DiskPlan((trouble,), mean_us=1_000_000))
    simulation = Pauses(replace(STEADY, seed=seed, cluster=plan))
    simulation.run()
    return simulation.pause_us


TROUBLES = (Trouble.FULL, Trouble.READ_ONLY, Trouble.WRITES_FAIL, Trouble.SYNCS_FAIL, Trouble.SLOW)


@pytest.mark.parametrize("trouble", [Trouble.FULL, Trouble.SLOW])
def test_one_disk_in_trouble_pauses_producers_for_less_than_two_seconds(trouble: Trouble) -> None:
    assert pause_us(trouble, seed=3) < PAUSE_US_MAX


@pytest.mark.long
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("seed", range(8))
def test_it_does_so_with_other_seeds(trouble: Trouble, seed: int) -> None:
    assert pause_us(trouble, seed) < PAUSE_US_MAX


def test_a_leader_that_waits_for_a_replica_outside_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was when the replica's fetches before it left the ISR still counted, for `replica.lag.time.max.ms`."""

    def keep(of: Isr, members: tuple[int, ...]) -> None:
        before = {each: follower.fetched_end for each, follower in of.followers.items()}
        decided(of, members)
        for each, follower in of.followers.items():
            follower.fetched_end = before[each]

    decided = Isr.decided
    monkeypatch.setattr(isr, "JOINING_MS_MAX", 30_000)
    plant(monkeypatch, decided, keep)
    with pytest.raises(Failure, match="ReplicatedInTime"):
        pause_us(Trouble.WRITES_FAIL, seed=3)
