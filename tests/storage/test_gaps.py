"""Offsets with gaps: legitimate in a copy of a compacted log, a sign of damage elsewhere."""

import random

import pytest

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import Record, build_batch
from penstock.storage import Log, LogDirectory, open_directory
from penstock.vfs import MemoryDisk

PARTITION = TopicPartition("copy", 0)


def opened(disk: MemoryDisk, **settings: int) -> tuple[LogDirectory, Log]:
    directory = open_directory(
        disk, "/data", now_ms=1, rng=random.Random(1), settings_of=lambda _: LogSettings(**settings)
    )
    return directory, directory.logs.get(PARTITION) or directory.create(PARTITION, now_ms=1)


def copy(log: Log, *offsets: int) -> None:
    for offset in offsets:
        log.append_replicated(build_batch([Record(offset, 1, b"k", b"v")], leader_epoch=0), now_ms=1)


def offsets_of(log: Log) -> list[int]:
    return [batch.base_offset for batch in log.batches()]


def test_a_copy_of_a_compacted_log_keeps_its_gaps_over_a_crash() -> None:
    disk = MemoryDisk()
    _, log = opened(disk, segment_bytes=1000)
    wanted = [offset * 17 for offset in range(60)]
    copy(log, *wanted)
    assert len(log.segments) > 3

    _, reopened = opened(disk.kill_clone(), segment_bytes=1000)

    assert offsets_of(reopened) == wanted


@pytest.mark.parametrize("seed", range(5))
def test_a_gap_that_no_segment_can_span_begins_a_new_one(seed: int) -> None:
    """Index entries hold 31 bits of offset: a segment reaches no further."""
    disk = MemoryDisk()
    _, log = opened(disk)
    wanted = [0, 2**33, 2**33 + 1, 2**40]
    copy(log, *wanted)
    log.flush()
    log.roll(1)
    assert [segment.base_offset for segment in log.segments] == [0, 2**33, 2**40, 2**40 + 1]

    for survived in (disk.kill_clone(), disk.crash_clone(random.Random(seed))):
        _, reopened = opened(survived)
        assert offsets_of(reopened) == wanted
        assert reopened.log_end == 2**40 + 1
        copy(reopened, 2**40 + 7)


@pytest.mark.parametrize("bit", [1, 3, 12, 30])
def test_a_batch_whose_offset_was_changed_is_damage_and_nothing_after_it_goes(bit: int) -> None:
    """No CRC covers the base offset; the batch behind tells that it is wrong."""
    disk = MemoryDisk()
    directory, log = opened(disk, segment_bytes=2000)
    copy(log, *range(100))
    log.flush()
    segment = log.segments[1]
    victim = segment.base_offset + 5
    spot = segment.find(victim)
    assert spot is not None
    file = disk.open(segment.ref.path, write=True)
    assert not victim & (1 << bit)
    file.pwrite([(victim | 1 << bit).to_bytes(8, "big")], spot.position)
    directory.abandon()

    reopened_directory, reopened = opened(disk, segment_bytes=2000)

    [damage] = reopened_directory.reports[PARTITION].damage
    assert (damage.path, damage.position) == (segment.ref.path, spot.position)
    assert f"expected {victim}" in str(damage)
    assert reopened.log_end == 100
    assert len(reopened.segments) == len(log.segments)
    assert reopened.read(99, 1000)
    assert reopened.read(segment.base_offset, 10_000)[:8] == segment.base_offset.to_bytes(8, "big")
