"""Runs from seeds: clients produce and consume while the node crashes and comes back, with all checkers on.

`penstock sim run --seed N --trace` shows one of them.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.sim.seeds import fingerprint_elsewhere, kept_in

from penstock.sim.play import play
from penstock.sim.run import Failure, Simulation
from penstock.sim.scenario import STEPS_DEFAULT, Scenario, draw

SEEDS = (*range(1, 20, 2), *range(2, 21, 2))
"""The even ones have groups and transactions."""
SEEDS_LONG = [seed for seed in range(1, 301) if seed not in SEEDS]

KEPT = [(seed, int(steps)) for seed, steps in kept_in("seeds.txt")]

QUICK = 3
"""As many of each does `make test` run; `make test-long` runs all."""


def mostly_long(rows: Iterable[tuple[int, ...]]) -> list[object]:
    return [pytest.param(*row, marks=() if at < QUICK else pytest.mark.long) for at, row in enumerate(rows)]


def went_well(seed: int, steps: int = STEPS_DEFAULT) -> None:
    try:
        Simulation(draw(seed, steps)).run()
    except Failure as failure:
        pytest.fail(str(failure))


@pytest.mark.parametrize("seed", mostly_long((each,) for each in SEEDS[::-1]))
def test_a_seed_goes_well(seed: int) -> None:
    went_well(seed)


@pytest.mark.parametrize(("seed", "steps"), mostly_long(KEPT[::-1]))
def test_a_seed_that_once_failed_goes_well(seed: int, steps: int) -> None:
    went_well(seed, steps)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_many_seeds_go_well(seed: int) -> None:
    went_well(seed)


def crashing() -> Scenario:
    """The first scenario in which the node crashes often, and somebody is idempotent."""
    return next(
        scenario
        for scenario in map(draw, range(1, 100))
        if 0 < scenario.crash_us_mean <= 300_000 and any(each.is_idempotent for each in scenario.producers)
    )


def coordinating() -> Scenario:
    """The first scenario in which the node crashes often, and that has both kinds of groups."""
    return next(
        scenario
        for scenario in map(draw, range(2, 1000, 2))
        if 0 < scenario.crash_us_mean <= 300_000
        and len({each.is_consumer_protocol for each in scenario.coordination.members}) == 2
    )


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(crashing(), id="plain", marks=pytest.mark.long),
        pytest.param(coordinating(), id="coordinated"),
    ],
)
def test_a_seed_gives_the_same_trace_in_another_process_whatever_hashes_are_there(scenario: Scenario) -> None:
    seed = scenario.seed
    told = play(seed, 2000)
    assert told.outcome is not None, told.failure
    assert fingerprint_elsewhere(f"play({seed}, 2000)") == told.outcome.fingerprint


def test_another_seed_gives_another_trace() -> None:
    outcomes = [play(seed, 500).outcome for seed in (1, 2)]
    assert outcomes[0] is not None
    assert outcomes[1] is not None
    assert outcomes[0].fingerprint != outcomes[1].fingerprint


def test_a_run_does_what_it_is_for() -> None:
    """A scenario in which nothing happens finds nothing."""
    outcome = Simulation(replace(crashing(), steps=6000)).run()
    told = "\n".join(outcome.trace)
    assert outcome.processes > 3
    assert outcome.power_cuts > 0
    assert outcome.acked > 50
    assert outcome.read > 50
    for what in (
        "is killed while up",
        "loses power while up",
        "lost its connection",
        "reads",
        "everything is read",
    ):
        assert what in told


@pytest.mark.long
def test_a_run_with_groups_and_transactions_does_what_it_is_for() -> None:
    outcome = Simulation(replace(coordinating(), steps=12_000)).run()
    told = "\n".join(outcome.trace)
    assert outcome.processes > 3
    assert outcome.transactions > 5
    assert outcome.commits > 5
    for what in (
        "crashes",
        "stalls for",
        "has offsets in transaction",
        "(committed)",
        "(aborted)",
        "in generation 2",
        "in epoch",
        "continues at",
    ):
        assert what in told


def test_the_scenarios_of_the_default_seeds_have_everything_in_them() -> None:
    scenarios = [draw(seed) for seed in SEEDS]
    assert {each.acks for scenario in scenarios for each in scenario.producers} == {0, 1, -1}
    assert {each.uses_session for scenario in scenarios for each in scenario.consumers} == {True, False}
    assert {scenario.settings["durability.fsync"] for scenario in scenarios} >= {"alone", "never"}
    assert any(scenario.has_disk_faults for scenario in scenarios)
    assert any(topic.is_compacted for scenario in scenarios for topic in scenario.topics)
    assert any(topic.is_shortened for scenario in scenarios for topic in scenario.topics)
    assert any("flush.messages" in topic.configs for scenario in scenarios for topic in scenario.topics)
    together = [scenario.coordination for scenario in scenarios]
    assert {each.is_consumer_protocol for one in together for each in one.members} == {True, False}
    assert {each.txn.is_version_2 for one in together for each in one.transactional} == {True, False}
    assert {each.txn.is_shared for one in together for each in one.transactional} == {True, False}
    assert {each.txn.is_version_2 for one in together for each in one.workers} == {True, False}
    assert any(scenario.has_disk_faults and scenario.coordination.workers for scenario in scenarios)
