"""A disk that gives back what was never written: it is noticed before anybody is given it, and can be cut off."""

from random import Random

import pytest
from tests.planting import plant
from tests.storage.world import EVERYTHING, NOW_MS, SMALL, P, append, make_batch, open_small

from penstock.records import HEADER_BYTES, end_txn_marker, iter_batches
from penstock.records.batch import LENGTH_AT
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import CorruptLog
from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.vfs import MemoryDisk

FIRST = "/data/logs/orders-0/00000000000000000000.log"
BATCHES = 9
BOOT = "boot"


def opened(disk: MemoryDisk) -> LogDirectory:
    return open_directory(
        disk, "/data", now_ms=NOW_MS, rng=Random(1), settings_of=lambda _: SMALL, boot_id=BOOT
    )


def written(disk: MemoryDisk) -> list[int]:
    """A log of one segment, stopped cleanly; where its batches begin."""
    directory = opened(disk)
    log = directory.create(P, now_ms=NOW_MS)
    positions = [0]
    for number in range(BATCHES):
        positions.append(positions[-1] + len(append(log, make_batch(1 + number % 2, fill=number))))
    directory.registered(7)
    directory.close()
    return positions


def flip(disk: MemoryDisk, position: int, mask: int = 0x10, path: str = FIRST) -> None:
    file = disk.open(path, write=True)
    (byte,) = file.pread(1, position)
    file.pwrite([bytes([byte ^ mask])], position)
    file.sync()
    file.close()


def offsets(data: bytes) -> list[int]:
    return [batch.base_offset for batch in iter_batches(bytearray(data))]


def read_all(log: Log) -> list[int]:
    """The base offsets of all batches that can be read."""
    found: list[int] = []
    offset = log.log_start
    while offset < log.log_end:
        batches = list(iter_batches(bytearray(log.read(offset, EVERYTHING))))
        found += [batch.base_offset for batch in batches]
        offset = batches[-1].next_offset
    return found


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_what_a_former_life_left_is_checked_when_it_is_first_read(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    positions = written(disk)
    flip(disk, positions[4] + HEADER_BYTES + 5)
    log = opened(disk).logs[P]
    data = log.read(0, EVERYTHING)
    assert len(data) == positions[4]
    assert not log.is_damaged
    with pytest.raises(CorruptLog, match="CRC mismatch"):
        log.read(6, EVERYTHING)
    assert log.is_damaged
    assert f"{FIRST} at position {positions[4]}: CRC mismatch" in caplog.text
    assert offsets(log.read(7, EVERYTHING))[0] == 7


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x40])
def test_a_batch_under_an_offset_that_is_not_its_own_is_given_to_nobody(disk: MemoryDisk, mask: int) -> None:
    """No CRC covers the offset of a batch."""
    positions = written(disk)
    flip(disk, positions[4] + 7, mask)
    log = opened(disk).logs[P]
    with pytest.raises(CorruptLog):
        read_all(log)
    assert log.is_damaged


def test_what_this_life_wrote_is_not_checked_again(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_small(disk).create(P, now_ms=NOW_MS)
    append(log, make_batch(3))
    plant(monkeypatch, Segment.check, lambda *_: pytest.fail("checked"))
    assert log.read(0, EVERYTHING)


def test_what_was_checked_is_not_checked_again(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    written(disk)
    log = opened(disk).logs[P]
    assert len(read_all(log)) == BATCHES
    append(log, make_batch(3))
    plant(monkeypatch, Segment.check, lambda *_: pytest.fail("checked"))
    assert len(read_all(log)) == BATCHES + 1


@pytest.mark.parametrize("where", [0, 7, LENGTH_AT + 3, HEADER_BYTES + 3])
def test_a_damaged_log_is_cut_off_where_the_damage_begins(disk: MemoryDisk, where: int) -> None:
    positions = written(disk)
    flip(disk, positions[4] + where, 0x04)
    log = opened(disk).logs[P]
    with pytest.raises(CorruptLog):
        read_all(log)
    assert log.cut_damage() == 6
    assert not log.is_damaged
    assert len(read_all(log)) == 4
    append(log, make_batch(2))
    assert read_all(log)[-1] == 6


@pytest.mark.parametrize("back", [1, 3])
def test_a_truncation_decides_nothing_by_a_damaged_marker(disk: MemoryDisk, back: int) -> None:
    """It replays producers up to its end: the marker that ended a transaction there must be what was written."""
    directory = opened(disk)
    log = directory.create(P, now_ms=NOW_MS)
    first = append(log, make_batch(2, producer=(10, 0, 0), transactional=True))
    marker = append(log, bytearray(end_txn_marker(10, 0, False, 0, NOW_MS)), marker=True)
    for number in range(3):
        append(log, make_batch(2, fill=number))
    directory.registered(7)
    directory.close()
    flip(disk, len(first) + len(marker) - back)
    log = opened(disk).logs[P]
    with pytest.raises(CorruptLog, match="CRC mismatch"):
        log.truncate(7)
    assert log.is_damaged
    assert log.log_end == 9
    assert log.cut_damage() == 2
    assert log.producers.ongoing == {0: 10}


def test_a_log_that_begins_anew_is_not_damaged_any_more(disk: MemoryDisk) -> None:
    positions = written(disk)
    flip(disk, positions[4] + HEADER_BYTES + 5)
    log = opened(disk).logs[P]
    with pytest.raises(CorruptLog):
        read_all(log)
    log.restart_at(20, NOW_MS)
    assert not log.is_damaged


def test_damage_that_opening_finds_is_known_to_the_log_and_ends_the_trust_in_the_former_life(
    disk: MemoryDisk,
) -> None:
    """A broker must not count as in sync with what it once had."""
    positions = written(disk)
    disk.remove("/data/logs/.kafka_cleanshutdown")
    disk.remove("/data/meta/checkpoint.json")
    disk.remove("/data/logs/recovery-point-offset-checkpoint")
    flip(disk, positions[4] + HEADER_BYTES + 5)
    directory = opened(disk)
    assert directory.logs[P].is_damaged
    assert directory.previous_broker_epoch == -1


def test_a_batch_that_seems_to_lie_behind_the_recovery_point_is_damaged_as_soon_as_opening_meets_it(
    disk: MemoryDisk,
) -> None:
    """No CRC covers the offset of a batch."""
    positions = written(disk)
    flip(disk, positions[BATCHES - 1] + 6, 0x08)
    directory = opened(disk)
    log = directory.logs[P]
    assert log.is_damaged
    assert log.log_end == 13
    assert directory.previous_broker_epoch == -1
    assert log.cut_damage() == 12
    assert not log.is_damaged
    assert len(read_all(log)) == BATCHES - 1


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill -9"])
@pytest.mark.parametrize(("number", "epoch"), [(4, 0), (4, 3), (4, 9), (4, -5), (BATCHES - 1, 9), (0, 4)])
def test_a_batch_in_a_leader_epoch_that_is_not_its_own_is_given_to_nobody_where_others_have_it(
    disk: MemoryDisk, number: int, epoch: int, is_clean: bool
) -> None:
    """No CRC covers the leader epoch. It never falls, and nobody has led in a later one than the last."""
    directory = opened(disk)
    log = directory.create(P, now_ms=NOW_MS)
    ends = [0]
    for each in range(BATCHES):
        ends.append(ends[-1] + len(append(log, make_batch(1, fill=each), leader_epoch=1 + each // 5)))
    if is_clean:
        directory.close()
    else:
        disk = disk.kill_clone()
    file = disk.open(FIRST, write=True)
    file.pwrite([epoch.to_bytes(4, "big", signed=True)], ends[number] + LENGTH_AT + 4)
    as_it_is = opened(disk.kill_clone()).logs[P]
    assert len(read_all(as_it_is)) == BATCHES
    log = opened(disk).logs[P]
    log.limit_epochs(5)
    with pytest.raises(CorruptLog, match=f"leader epoch {epoch}"):
        read_all(log)
    assert log.cut_damage() == number
    assert len(read_all(log)) == number


@pytest.mark.parametrize("mask", [0x10, 0x01, 0x80])
def test_a_last_batch_whose_length_has_changed_is_not_taken_for_one_that_a_kill_cut_short(
    disk: MemoryDisk, mask: int
) -> None:
    """A kill leaves the beginning of a batch at most, and has lost nothing that was acknowledged. This has."""
    directory = opened(disk)
    log = directory.create(P, now_ms=NOW_MS)
    sizes = [len(append(log, make_batch(1, fill=number))) for number in range(3)]
    log.flush()
    directory.registered(7)
    directory.abandon()
    untouched = disk.kill_clone()
    flip(disk, sum(sizes[:2]) + LENGTH_AT + 2, mask)
    again = opened(disk)
    assert again.logs[P].log_end == 2
    assert again.previous_broker_epoch == -1
    assert opened(untouched).previous_broker_epoch == 7


def test_a_last_batch_that_a_kill_cut_short_has_lost_nothing(disk: MemoryDisk) -> None:
    directory = opened(disk)
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(1))
    size = len(append(log, make_batch(2)))
    directory.registered(7)
    directory.abandon()
    file = disk.open(FIRST, write=True)
    file.truncate(file.size() - size // 3)
    file.close()
    again = opened(disk)
    assert again.logs[P].log_end == 1
    assert again.previous_broker_epoch == 7
