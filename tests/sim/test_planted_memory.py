"""A log that remembers too little of its producers: it is caught, as in `test_planted_cluster`."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.records import RecordBatch
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.records import ProducersRemembered
from penstock.sim.clients.producers import ALL, IN_FLIGHT_MAX, ProducerPlan
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.run import Simulation
from penstock.storage.producers import Producer, Producers

IMPATIENT = replace(
    BUSY,
    duration_us=20_000_000,
    producers=tuple(
        ProducerPlan(
            f"exact-{n}",
            "orders",
            ALL,
            Survives.POWER_CUT,
            is_idempotent=True,
            pace_us=60_000,
            timeout_ms=500,
        )
        for n in range(3)
    ),
    crash_us_mean=2_000_000,
    cluster=replace(
        BUSY.cluster, power_cuts=PowerCuts.NONE, down_us=(10_000, 4_000_000), cut_us_mean=2_000_000
    ),
)
"""Batches time out while they are copied, and are sent again together with new ones."""

FIRST = 67
"""From here the search is short."""


@pytest.mark.long
def test_as_many_batches_as_are_in_flight_are_too_few_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kafka keeps. The oldest one without an answer may lie further back."""
    after_data = Producers._after_data

    def keep_few(producers: Producers, batch: RecordBatch, before: Producer) -> Producer:
        after = after_data(producers, batch, before)
        return after._replace(batches=after.batches[-IN_FLIGHT_MAX:])

    plant(monkeypatch, after_data, keep_few)
    assert_caught(IMPATIENT, first=FIRST, by=ProducersRemembered)


def test_a_log_that_remembers_enough_passes() -> None:
    assert Simulation(replace(IMPATIENT, seed=FIRST)).run().acked
