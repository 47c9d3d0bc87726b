"""A disk that is full or fails: the operation fails with `StorageError`, and the log goes on.

Whatever fails, once: what was in the log stays readable, nothing is reported as durable that is not, and as
soon as the disk works again so does the log.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.storage.housekeeping import retain
from tests.storage.world import (
    NOW_MS,
    SMALL,
    P,
    World,
    append,
    batches_of,
    check_log,
    make_batch,
    open_small,
)

from penstock.storage.errors import CorruptLog, StorageError
from penstock.storage.log import Log
from penstock.vfs import FaultyDisk, MemoryDisk


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


LIFE: list[Callable[[World], None]] = [
    lambda world: world.append(3),
    lambda world: world.produce(1, 2),
    lambda world: world.flush(),
    lambda world: world.append(2, 900),
    lambda world: world.produce(10, transactional=True),
    lambda world: world.end_transaction(10, commit=False),
    lambda world: world.append(1, 1500),
    lambda world: world.checkpoint(),
    lambda world: world.append(1, 1500),
    lambda world: world.truncate(0.7),
    lambda world: world.append(2, 400),
    lambda world: world.roll(),
    lambda world: world.append(1, 1500),
    lambda world: world.append(1, 1500),
    lambda world: world.flush(),
    lambda world: world.advance_start(0.2),
    lambda world: world.retain(),
    lambda world: world.append(1, 1500),
    lambda world: world.checkpoint(),
    lambda world: world.restart_at(30),
    lambda world: world.append(2),
    lambda world: world.delete(),
    lambda world: world.append(2),
    lambda world: world.flush(),
]
"""One of everything, in an order in which each has something to do."""


def live(world: World) -> None:
    """Every operation of a life; one that fails may be tried again and must then succeed."""
    for operation in LIFE:
        before, world.is_faulty = world.state, True
        try:
            operation(world)
        except StorageError:
            world.is_faulty = False
            reconcile(world, before.history)
            operation(world)
        world.is_faulty = False
        check_log(world.log, world.state.history, looks_up=False)
    world.check()


def reconcile(world: World, history: tuple[bytes, ...]) -> None:
    """After a failure: the log is what it was, or what it was to be. A later crash shows what is durable."""
    if P not in world.directory.logs:
        world.directory.create(P, now_ms=NOW_MS)
        world.state = replace(world.state, history=(), flushed=0, log_start=0, exists=True)
        return
    log = world.log
    present = tuple(batches_of(log))
    gone = next((n for n in range(len(history) + 1) if history[n : n + len(present)] == present), None)
    if gone is not None:
        kept = history[: gone + len(present)]
    else:
        assert present[:-1] == history[-len(present[:-1]) :], "one batch more, or the same"
        kept = (*history, present[-1])
    world.state = replace(world.state, history=kept, flushed=log.flushed, log_start=log.log_start)
    world._forget_sequences()


KINDS = (
    "open",
    "read",
    "write",
    "size",
    "truncate",
    "sync",
    "list_dir",
    "stat",
    "rename",
    "remove",
    "sync_dir",
)


@pytest.mark.parametrize("kind", [*KINDS, "torn write"])
def test_any_single_failure_is_survived(kind: str) -> None:
    """The n-th operation of a kind fails, for every n."""
    passed, hits = 0, 1
    while hits:
        world = World(seed=passed)
        if kind == "torn write":
            rule = world.faults.tear_writes(times=1, after=passed)
        else:
            rule = world.faults.fail(  # type: ignore[arg-type]
                kind, times=1, after=passed, when=lambda *_, world=world: world.is_faulty
            )
        live(world)
        hits = rule.hits
        world.crash()
        world.check()
        passed += 1
    assert passed > 1


@pytest.mark.parametrize("room", [0, 1, 60, 500, 1500, 4000, 9000])
def test_a_full_disk_fails_writes_until_there_is_room_again(room: int) -> None:
    world = World()
    world.append(3)
    world.flush()
    world.faults.capacity = world.faults.used + room
    with pytest.raises(StorageError):  # noqa: PT012  # whichever append is the first that does not fit
        for _ in range(20):
            world.append(1, 700)
    world.check()
    for operation in (world.append, world.checkpoint, world.flush):
        try:
            operation()
        except StorageError:
            reconcile(world, world.state.history)
        world.check()
    world.faults.capacity = None
    world.append(2, 700)
    world.checkpoint()
    world.crash()
    world.check()
    assert world.log.log_end >= 5


@pytest.mark.parametrize("kind", [*KINDS, "make_dirs", "lock"])
def test_a_start_that_fails_is_refused_and_may_be_repeated(kind: str) -> None:
    world = World()
    for operation in LIFE[:9]:
        operation(world)
    for clean in (True, False):
        disk = world.disk.kill_clone()
        if clean:
            open_small(disk).close()
        passed, hits = 0, 1
        while hits:
            clone = disk.kill_clone()
            faults = FaultyDisk(clone, rng=Random(passed))
            rule = faults.fail(kind, times=1, after=passed)  # type: ignore[arg-type]
            try:
                directory = open_small(faults)
            except StorageError:
                directory = open_small(faults)
            hits = rule.hits
            faults.clear()
            check_log(directory.logs[P], world.state.history)
            passed += 1


# -- failed syncs -------------------------------------------------------------------------------------


def log_on(faults: FaultyDisk) -> Log:
    return open_small(faults, replace(SMALL, segment_bytes=100_000)).create(P, now_ms=NOW_MS)


def test_after_a_failed_sync_nothing_is_reported_as_durable() -> None:
    """The fsyncgate of 2018: the kernel drops the pages, and the next sync succeeds without writing them."""
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    log = log_on(faults)
    first = append(log, make_batch(3))
    log.flush()
    second = append(log, make_batch(3))
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(StorageError, match="not on disk"):
        log.flush()
    assert log.flushed == 3
    assert not log.flusher.is_flushed
    assert batches_of(open_small(disk.crash_clone(Random(0))).logs[P]) == [first]
    assert log.read(3, 1) == second, "still readable"

    log.flush()
    assert log.flushed == 6
    for seed in range(10):
        assert batches_of(open_small(disk.crash_clone(Random(seed))).logs[P]) == [first, second]


def test_a_flush_that_began_before_a_failed_one_does_not_count_after_it() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    log = log_on(faults)
    append(log, make_batch(3))
    early = log.prepare_flush()
    assert early is not None
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(StorageError):
        log.flush()
    log.finish_flush(early)
    assert log.flushed == 0


def test_a_flush_that_began_before_a_truncation_does_not_count_after_it() -> None:
    log = log_on(FaultyDisk(MemoryDisk()))
    append(log, make_batch(3))
    append(log, make_batch(3))
    work = log.prepare_flush()
    assert work is not None
    work.run()
    log.truncate(3)
    append(log, make_batch(3))
    log.finish_flush(work)
    assert log.flushed <= 3


def test_pages_that_the_kernel_really_dropped_are_reported_not_written_again() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    log = log_on(faults)
    append(log, make_batch(3))
    log.flush()
    append(log, make_batch(3, size=600))
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(StorageError):
        log.flush()
    path = log.segments.active.ref.path
    size = log.segments.active.size
    disk.open(path, write=True).pwrite([bytes(512)], size - 600)
    with pytest.raises(CorruptLog, match="lost by the disk"):
        log.flush()
    assert log.flushed == 3
    assert log.read(0, 1)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot", ".sequences"])
def test_an_index_whose_sync_failed_is_written_again_before_it_counts(kind: str) -> None:
    world = World()
    for _ in range(4):
        world.produce(10, transactional=True)
        world.end_transaction(10, commit=False)
        world.append(2, 700)
    world.faults.fail("sync", path=f"*{kind}", times=2)
    for _ in range(2):
        with pytest.raises(StorageError):
            world.checkpoint()
    world.checkpoint()
    world.cuts_each = 1
    for _ in range(6):
        world.crash()
        world.check()


# -- what a failure must not leave behind -------------------------------------------------------------


def test_a_failed_append_undoes_producers_and_offsets() -> None:
    faults = FaultyDisk(MemoryDisk())
    log = log_on(faults)
    append(log, make_batch(1, producer=(7, 0, 0)))
    faults.fail("write", path="*.log", error=errno.ENOSPC, times=1)
    with pytest.raises(StorageError, match="nothing was appended"):
        append(log, make_batch(1, producer=(7, 0, 1), transactional=True))
    assert log.log_end == 1
    assert log.last_stable == 1
    retried = append(log, make_batch(1, producer=(7, 0, 1), transactional=True))
    assert batches_of(log)[1:] == [retried]


def test_a_failed_write_of_several_staged_batches_takes_all_of_them_back() -> None:
    faults = FaultyDisk(MemoryDisk())
    log = log_on(faults)
    for sequence in range(3):
        log.stage(make_batch(1, producer=(7, 0, sequence)), leader_epoch=0, now_ms=NOW_MS)
    faults.tear_writes(path="*.log", times=1)
    with pytest.raises(StorageError):
        log.write_staged()
    assert not log.producers.by_id
    assert append(log, make_batch(1, producer=(7, 0, 0))) == batches_of(log)[0]


def test_a_torn_write_is_cut_off_durably_before_the_next_one() -> None:
    """Or a power cut could mix the two, and a batch that was never appended would look sound."""
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    log = log_on(faults)
    append(log, make_batch(1))
    log.flush()
    for _ in range(3):
        log.stage(make_batch(2, size=300, fill=9), leader_epoch=0, now_ms=NOW_MS)
    faults.tear_writes(path="*.log", times=1)
    with pytest.raises(StorageError):
        log.write_staged()
    whole = [append(log, make_batch(1, size=size)) for size in (900, 100, 30)]
    for seed in range(60):
        directory = open_small(disk.crash_clone(Random(seed)))
        present = batches_of(directory.logs[P])
        assert present[1:] == whole[: len(present) - 1]
        assert P not in directory.reports or not directory.reports[P].damage


def test_a_truncation_that_could_not_lower_its_recovery_point_lowers_it_when_repeated() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    directory = open_small(faults)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2, size=300)) for _ in range(3)]
    directory.checkpoint()
    faults.fail("rename", path="*checkpoint*", times=1)
    with pytest.raises(StorageError):
        log.truncate(2)
    assert batches_of(log) == whole
    assert log.truncate(2) == 2
    whole = [whole[0], append(log, make_batch(4, size=300, fill=3))]
    for seed in range(30):
        present = batches_of(open_small(disk.crash_clone(Random(seed))).logs[P])
        assert present in (whole, whole[:1])


def test_a_truncation_that_left_files_behind_removes_them_before_the_next_append() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    directory = open_small(faults)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(1, size=1500)) for _ in range(4)]
    faults.fail("remove", times=1)
    with pytest.raises(StorageError):
        log.truncate(1)
    whole = [whole[0], append(log, make_batch(1))]
    directory.close()
    check_log(open_small(disk).logs[P], whole)


def test_a_partition_that_could_not_be_deleted_goes_on() -> None:
    faults = FaultyDisk(MemoryDisk())
    directory = open_small(faults)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2))]
    for kind in ("rename", "sync_dir"):
        faults.fail(kind, path="*orders*" if kind == "rename" else "*/logs", times=1)
        with pytest.raises(StorageError, match="cannot delete"):
            directory.delete(P, Random(0))
        assert directory.logs[P] is log
        whole.append(append(log, make_batch(2)))
        check_log(log, whole)


def test_a_checkpoint_goes_on_with_the_other_logs() -> None:
    faults = FaultyDisk(MemoryDisk())
    directory = open_small(faults)
    first, second = (directory.create(P._replace(partition=n), now_ms=NOW_MS) for n in range(2))
    append(first, make_batch(1))
    append(second, make_batch(2))
    faults.fail("sync", path="*orders-0*.log", times=1)
    with pytest.raises(StorageError):
        directory.checkpoint()
    assert (first.recovery_point.offset, second.recovery_point.offset) == (0, 2)


def test_retention_between_a_roll_and_a_checkpoint_does_not_fail_the_checkpoint() -> None:
    """The snapshot that the roll wrote has left with its segment, and is not missed."""
    directory = open_small(MemoryDisk(), replace(SMALL, retention_bytes=0))
    log = directory.create(P, now_ms=NOW_MS)
    for _ in range(4):
        append(log, make_batch(1, size=1500))
    for removal in retain(directory, NOW_MS):
        removal.run()
    directory.checkpoint()
    assert log.recovery_point.offset == 4
