"""kill -9 and power cuts at any moment: what was flushed is there, and everything else is consistent.

Three ways to the same checks (`world.World`): scenarios written as data, each crashed at every single change
and sync; random histories by seed, among them every seed that ever failed; and a Hypothesis state machine,
which finds the shortest history where one fails.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.storage.world import (
    NOW_MS,
    SMALL,
    P,
    World,
    append,
    batches_of,
    check_log,
    files_of,
    make_batch,
    open_small,
    put,
)

from penstock.storage import names
from penstock.vfs import MemoryDisk


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery has much to say here, and its words are tested where they matter."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# -- scenarios ----------------------------------------------------------------------------------------


class Step(NamedTuple):
    name: str
    arguments: dict


def step(name: str):
    return lambda **arguments: Step(name, arguments)


appends, produces, ends = step("append"), step("produce"), step("end_transaction")
flush, checkpoint, roll = step("flush")(), step("checkpoint")(), step("roll")()
truncate, restart, advance = step("truncate"), step("restart_at"), step("advance_start")
retain, delete, reopen = step("retain"), step("delete")(), step("close_and_open")()
POWER_CUT, KILL = Step("crash", {"power": True}), Step("crash", {"power": False})

SCENARIOS = {
    "a torn append": [appends(count=3), flush, appends(count=2, size=700)],
    "an append behind a flush": [appends(count=3), flush, appends(count=2), POWER_CUT, appends(), flush],
    "rolling without a flush": [appends(size=700), appends(size=700), appends(size=700), appends(size=700)],
    "flushing two segments": [appends(size=700), appends(size=900), roll, appends(size=700), flush],
    "a checkpoint after rolls": [appends(size=900), roll, appends(size=900), roll, checkpoint, appends()],
    "two checkpoints": [produces(producer_id=1), checkpoint, produces(producer_id=1), checkpoint, appends()],
    "producers over a roll": [
        *[produces(producer_id=each) for each in (1, 2, 1, 1, 1, 1, 1, 2)],
        roll,
        produces(producer_id=1),
        POWER_CUT,
        produces(producer_id=2),
        checkpoint,
    ],
    "an aborted transaction": [
        produces(producer_id=10, transactional=True),
        checkpoint,
        ends(producer_id=10, commit=False),
        checkpoint,
        produces(producer_id=10, transactional=True),
        ends(producer_id=10, commit=False),
        roll,
        appends(),
        flush,
    ],
    "truncating over an abort": [
        produces(producer_id=10, transactional=True),
        ends(producer_id=10, commit=False),
        produces(producer_id=11, transactional=True),
        ends(producer_id=11, commit=False),
        truncate(share=0.6),
        appends(size=900),
        appends(size=900),
        checkpoint,
        POWER_CUT,
    ],
    "truncating below the recovery point": [
        *[appends(count=2, size=300)] * 6,
        checkpoint,
        truncate(share=0.3),
        appends(count=3, size=500),
        appends(count=3, size=500),
        flush,
    ],
    "a new epoch over a truncation": [
        appends(),
        checkpoint,
        Step("new_leader", {}),
        appends(count=4),
        checkpoint,
        truncate(share=0.5),
        Step("new_leader", {}),
        appends(),
        POWER_CUT,
        appends(),
        checkpoint,
    ],
    "a restart ahead": [
        appends(size=900),
        appends(size=900),
        checkpoint,
        restart(offset=100),
        appends(),
        flush,
    ],
    "a restart behind": [appends(count=5, size=300), restart(offset=2), appends(), flush, POWER_CUT],
    "records deleted past what is flushed": [
        appends(count=4),
        appends(count=4),
        advance(share=0.9),
        POWER_CUT,
    ],
    "retention": [
        *[appends(size=900)] * 10,
        checkpoint,
        retain(remove=False),
        appends(),
        retain(remove=True),
        POWER_CUT,
    ],
    "retention before a checkpoint": [
        produces(producer_id=10, transactional=True),
        checkpoint,
        ends(producer_id=10, commit=True),
        *[appends(size=900)] * 10,
        retain(remove=True),
        POWER_CUT,
    ],
    "deleted and made again": [appends(size=900), checkpoint, delete, appends(), flush, POWER_CUT],
    "deleted with a log start": [
        *[appends(count=3)] * 4,
        advance(share=0.9),
        checkpoint,
        delete,
        appends(),
        flush,
        POWER_CUT,
    ],
    "a clean stop": [
        appends(size=900),
        produces(producer_id=1),
        appends(size=900),
        reopen,
        appends(),
        reopen,
    ],
    "kill -9 twice": [appends(count=3), KILL, appends(size=900), KILL, appends(size=900), flush, POWER_CUT],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_at_any_change_or_sync_leaves_a_sound_log(scenario: str) -> None:
    world = World(seed=len(scenario), cuts_each=2)
    for name, arguments in SCENARIOS[scenario]:
        everywhere = {} if name in ("crash", "new_leader") else {"crash_at": range(200)}
        getattr(world, name)(**arguments, **everywhere)
        world.check()
    assert world.crashes_checked


# -- random histories ---------------------------------------------------------------------------------

WEIGHTS = {
    "append": 8.0,
    "append large": 4.0,
    "produce": 6.0,
    "produce in a transaction": 6.0,
    "end a transaction": 5.0,
    "flush": 4.0,
    "checkpoint": 3.0,
    "roll": 2.0,
    "truncate": 2.0,
    "restart": 0.5,
    "advance": 1.5,
    "retain": 2.0,
    "delete": 0.5,
    "close": 1.0,
    "crash": 2.0,
    "kill": 1.0,
    "new leader": 2.0,
    "check": 2.0,
}


def run_history(seed: int, steps: int = 40) -> None:  # noqa: C901, PLR0912  # one list of operations
    """A history of one partition, all of it drawn from the seed."""
    world, rng = World(seed), Random(seed * 7 + 1)
    for _ in range(steps):
        crash_at = tuple(rng.randrange(25) for _ in range(3))
        match rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]:
            case "append":
                world.append(rng.randint(1, 5), crash_at=crash_at)
            case "append large":
                world.append(rng.randint(1, 3), rng.choice([300, 480, 700]), crash_at=crash_at)
            case "produce":
                world.produce(rng.randint(1, 3), rng.randint(1, 3), crash_at=crash_at)
            case "produce in a transaction":
                world.produce(rng.randint(10, 12), rng.randint(1, 3), transactional=True, crash_at=crash_at)
            case "end a transaction":
                producer_id, commit, bump = rng.randint(10, 12), rng.random() < 0.4, rng.random() < 0.3
                world.end_transaction(producer_id, commit=commit, bump=bump, crash_at=crash_at)
            case "flush":
                world.flush(crash_at)
            case "checkpoint":
                world.checkpoint(crash_at)
            case "roll":
                world.roll(crash_at)
            case "truncate":
                world.truncate(rng.random(), crash_at)
            case "restart":
                world.restart_at(max(0, world.log.log_end + rng.randint(-20, 20)), crash_at)
            case "advance":
                world.advance_start(rng.random(), crash_at)
            case "retain":
                world.retain(remove=rng.random() < 0.5, crash_at=crash_at)
            case "delete":
                world.delete(crash_at)
            case "close":
                world.close_and_open(crash_at)
            case "crash":
                world.crash()
            case "kill":
                world.crash(power=False)
            case "new leader":
                world.new_leader()
            case "check":
                world.check()


def _kept_seeds() -> list[int]:
    lines = (Path(__file__).parent / "crash_seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("seed", _kept_seeds())
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    run_history(seed)


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(20, 100, 20))]
)
def test_random_histories_survive_power_cuts(first: int) -> None:
    for seed in range(first, first + 20):
        run_history(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_many_random_histories_survive_power_cuts(first: int) -> None:
    for seed in range(first, first + 100):
        run_history(seed, steps=80)


# -- the state machine --------------------------------------------------------------------------------

cuts = st.lists(st.integers(0, 24), max_size=2)


class LogUnderPowerCuts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(count=st.integers(1, 5), size=st.sampled_from((10, 40, 300, 700)), cuts=cuts)
    def append(self, count: int, size: int, cuts: list[int]) -> None:
        self.world.append(count, size, cuts)

    @rule(producer_id=st.integers(1, 3), count=st.integers(1, 3), cuts=cuts)
    def produce(self, producer_id: int, count: int, cuts: list[int]) -> None:
        self.world.produce(producer_id, count, crash_at=cuts)

    @rule(producer_id=st.integers(10, 12), count=st.integers(1, 3), cuts=cuts)
    def produce_in_transaction(self, producer_id: int, count: int, cuts: list[int]) -> None:
        self.world.produce(producer_id, count, transactional=True, crash_at=cuts)

    @rule(producer_id=st.integers(10, 12), commit=st.booleans(), bump=st.booleans(), cuts=cuts)
    def end_transaction(self, producer_id: int, commit: bool, bump: bool, cuts: list[int]) -> None:
        self.world.end_transaction(producer_id, commit=commit, bump=bump, crash_at=cuts)

    @rule(cuts=cuts)
    def flush(self, cuts: list[int]) -> None:
        self.world.flush(cuts)

    @rule(cuts=cuts)
    def checkpoint(self, cuts: list[int]) -> None:
        self.world.checkpoint(cuts)

    @rule(cuts=cuts)
    def roll(self, cuts: list[int]) -> None:
        self.world.roll(cuts)

    @precondition(lambda self: self.world.state.history)
    @rule(share=st.floats(0, 1), cuts=cuts)
    def truncate(self, share: float, cuts: list[int]) -> None:
        self.world.truncate(share, cuts)

    @rule(ahead=st.integers(-20, 20), cuts=cuts)
    def restart(self, ahead: int, cuts: list[int]) -> None:
        self.world.restart_at(max(0, self.world.log.log_end + ahead), cuts)

    @rule(share=st.floats(0, 1), cuts=cuts)
    def advance_start(self, share: float, cuts: list[int]) -> None:
        self.world.advance_start(share, cuts)

    @rule(remove=st.booleans(), cuts=cuts)
    def retain(self, remove: bool, cuts: list[int]) -> None:
        self.world.retain(remove=remove, crash_at=cuts)

    @rule(cuts=cuts)
    def delete_and_create(self, cuts: list[int]) -> None:
        self.world.delete(cuts)

    @rule(cuts=cuts)
    def close_and_open(self, cuts: list[int]) -> None:
        self.world.close_and_open(cuts)

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        self.world.crash(power=power)

    @rule()
    def new_leader(self) -> None:
        self.world.new_leader()

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        assert self.world.log.log_start == self.world.state.log_start
        check_log(self.world.log, self.world.state.history, looks_up=False)


TestLogUnderPowerCuts = LogUnderPowerCuts.TestCase


# -- what recovery says -------------------------------------------------------------------------------


def test_what_was_cut_is_reported_with_its_size() -> None:
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS)
    append(log, make_batch(3))
    log.flush()
    torn = bytes(make_batch(2, size=500))[:700]
    path = log.segments.active.ref.path
    put(disk, path, files_of(disk)[path] + torn)
    report = (reopened := open_small(disk.kill_clone())).reports[P]
    assert report.bytes_cut == 700
    assert any(path in note and "700 bytes" in note for note in report.notes)
    assert reopened.logs[P].log_end == 3


def test_recovery_scans_from_the_checkpoint_only() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    for _ in range(10):
        append(log, make_batch(2, size=300))
    directory.checkpoint()
    more = append(log, make_batch(1))
    assert open_small(disk.kill_clone()).reports[P].bytes_scanned == len(more)


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2, size=300)) for _ in range(10)]
    directory.close()
    reopened = open_small(disk)
    assert not reopened.reports
    assert reopened.logs[P].flushed == 20
    check_log(reopened.logs[P], whole)


def test_a_segment_that_lost_its_end_at_a_batch_border_takes_what_follows_with_it() -> None:
    """The next segment is named by the log end: where that does not fit, a gap would be in the log."""
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(1, size=700)) for _ in range(6)]
    sealed = log.segments[0]
    path = sealed.ref.path
    put(disk, path, files_of(disk)[path][: -len(whole[1])])
    reopened = open_small(disk.kill_clone())
    assert batches_of(reopened.logs[P]) == whole[:1]
    assert reopened.reports[P].bytes_cut == sum(map(len, whole[2:]))
    assert any("renamed to .cut" in note for note in reopened.reports[P].notes)


def test_an_empty_segment_that_a_failed_roll_left_behind_hides_nothing() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2)) for _ in range(3)]
    put(disk, f"{log.directory}/{names.segment_file(4, names.LOG)}", b"")
    directory.checkpoint()
    check_log(open_small(disk.kill_clone()).logs[P], whole)
    directory.close()
    check_log(open_small(disk).logs[P], whole)


def test_a_log_shorter_than_its_recovery_point_says_so_and_goes_on_at_its_end() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2)) for _ in range(3)]
    directory.checkpoint()
    path = log.segments.active.ref.path
    put(disk, path, whole[0])
    reopened = open_small(disk.kill_clone())
    assert reopened.logs[P].log_end == 2
    assert any("before the recovery point 6" in note for note in reopened.reports[P].notes)
    assert append(reopened.logs[P], make_batch(1))


def test_snapshots_of_old_checkpoints_do_not_pile_up() -> None:
    disk = MemoryDisk()
    for _ in range(5):
        directory = open_small(disk, SMALL)
        log = directory.logs.get(P) or directory.create(P, now_ms=NOW_MS)
        for _ in range(3):
            append(log, make_batch(1))
            directory.checkpoint()
        disk = disk.crash_clone(Random(3))
    snapshots = [name for name in files_of(disk) if name.endswith(names.SNAPSHOT)]
    assert len(snapshots) <= 3
