"""Runs of clusters that have more to bear than their seeds stand for: `penstock sim run --with EXTRA`."""

import pytest
from tests.sim.seeds import fingerprints_elsewhere

from penstock.sim.cluster_extras import Extra
from penstock.sim.play import play_cluster

KEPT = [
    (35, Extra.RENEWALS, "a log without its topic's id was taken for that of the next topic of its name"),
    (37, Extra.RENEWALS, "the same"),
    (17, Extra.BAD_SECTORS, "records were durable before it was known of which topic they are"),
    (10, Extra.BAD_SECTORS, "of two batches that overlap, the wrong one was taken for sound"),
    (101, Extra.FULL_DISKS, "a node that started on a full disk fell over what it notes of its metadata log"),
]
"""Seeds that once failed, and what they found."""


@pytest.mark.long
@pytest.mark.parametrize(("seed", "extra", "found"), KEPT)
def test_a_seed_that_once_failed_goes_well(seed: int, extra: Extra, found: str) -> None:
    result = play_cluster(seed, extras=[extra])
    assert result.failure is None, f"{found}: {result.failure}\nto see it again: {result.command}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(101, 131))
def test_a_minute_with_everything_goes_well(seed: int) -> None:
    result = play_cluster(seed, extras=list(Extra))
    assert result.failure is None, f"{result.failure}\nto see it again: {result.command}"


@pytest.mark.long
def test_a_seed_with_everything_gives_the_same_trace_in_another_process() -> None:
    told = play_cluster(1, 0.1, extras=list(Extra))
    assert told.outcome is not None, told.failure
    assert fingerprints_elsewhere("play_cluster(1, 0.1, extras=list(Extra))") == {told.outcome.fingerprint}
