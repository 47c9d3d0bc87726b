"""Runs of clusters that have more to bear than their seeds stand for: `penstock sim run --with EXTRA`."""

import pytest
from tests.sim.seeds import KeptSeed, fingerprint_elsewhere, kept_with_extras

from penstock.sim.cluster_extras import Extra
from penstock.sim.play import play_cluster


@pytest.mark.long
@pytest.mark.parametrize("kept", kept_with_extras("extra_seeds.txt"), ids=str)
def test_a_seed_that_once_failed_goes_well(kept: KeptSeed) -> None:
    result = play_cluster(kept.seed, kept.minutes, kept.nodes, [Extra(each) for each in kept.extras])
    assert result.failure is None, f"{kept.found}: {result.failure}\nto see it again: {result.command}"


def test_a_kept_seed_is_read_with_all_that_it_takes() -> None:
    kept = {each.seed: each for each in kept_with_extras("extra_seeds.txt")}[81050]
    assert (kept.minutes, kept.nodes, kept.extras) == (2, 5, ("renewals", "bad-sectors"))
    assert kept.found.startswith("compaction gave")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(101, 131))
def test_a_minute_with_everything_goes_well(seed: int) -> None:
    result = play_cluster(seed, extras=list(Extra))
    assert result.failure is None, f"{result.failure}\nto see it again: {result.command}"


@pytest.mark.long
def test_a_seed_with_everything_gives_the_same_trace_in_another_process() -> None:
    told = play_cluster(1, 0.1, extras=list(Extra))
    assert told.outcome is not None, told.failure
    assert fingerprint_elsewhere("play_cluster(1, 0.1, extras=list(Extra))") == told.outcome.fingerprint
