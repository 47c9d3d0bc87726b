"""Batches that take long to decode: nodes have that done beside their event loops, and one that does not is caught."""

from dataclasses import replace

import pytest
from tests.sim.test_planted_cluster import BUSY, complaint

from penstock.records import validate
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.run import Simulation

COSTLY = with_extras(replace(BUSY, crash_us_mean=2_000_000), [Extra.COSTLY_BATCHES])


def test_thousands_of_records_in_a_batch_hold_no_loop() -> None:
    simulation = Simulation(COSTLY)
    simulation.run()
    costs = simulation._schedule.costs
    assert costs is not None
    assert costs.most_us > 0


def test_records_that_are_decoded_on_the_loop_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("RECORDS_ON_LOOP_MAX", "PACKED_ON_LOOP_MAX", "UNPACKED_ON_LOOP_MAX"):
        monkeypatch.setattr(validate, limit, 1 << 40)
    assert complaint(COSTLY) == "HeldLoop"


def test_the_extra_leaves_everything_else_as_the_seed_has_it() -> None:
    for seed in range(1, 6):
        plain = draw_cluster(seed, 3, MINUTE_US)
        costly = with_extras(plain, [Extra.COSTLY_BATCHES])
        assert costly.topics[: len(plain.topics)] == plain.topics
        assert costly.producers[: len(plain.producers)] == plain.producers
        assert replace(costly, extras=(), topics=plain.topics, producers=plain.producers) == plain
