"""Runs of clusters from seeds: clients work while nodes crash, stand still and are cut off, with all checkers on.

`penstock sim run --seed N --minutes M --trace` shows one of them.
"""

from dataclasses import replace

import pytest
from tests.sim.seeds import fingerprint_elsewhere, kept_in
from tests.sim.test_planted_cluster import BUSY

from penstock.sim.cluster_plan import Harm, PowerCuts
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.play import play_cluster
from penstock.sim.run import Failure, Simulation
from penstock.sim.scenario import Scenario

SEEDS = range(1, 21)
SEEDS_LONG = range(21, 201)

KEPT = [
    (seed, float(minutes))
    for seed, minutes in kept_in("cluster_seeds.txt")
    if seed not in SEEDS or float(minutes) != 1
]
"""But for those that are run anyway."""

SEEDS_QUICK = (3,)
KEPT_QUICK = (33, 841)
"""What `make test` has time for; `make test-long` runs all."""


def unless_long(seed: int, quick: tuple[int, ...], *more: float) -> object:
    return pytest.param(seed, *more, marks=() if seed in quick else pytest.mark.long)


def went_well(seed: int, minutes: float = 1.0) -> None:
    result = play_cluster(seed, minutes)
    if result.failure is not None:
        tail = "\n".join(result.trace[-40:])
        pytest.fail(f"{tail}\nseed {seed}: {result.failure}\nto see it again: {result.command}")


@pytest.mark.parametrize("seed", [unless_long(each, SEEDS_QUICK) for each in SEEDS])
def test_a_minute_of_a_cluster_goes_well(seed: int) -> None:
    went_well(seed)


@pytest.mark.parametrize(
    ("seed", "minutes"), [unless_long(seed, KEPT_QUICK, minutes) for seed, minutes in KEPT]
)
def test_a_seed_that_once_failed_goes_well(seed: int, minutes: float) -> None:
    went_well(seed, minutes)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_many_minutes_of_clusters_go_well(seed: int) -> None:
    went_well(seed)


@pytest.mark.long
def test_a_seed_gives_the_same_trace_in_another_process_whatever_hashes_are_there() -> None:
    seed = next(each for each in range(2, 100, 2) if draw_cluster(each, 3, MINUTE_US).crash_us_mean)
    told = play_cluster(seed, 0.1)
    assert told.outcome is not None, told.failure
    assert fingerprint_elsewhere(f"play_cluster({seed}, 0.1)") == told.outcome.fingerprint


def test_a_run_does_what_it_is_for() -> None:
    """A scenario in which nothing happens finds nothing."""
    plan = replace(BUSY.cluster, pause_us_mean=3_000_000, operate_us_mean=1_000_000)
    told = ""
    for seed in range(4):
        outcome = Simulation(replace(BUSY, seed=seed, reset_us_mean=1_000_000, cluster=plan)).run()
        told += "\n".join(outcome.trace)
        assert outcome.processes > 3
    for what in (
        "is killed while up",
        "loses power while up",
        "is paused",
        "resumes",
        "the network is cut",
        "the network is healed",
        "is reset",
        "leads the quorum in epoch 2",
        "leads orders-0 in epoch 2",
        "NOT_LEADER_OR_FOLLOWER",
        "operator creates passing-1: NONE",
        "operator moves orders",
        "operator elects preferred leaders",
    ):
        assert what in told, what


@pytest.mark.long
def test_a_node_that_led_on_the_wrong_side_of_a_cut_is_cut_back_where_its_log_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-101: what the old leader alone had goes, at the epoch in which the logs part; what all had stays."""
    from penstock.replica.follower_replica import FollowerReplica  # noqa: PLC0415  # it is watched here alone

    cuts: list[tuple[int, int, int]] = []
    part = FollowerReplica.truncate_diverging

    def note(following: FollowerReplica, leaders: object) -> None:
        log = following.partition.log
        before, committed = log.log_end, following.partition.high_watermark
        part(following, leaders)  # type: ignore[arg-type]
        cuts.append((committed, log.log_end, before))

    monkeypatch.setattr(FollowerReplica, "truncate_diverging", note)
    for seed in range(20):
        Simulation(replace(BUSY, seed=seed)).run()
        if any(after < before for _, after, before in cuts):
            break
    assert any(after < before for _, after, before in cuts)
    assert all(committed <= after for committed, after, _ in cuts)


def scenarios() -> list[Scenario]:
    return [draw_cluster(seed, 3, MINUTE_US) for seed in SEEDS]


def test_the_scenarios_of_the_default_seeds_have_everything_in_them() -> None:
    drawn = scenarios()
    plans = [each.cluster for each in drawn]
    assert {each.power_cuts for each in plans} >= {PowerCuts.FEW, PowerCuts.ANY, PowerCuts.NONE}
    assert any(each.cut_us_mean for each in plans)
    assert any(each.pause_us_mean for each in plans)
    assert any(each.operate_us_mean for each in plans)
    assert any(clock.ahead_ms for each in plans for clock in each.clocks)
    assert any(each.has_disk_faults for each in drawn)
    assert {each.harm for each in plans} == set(Harm) - {Harm.HOLES}  # which is for `--with holes`
    assert any(each.has_racks for each in plans)
    assert any(each.rack for one in drawn for each in one.consumers)
    assert {each.settings["durability.fsync"] for each in drawn} == {"alone", "always", "never"}
    assert {each.settings["min.insync.replicas"] for each in drawn} == {"1", "2"}
    assert {each.acks for one in drawn for each in one.producers} == {0, 1, -1}
    together = [each.coordination for each in drawn if each.coordination.members]
    assert {each.is_consumer_protocol for one in together for each in one.members} == {True, False}
    assert {each.txn.is_version_2 for one in together for each in one.transactional} == {True, False}


def test_a_failure_says_how_to_see_it_again() -> None:
    failure = Failure(draw_cluster(7, 3, MINUTE_US // 2), "Progress: nothing moves", [])
    assert "penstock sim run --seed 7 --minutes 0.5 --nodes 3 --trace" in str(failure)
