"""Records that are promised first and read as they are sent: the same bytes in steps, whatever the log does."""

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.test_reads import ONE_SEGMENT, filled
from tests.storage.world import EVERYTHING, NOW_MS, SMALL, P, append, make_batch, open_small

from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.unread import UnreadRecords
from penstock.vfs import FaultyDisk, MemoryDisk

AHEAD = 100
"""Less than a batch: everything is promised."""


def promised(log: Log, offset: int = 0, bytes_max: int = EVERYTHING) -> UnreadRecords:
    records = log.read_ahead(offset, bytes_max, AHEAD)
    assert isinstance(records, UnreadRecords)
    return records


def taken(records: UnreadRecords, step: int) -> bytes:
    found = b""
    while records.left:
        found += records.take(step)
    return found


@given(st.integers(0, 35), st.integers(1, 6000), st.integers(1, 2000))
def test_steps_of_any_size_give_what_one_read_gives(offset: int, bytes_max: int, step: int) -> None:
    log, _ = filled(ONE_SEGMENT)
    whole = log.read(offset, bytes_max)
    records = promised(log, offset, bytes_max)
    assert len(records) == len(whole)
    assert taken(records, step) == whole
    assert len(records) == len(whole)


def test_few_bytes_are_read_at_once() -> None:
    log, whole = filled(ONE_SEGMENT)
    assert log.read_ahead(0, 1, len(whole[0])) == whole[0]


def test_a_peek_does_not_move_on() -> None:
    log, whole = filled(ONE_SEGMENT)
    records = promised(log)
    assert records.peek(10) == records.peek(10) == whole[0][:10]
    assert taken(records, 500) == b"".join(whole)


def test_what_a_former_life_wrote_is_checked_before_it_is_promised() -> None:
    """One read checks a megabyte at most: the reader comes back for the rest."""
    log, whole = filled(ONE_SEGMENT, reopened=True)
    log.segments.active.checked_from = log.segments.active.size
    records = promised(log)
    assert taken(records, 500) == b"".join(whole)
    assert log.segments.active.checked_to == log.segments.active.size


@pytest.mark.parametrize("reopened", [False, True])
def test_the_end_offset_counts_a_batch_that_is_cut_short(reopened: bool) -> None:
    log, whole = filled(ONE_SEGMENT, reopened=reopened)
    size = len(whole[0])
    for batches in range(1, 12):
        assert promised(log, 0, batches * size).end_offset(1000) == 3 * batches
        assert promised(log, 0, batches * size + 1).end_offset(1000) == 3 * batches + 3
        assert promised(log, 0, batches * size + 1).end_offset(5) <= 5


def test_an_index_that_is_damaged_gives_the_largest_end_offset() -> None:
    log, whole = filled(ONE_SEGMENT)
    log.segments.active.index._entries = bytearray(b"\0\0\0\1\0\0\0\7")
    assert promised(log, 0, 2 * len(whole[0])).end_offset(77) == 77


# -- what the log does meanwhile -------------------------------------------------------------------------


def test_a_segment_that_is_deleted_is_sent_to_its_end() -> None:
    log, _ = filled()
    segment = log.segments[0]
    whole = log.read(0, EVERYTHING)
    records = promised(log)
    begun = records.take(300)
    log.advance_start(log.segments[1].base_offset)
    log.detach([segment])
    log.vfs.remove(segment.ref.path)
    assert begun + taken(records, 300) == whole


def test_a_segment_that_another_takes_the_name_of_is_sent_to_its_end() -> None:
    """As the cleaner does it."""
    log, _ = filled()
    segment = log.segments[0]
    whole = log.read(0, EVERYTHING)
    records = promised(log)
    begun = records.take(300)
    log.detach([segment])
    other = log.vfs.open("/data/other", write=True, create=True)
    other.pwrite([bytes(len(whole))], 0)
    log.vfs.rename("/data/other", segment.ref.path)
    assert begun + taken(records, 300) == whole


def test_a_log_that_is_truncated_gives_no_bytes_of_its_new_records() -> None:
    log, whole = filled(ONE_SEGMENT)
    records = promised(log)
    assert records.take(len(whole[0])) == whole[0]
    log.truncate(6)
    while log.log_end < 36:
        append(log, make_batch(3, size=120, fill=99))
    with pytest.raises(StorageError, match="truncated"):
        records.take(10)


def test_a_log_that_begins_anew_gives_nothing_of_what_it_was() -> None:
    log, _ = filled(ONE_SEGMENT)
    records = promised(log)
    log.restart_at(100, NOW_MS)
    with pytest.raises(StorageError, match="truncated"):
        records.take(10)


def test_after_a_failed_step_the_next_reader_gets_the_error() -> None:
    """Otherwise its connection would break each time, and nobody would learn why."""
    disk = FaultyDisk(MemoryDisk())
    log = open_small(disk, replace(SMALL, segment_bytes=1_000_000)).create(P, now_ms=NOW_MS)
    for fill in range(5):
        append(log, make_batch(3, size=120, fill=fill))
    records = promised(log)
    rule = disk.fail("read", path="*.log", error=errno.EIO)
    with pytest.raises(StorageError, match="cannot read"):
        records.take(10)
    rule.cancel()
    assert isinstance(log.read_ahead(0, EVERYTHING, AHEAD), bytes)


def test_a_file_that_is_shorter_than_it_was_is_an_error() -> None:
    log, _ = filled(ONE_SEGMENT)
    records = promised(log)
    records.take(50)
    log.segments.active.file().truncate(100)
    with pytest.raises(StorageError, match=r"has 50 bytes at 50, expected 100"):
        records.take(100)
