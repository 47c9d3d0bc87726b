"""What is believed, and what is held against something else first."""

import random
from dataclasses import replace

import pytest

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import build_batch
from penstock.storage import CorruptLog, DirectoryRefused, Log, LogDirectory, StorageError, open_directory
from penstock.storage.scan import BATCH_BYTES_MAX, next_sound, scan_batches
from penstock.vfs import MemoryDisk

SMALL = LogSettings(segment_bytes=1500, index_interval_bytes=200)
FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)


def opened(disk: MemoryDisk, settings: LogSettings = SMALL) -> LogDirectory:
    return open_directory(disk, "/data", now_ms=1, rng=random.Random(1), settings_of=lambda _: settings)


def fill(log: Log, count: int, key: bytes = b"k") -> None:
    for number in range(count):
        log.append(build_batch([(key, b"value %d" % number, 1)]), leader_epoch=0, now_ms=1)


def flip(disk: MemoryDisk, path: str, position: int, bits: int) -> None:
    file = disk.open(path, write=True)
    file.pwrite([bytes([file.pread(1, position)[0] ^ bits])], position)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_damaged_partition_does_not_keep_the_others_from_opening(clean: bool) -> None:
    """The length of the very first batch is wrong, so that nothing in the segment can be walked to."""
    disk = MemoryDisk()
    directory = opened(disk, replace(SMALL, segment_bytes=100_000))
    for partition in (FIRST, SECOND):
        fill(directory.create(partition, now_ms=1), 20)
    directory.checkpoint()
    directory.close() if clean else directory.abandon()
    flip(disk, "/data/logs/first-0/00000000000000000000.log", 9, 0x01)

    reopened = opened(disk)

    assert reopened.logs[SECOND].log_end == 20
    assert reopened.reports[FIRST].notes
    with pytest.raises(CorruptLog, match=r"first-0/00000000000000000000\.log at position 0"):
        reopened.logs[FIRST].read(0, 1000)


def test_after_a_clean_stop_a_misplaced_last_batch_does_not_move_the_log_end() -> None:
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(FIRST, now_ms=1)
    fill(log, 20)
    active = log.segments.active
    spot = active.find(19)
    assert spot is not None
    directory.close()
    flip(disk, active.ref.path, spot.position + 6, 0x20)

    reopened = opened(disk)

    assert reopened.logs[FIRST].log_end == 20
    assert "expected less than 20" in reopened.reports[FIRST].notes[0]
    with pytest.raises(CorruptLog, match=rf"at position {spot.position}"):
        reopened.logs[FIRST].read(19, 1000)


def test_after_a_clean_stop_a_log_that_lost_its_end_says_so() -> None:
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(FIRST, now_ms=1)
    fill(log, 20)
    active = log.segments.active
    spot = active.find(19)
    assert spot is not None
    directory.close()
    disk.open(active.ref.path, write=True).truncate(spot.position)

    reopened = opened(disk)

    assert reopened.logs[FIRST].log_end == 19
    assert "before the recovery point 20" in reopened.reports[FIRST].notes[0]


def test_a_batch_that_claims_offsets_past_its_segment_is_corrupt_not_invisible() -> None:
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(FIRST, now_ms=1)
    fill(log, 30)
    flip(disk, log.segments[0].ref.path, 1, 0x40)

    with pytest.raises(CorruptLog, match="at position 0: offsets"):
        log.read(0, 1000)


def test_replicated_batches_are_taken_all_or_none() -> None:
    log = opened(MemoryDisk()).create(FIRST, now_ms=1)
    good, bad = (
        build_batch([(b"k", b"v", 1)], leader_epoch=0),
        bytearray(build_batch([(b"k", b"v", 1)], base_offset=1, leader_epoch=0)),
    )
    bad[-1] ^= 1
    for _ in range(2):
        with pytest.raises(KafkaError, match="CRC"):
            log.append_replicated(good + bad, now_ms=1)
        assert log.log_end == 0

    log.append_replicated(good + bytes(bad[:-3]), now_ms=1)

    assert log.log_end == 1, "a fetch may cut its last batch"


def test_a_flush_beside_one_that_failed_proves_nothing() -> None:
    log = opened(MemoryDisk()).create(FIRST, now_ms=1)
    fill(log, 1)
    first, second = log.prepare_flush(), log.prepare_flush()
    assert first is not None
    assert second is not None
    with pytest.raises(StorageError):
        log.finish_flush(first, OSError(5, "Input/output error"))
    second.run()

    assert log.finish_flush(second) is False
    assert log.flushed == 0
    log.flush()
    assert log.flushed == 1


def test_a_rebuilt_index_is_rebuilt_once() -> None:
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(FIRST, now_ms=1)
    fill(log, 60)
    directory.close()
    path = "/data/logs/first-0/00000000000000000000.index"
    disk.open(path, write=True).pwrite([b"\x00\x00\x00\x01\x00\x00\x00\x07" * 3], 0)
    log = opened(disk).logs[FIRST]
    assert log.read(10, 100)

    log.checkpoint()

    segment = log.segments[0]
    assert segment.index._entries is None, "left to the file"
    assert log.read(10, 100)
    assert segment.index._entries is None, "and the file is right"


def test_a_directory_must_be_named() -> None:
    with pytest.raises(DirectoryRefused, match="by its own name"):
        open_directory(MemoryDisk(), ".", now_ms=1, rng=random.Random(1))


def test_a_length_buys_no_memory_and_a_search_through_garbage_is_quick() -> None:
    """Sixteen megabytes in which every byte might be a magic."""
    disk = MemoryDisk()
    disk.make_dirs("/d")
    file = disk.open("/d/garbage", write=True, create=True)
    batch = build_batch([(b"k", b"v", 1)])
    head = bytearray(batch)
    head[8:12] = (BATCH_BYTES_MAX + 1).to_bytes(4, "big")
    file.pwrite([head, b"\x02" * (16 << 20), batch], 0)
    size = file.size()

    with pytest.raises(CorruptLog, match=f"expected at most {BATCH_BYTES_MAX}|bytes are there"):
        list(scan_batches(file, 0, size + BATCH_BYTES_MAX))
    assert next_sound(file, 1, size, 0) == size - len(batch)
