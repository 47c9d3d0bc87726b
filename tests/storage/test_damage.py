"""Bytes that change under a log: reported with file and position, served up to there, nothing dropped silently."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.storage.world import (
    EVERYTHING,
    NOW_MS,
    SMALL,
    P,
    append,
    base_of,
    check_log,
    end_of,
    files_of,
    make_batch,
    open_small,
    put,
)

from penstock.records import RecordBatch
from penstock.storage.errors import CorruptLog
from penstock.storage.scan import scan_batches, walk_headers
from penstock.vfs import MemoryDisk

ONE_SEGMENT = replace(SMALL, segment_bytes=1_000_000)

FLIPS = {
    "base offset": (0, 0x80),
    "length, larger": (9, 0x40),
    "length, smaller": (11, 0x01),
    "magic": (16, 0x01),
    "CRC": (18, 0x10),
    "attributes": (22, 0x01),
    "last offset delta": (26, 0x01),
    "timestamp": (40, 0x01),
    "producer": (50, 0x01),
    "payload": (100, 0x08),
}


def damaged_log(place: int, mask: int, *, checkpointed: bool = False) -> tuple[MemoryDisk, str, list[bytes]]:
    """Ten flushed batches, of which the fifth has a byte flipped."""
    disk = MemoryDisk()
    directory = open_small(disk, ONE_SEGMENT)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(3, size=90, fill=n)) for n in range(10)]
    log.flush()
    if checkpointed:
        directory.close()
    path = log.segments.active.ref.path
    data = bytearray(files_of(disk)[path])
    data[sum(map(len, whole[:4])) + place] ^= mask
    clone = disk.kill_clone()
    put(clone, path, bytes(data))
    return clone, path, whole


@pytest.mark.parametrize("field", FLIPS)
def test_a_damaged_batch_in_the_middle_is_reported_and_nothing_behind_it_is_lost(field: str) -> None:
    disk, path, whole = damaged_log(*FLIPS[field])
    position = sum(map(len, whole[:4]))
    directory = open_small(disk, ONE_SEGMENT)
    log, report = directory.logs[P], directory.reports[P]
    assert [(each.path, each.position) for each in report.damage] == [(path, position)]
    assert any(f"{path} at position {position}" in note for note in report.notes)
    assert report.bytes_cut == 0
    assert log.log_end == 30

    assert log.read(0, EVERYTHING) == b"".join(whole[:4]), "served up to the damage"
    with pytest.raises(CorruptLog) as caught:
        log.read(12, EVERYTHING)
    assert (caught.value.path, caught.value.position) == (path, position)
    assert log.size_bytes == sum(map(len, whole)), "nothing is dropped"
    found = append(log, make_batch(1))
    assert base_of(found) == 30
    assert log.read(30, EVERYTHING) == found


def test_batches_behind_the_damage_are_served_where_an_index_entry_leads_past_it() -> None:
    disk, _, whole = damaged_log(*FLIPS["CRC"])
    log = open_small(disk, ONE_SEGMENT).logs[P]
    for data in whole[5:]:
        assert log.read(base_of(data), 1) == data


@pytest.mark.parametrize("field", FLIPS)
def test_damage_below_the_recovery_point_does_not_keep_a_log_from_opening(field: str) -> None:
    disk, _, whole = damaged_log(*FLIPS[field], checkpointed=True)
    for name in files_of(disk):
        if name.endswith((".snapshot", ".sequences", ".index", ".timeindex")):
            disk.remove(name)  # so that everything is read again
    log = open_small(disk, ONE_SEGMENT).logs[P]
    assert log.log_end == 30
    assert log.read(0, 1) == whole[0]
    assert base_of(append(log, make_batch(1))) == 30


def test_a_damaged_last_batch_is_a_torn_end() -> None:
    """Nothing sound behind it: no telling it from a write that was cut short."""
    disk, path, whole = damaged_log(*FLIPS["payload"])
    put(disk, path, files_of(disk)[path][: sum(map(len, whole[:5]))])
    directory = open_small(disk, ONE_SEGMENT)
    assert directory.logs[P].log_end == end_of(whole[3])
    assert directory.reports[P].bytes_cut == len(whole[4])


@pytest.mark.parametrize("torn", [0, 1, 50])
def test_what_takes_the_place_of_synced_batches_that_are_gone_is_recovered_like_any_other(torn: int) -> None:
    disk = MemoryDisk()
    directory = open_small(disk, ONE_SEGMENT)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(3, size=90, fill=n)) for n in range(10)]
    directory.checkpoint()
    path = log.segments.active.ref.path
    shorter = disk.kill_clone()
    put(shorter, path, b"".join(whole[:4]))
    log = open_small(shorter, ONE_SEGMENT).logs[P]
    assert log.log_end == 12
    kept = whole[:4] + [append(log, make_batch(2, size=97, fill=n)) for n in range(12)]
    again = shorter.kill_clone()
    if torn:
        put(again, path, b"".join(kept)[:-torn])
        kept.pop()
    check_log(open_small(again, ONE_SEGMENT).logs[P], kept)


def test_sound_batches_behind_a_hole_are_set_aside_not_destroyed() -> None:
    disk = MemoryDisk()
    log = open_small(disk, ONE_SEGMENT).create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(1, size=1500, fill=n)) for n in range(3)]
    path = log.segments.active.ref.path
    data = bytearray(b"".join(whole))
    data[2048:2560] = bytes(512)
    put(disk, path, bytes(data))
    clone = disk.kill_clone()
    directory = open_small(clone, ONE_SEGMENT)
    assert directory.logs[P].log_end == 1
    assert directory.reports[P].bytes_cut == len(whole[1]) + len(whole[2])
    aside = [content for name, content in files_of(clone).items() if name.endswith(".cut")]
    assert aside == [bytes(data[len(whole[0]) :])]
    check_log(directory.logs[P], whole[:1])


@pytest.mark.parametrize("zeros", [1, 8, 12, 60, 61, 511, 512, 513, 5000])
def test_a_blank_tail_is_cut_off(zeros: int) -> None:
    """What a file system leaves that made the file longer before it had the data."""
    disk = MemoryDisk()
    log = open_small(disk, ONE_SEGMENT).create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2, size=70)) for _ in range(3)]
    path = log.segments.active.ref.path
    put(disk, path, b"".join(whole) + bytes(zeros))
    directory = open_small(disk.kill_clone(), ONE_SEGMENT)
    assert directory.reports[P].bytes_cut == zeros
    check_log(directory.logs[P], whole)


@pytest.mark.parametrize("lost", range(1, 40))
def test_a_sector_that_was_lost_from_a_batchs_first_bytes_is_a_hole(lost: int) -> None:
    """However few of the batch's bytes lie in it, and although an offset begins with zeros."""
    disk = MemoryDisk()
    log = open_small(disk, ONE_SEGMENT).create(P, now_ms=NOW_MS)
    empty = len(make_batch(1, size=300)) - 300
    whole = [append(log, make_batch(1, size=size)) for size in (1024 - lost - empty, 500, 500, 500)]
    data = bytearray(b"".join(whole))
    border = 1024
    data[len(whole[0]) : border] = bytes(border - len(whole[0]))
    put(disk, log.segments.active.ref.path, bytes(data))
    directory = open_small(disk.kill_clone(), ONE_SEGMENT)
    report = directory.reports[P]
    assert not report.damage
    assert directory.logs[P].log_end == (4 if data == b"".join(whole) else 1)


# -- walking a file -----------------------------------------------------------------------------------


def _walkers() -> dict[str, Callable]:
    return {
        "batches": lambda file, end, step: [
            (position, batch.base_offset) for position, batch in scan_batches(file, 0, end, step=step)
        ],
        "headers": lambda file, end, step: [
            (spot.position, spot.base_offset) for spot in walk_headers(file, 0, end, step=step)
        ],
    }


@pytest.mark.parametrize("walker", ["batches", "headers"])
@pytest.mark.parametrize("step", [61, 62, 100, 1000, 8192, 1 << 20])
def test_a_walk_finds_every_batch_whatever_its_steps(walker: str, step: int) -> None:
    disk = MemoryDisk()
    batches = [bytes(make_batch(n, size=10 * n)) for n in range(1, 12)]
    put(disk, "/x.log", b"".join(batches))
    file = disk.open("/x.log")
    positions = [sum(map(len, batches[:n])) for n in range(len(batches))]
    found = _walkers()[walker](file, file.size(), step)
    assert [position for position, _ in found] == positions


@pytest.mark.parametrize("missing", [1, 60, 100, 400])
def test_a_walk_over_a_file_that_is_shorter_than_it_should_be_ends_with_an_error(missing: int) -> None:
    disk = MemoryDisk()
    data = bytes(make_batch(2)) + bytes(make_batch(3, size=300))
    put(disk, "/x.log", data[:-missing])
    with pytest.raises(CorruptLog, match=r"/x\.log at position"):
        list(scan_batches(disk.open("/x.log"), 0, len(data)))


def test_a_batch_is_good_until_the_next_is_asked_for() -> None:
    disk = MemoryDisk()
    batches = [bytes(make_batch(2, fill=n)) for n in range(5)]
    put(disk, "/x.log", b"".join(batches))
    found = [bytes(batch.view) for _, batch in scan_batches(disk.open("/x.log"), 0, sum(map(len, batches)))]
    assert found == batches
    assert all(RecordBatch.parse(data).crc_valid() for data in found)
