"""Batches that take long to decode: nodes have that done beside their event loops, and one that does not is caught."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.records import ProduceRules, RecordBatch
from penstock.records.validate import validate_records
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
    def decode_at_once(batch: RecordBatch, rules: ProduceRules, now_ms: int, _: object = None) -> None:
        validate_records(batch, rules, now_ms)

    plant(monkeypatch, validate_records, decode_at_once)
    assert_caught(COSTLY, by="HeldLoop")


def test_the_extra_leaves_everything_else_as_the_seed_has_it() -> None:
    for seed in range(1, 6):
        plain = draw_cluster(seed, 3, MINUTE_US)
        costly = with_extras(plain, [Extra.COSTLY_BATCHES])
        assert costly.topics[: len(plain.topics)] == plain.topics
        assert costly.producers[: len(plain.producers)] == plain.producers
        assert replace(costly, extras=(), topics=plain.topics, producers=plain.producers) == plain
