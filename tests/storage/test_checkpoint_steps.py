"""Checkpoints in steps: what the writer does between them, crashes, and disks that fail."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.storage.housekeeping import compact, retain
from tests.storage.world import NOW_MS, SMALL, P, append, batches_of, files_of, make_batch, open_small

from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.syncing import CheckpointWork
from penstock.vfs import Draft, FaultyDisk, MemoryDisk, parent

STEPS = 4
COMPACTED = replace(SMALL, cleanup_policy=("compact",))


def make(disk: MemoryDisk | FaultyDisk) -> tuple[LogDirectory, Log]:
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    log.begin_epoch(3)
    for i in range(12):
        append(log, make_batch(4, producer=(7, 0, 4 * i)), leader_epoch=3)
    assert len(log.segments) > 1
    return directory, log


def checkpoint(log: Log, between: Callable[[int], None] = lambda _: None) -> bool:
    """All steps; `between` is called after each but the last."""
    work = log.flusher.prepare_checkpoint()
    between(0)
    work.run()
    between(1)
    if not log.flusher.install_checkpoint(work):
        return False
    between(2)
    work.sync_names()
    between(3)
    return log.flusher.finish_checkpoint(work)


def save(directory: LogDirectory, drafts: list[Draft]) -> bool:
    for draft in drafts:
        draft.sync()
        if not directory.checkpoints.install(draft):
            return False
        directory.vfs.sync_dir(parent(draft.path))
    return True


def assert_durable(disk: MemoryDisk, *, but: str = "nothing") -> None:
    """No power cut changes anything that is in the partition's directory."""

    def found(on: MemoryDisk) -> dict[str, bytes]:
        files = files_of(on, "/data/logs/orders-0")
        return {name: data for name, data in files.items() if not name.endswith(but)}

    files = found(disk)
    assert any(name.endswith("leader-epoch-checkpoint") for name in files)
    for seed in range(12):
        assert found(disk.crash_clone(Random(seed))) == files


def test_after_a_checkpoint_everything_is_durable() -> None:
    disk = MemoryDisk()
    _, log = make(disk)
    assert checkpoint(log)
    assert_durable(disk)


@pytest.mark.parametrize("step", range(STEPS))
def test_the_writer_goes_on_while_a_checkpoint_is_under_way(step: int) -> None:
    disk = MemoryDisk()
    directory, log = make(disk)
    end = log.log_end

    def write(now: int) -> None:
        if now == step:
            for i in range(12, 40):
                append(log, make_batch(4, producer=(7, 0, 4 * i)), leader_epoch=4)

    assert checkpoint(log, write)
    assert log.recovery_point.offset == end < log.log_end
    assert save(directory, directory.checkpoints.draft_recovery_points())
    log.flush()
    found = open_small(disk.crash_clone(Random(step)))
    again = found.logs[P]
    assert again.recovery_point.offset == end
    assert batches_of(again) == batches_of(log)
    assert again.epochs.entries == log.epochs.entries
    assert again.producers == log.producers


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_between_the_steps_loses_nothing_that_was_synced(seed: int) -> None:
    disk, rng = MemoryDisk(), Random(seed)
    directory, log = make(disk)
    log.flush()
    expected = batches_of(log)

    def crash(_: int) -> None:
        found = open_small(disk.crash_clone(rng)).logs[P]
        assert batches_of(found)[: len(expected)] == expected
        assert found.epochs.entries[0].epoch == 3
        assert found.producers.by_id.keys() == {7}

    assert checkpoint(log, crash)
    for draft in directory.checkpoints.draft_recovery_points():
        crash(4)
        assert save(directory, [draft])
        crash(5)
    found = open_small(disk.crash_clone(rng))
    assert found.logs[P].recovery_point == log.recovery_point
    assert P not in found.reports


@pytest.mark.parametrize("step", range(STEPS))
def test_a_truncation_makes_a_checkpoint_count_for_nothing(step: int) -> None:
    disk = MemoryDisk()
    directory, log = make(disk)

    def truncate(now: int) -> None:
        if now == step:
            log.truncate(20)

    assert not checkpoint(log, truncate)
    assert log.recovery_point.offset <= 20
    append(log, make_batch(1, fill=9), leader_epoch=5)
    assert checkpoint(log)
    assert save(directory, directory.checkpoints.draft_recovery_points())
    found = open_small(disk.crash_clone(Random(step))).logs[P]
    assert batches_of(found) == batches_of(log)
    assert [each.epoch for each in found.epochs.entries] == [3, 5]


@pytest.mark.parametrize("step", range(STEPS))
def test_a_checkpoint_at_once_supersedes_one_under_way(step: int) -> None:
    disk = MemoryDisk()
    directory, log = make(disk)
    points = []

    def at_once(now: int) -> None:
        if now == step:
            append(log, make_batch(2, fill=3), leader_epoch=6)
            points.append(log.checkpoint())
            directory.checkpoints.save_recovery_point(P, log.recovery_point)

    assert not checkpoint(log, at_once)
    assert log.recovery_point == points[0]
    assert_durable(disk)
    found = open_small(disk.crash_clone(Random(step)))
    assert P not in found.reports
    assert found.logs[P].recovery_point == points[0]
    assert found.logs[P].producers == log.producers
    assert [each.epoch for each in found.logs[P].epochs.entries] == [3, 6]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("pattern", ["*.log", "*.index", "*.snapshot", "*epoch-checkpoint.tmp", "*/orders-0"])
def test_a_checkpoint_that_fails_is_done_again(pattern: str, seed: int) -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory, rng=Random(seed))
    directory, log = make(disk)
    operation = "sync_dir" if pattern == "*/orders-0" else "sync"
    rule = disk.fail(operation, path=pattern, times=1)  # type: ignore[arg-type]

    def steps(work: CheckpointWork) -> None:
        error: OSError | None = None
        try:
            work.run()
        except OSError as failure:
            error = failure
        log.flusher.install_checkpoint(work, error)
        try:
            work.sync_names()
        except OSError as failure:
            error = failure
        log.flusher.finish_checkpoint(work, error)

    with pytest.raises(StorageError):
        steps(log.flusher.prepare_checkpoint())
    assert rule.hits == 1
    assert log.recovery_point.offset == 0
    steps(log.flusher.prepare_checkpoint())
    assert log.recovery_point.offset == log.log_end
    # A snapshot has a CRC: one that a failed sync left in doubt is not written again, an older one serves.
    assert_durable(memory, but=".snapshot" if pattern == "*.snapshot" else "nothing")
    assert save(directory, directory.checkpoints.draft_recovery_points())
    found = open_small(memory.crash_clone(Random(seed)))
    assert P not in found.reports
    assert batches_of(found.logs[P]) == batches_of(log)
    assert found.logs[P].epochs.entries == log.epochs.entries
    assert found.logs[P].producers == log.producers


def test_points_that_are_lowered_meanwhile_are_not_raised_again() -> None:
    disk = MemoryDisk()
    directory, log = make(disk)
    assert checkpoint(log)
    ours, kafkas = directory.checkpoints.draft_recovery_points()
    assert save(directory, [ours])
    log.truncate(8)
    assert not save(directory, [kafkas])
    found = open_small(disk.crash_clone(Random(1)))
    assert found.logs[P].log_end == 8
    assert batches_of(found.logs[P]) == batches_of(log)


def test_high_watermarks_of_a_deleted_partition_do_not_come_back() -> None:
    disk = MemoryDisk()
    directory, _ = make(disk)
    directory.checkpoints.high_watermarks = {P: 48}
    drafts = directory.checkpoints.draft_high_watermarks()
    directory.delete(P, Random(1))
    assert not save(directory, drafts)
    directory.create(P, now_ms=NOW_MS)
    assert open_small(disk.crash_clone(Random(1))).checkpoints.high_watermarks == {}


def test_retention_keeps_its_promises_while_a_checkpoint_is_under_way() -> None:
    disk = MemoryDisk()
    directory, log = make(disk)
    for _ in range(60):
        append(log, make_batch(4, fill=5), leader_epoch=3)
    assert log.size_bytes > 2 * SMALL.retention_bytes

    def retain_at_first(now: int) -> None:
        if now == 1:
            directory.checkpoints.high_watermarks = {P: log.log_end}
            for removal in retain(directory, NOW_MS):
                removal.run()

    checkpoint(log, retain_at_first)
    start = log.log_start
    assert start > 0
    found = open_small(disk.crash_clone(Random(1))).logs[P]
    assert found.log_start == start
    assert batches_of(found) == batches_of(log)


@pytest.mark.parametrize("step", [None, *range(STEPS)])
def test_compaction_of_the_segment_of_a_recovery_point_leaves_no_hole(step: int | None) -> None:
    """The point is at the end of a segment that was the last one, before the checkpoint or while it is under way."""
    disk = MemoryDisk()
    directory = open_small(disk, COMPACTED)
    log = directory.create(P, now_ms=NOW_MS)

    def roll_and_compact() -> None:
        log.roll(NOW_MS)
        append(log, make_batch(4), leader_epoch=3)
        done = compact(log, NOW_MS, log.log_end)
        assert done is not None
        done[1].run()

    for _ in range(6):
        append(log, make_batch(4, size=300), leader_epoch=3)
    checkpoint(log, lambda now: roll_and_compact() if now == step else None)
    if step is None:
        roll_and_compact()
    log.flush()
    assert save(directory, directory.checkpoints.draft_recovery_points())
    for seed in range(5):
        found = open_small(disk.crash_clone(Random(seed)), COMPACTED)
        assert not [each.holes for each in found.reports.values() if each.holes]
        assert batches_of(found.logs[P]) == batches_of(log)
