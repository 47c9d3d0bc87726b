"""Compaction of logs with changed bits: a damaged batch must not come out with a checksum that fits it."""

import random

import pytest
from tests.storage.test_compaction import NOW, open_table, put, run, transaction

from penstock.storage import Log
from penstock.storage.errors import CorruptLog
from penstock.vfs import MemoryDisk

LENGTH_AT, EPOCH_AT, MAGIC_AT = 8, 12, 16


def table(disk: MemoryDisk) -> Log:
    """Committed and aborted transactions, tombstones and plain records, in a segment that is to be cleaned."""
    _, log = open_table(disk)
    transaction(log, 7, 0, (b"a", b"1"), commit=True)
    transaction(log, 8, 0, (b"a", b"2"), commit=False)
    transaction(log, 7, 1, (b"a", b"3"), commit=True)
    put(log, (b"b", b"1"), (b"c", None))
    put(log, (b"b", b"2"))
    log.roll(NOW)
    return log


def batches(log: Log) -> list[tuple[int, int]]:
    """Position and size of each batch of the segment."""
    found, position = [], 0
    for batch in log.batches():
        found.append((position, batch.size))
        position += batch.size
    return found


COUNT = 8


@pytest.mark.parametrize("number", range(COUNT))
def test_a_changed_bit_anywhere_in_a_batch_ends_the_round(number: int) -> None:
    """What the checksum covers, and what finds the batch. Offset and leader epoch are covered by neighbours alone."""
    rng = random.Random(number)
    position, size = batches(table(MemoryDisk()))[number]
    for at in [*range(LENGTH_AT, EPOCH_AT), *range(MAGIC_AT, size)]:
        disk = MemoryDisk()
        log = table(disk)
        path = log.segments[0].ref.path
        file = disk.open(path, write=True)
        (byte,) = file.pread(1, position + at)
        file.pwrite([bytes([byte ^ 1 << rng.randrange(8)])], position + at)
        before = file.pread(1 << 20, 0)
        with pytest.raises(CorruptLog):
            run(log)
        assert disk.open(path).pread(1 << 20, 0) == before
        assert not [each.name for each in disk.list_dir(log.directory) if each.name.endswith(".swap")]


def test_a_second_round_looks_at_what_the_first_has_left() -> None:
    """A marker gets its delete horizon, and a new checksum, in a later round than the one that met its records."""
    disk = MemoryDisk()
    log = table(disk)
    run(log)
    put(log, (b"b", b"3"))
    log.roll(NOW)
    segment = log.segments[0]
    marker = next(each for each in log.batches() if each.is_control and each.count)
    spot = segment.find(marker.base_offset)
    assert spot is not None
    file = disk.open(segment.ref.path, write=True)
    at = spot.position + spot.size - 2
    (byte,) = file.pread(1, at)
    file.pwrite([bytes([byte ^ 0x10])], at)
    with pytest.raises(CorruptLog, match="CRC mismatch"):
        run(log, NOW + 1)
