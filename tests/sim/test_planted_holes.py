"""Files of logs that are damaged or lost: no log decides anything by what is missing."""

import pytest
from tests.planting import plant

from penstock.sim.cluster_extras import Extra
from penstock.sim.play import Result, play, play_cluster
from penstock.storage.producers import Producers

SEEDS = range(1, 60)


def first_failure() -> Result | None:
    results = (play(seed, 3000, [Extra.HOLES]) for seed in SEEDS)
    return next((each for each in results if each.failure is not None), None)


@pytest.mark.parametrize("seed", [1, 2, 14])
def test_a_node_that_loses_files_shows_nobody_what_was_aborted(seed: int) -> None:
    """14: a power cut leaves files that do not end with a whole batch."""
    result = play(seed, extras=[Extra.HOLES])
    assert result.failure is None, f"{result.failure}\nto see it again: {result.command}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_cluster_that_loses_files_shows_nobody_what_was_aborted(seed: int) -> None:
    result = play_cluster(seed, extras=[Extra.HOLES])
    assert result.failure is None, f"{result.failure}\nto see it again: {result.command}"


def test_a_run_is_the_same_beside_trials() -> None:
    with_trials, without = play(2, 2000, [Extra.HOLES]), play(2, 2000)
    assert with_trials.outcome is not None
    assert without.outcome is not None
    assert with_trials.outcome.events == without.outcome.events
    assert with_trials.outcome.acked == without.outcome.acked


def test_a_decision_made_from_a_hole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Producers.pass_hole, lambda *_: [])
    result = first_failure()
    assert result is not None, "nothing was caught"
    assert result.failure is not None
    assert result.failure.startswith("NoDecisionFromHole"), result.failure
