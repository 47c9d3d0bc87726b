"""Reading: by offset within bounds, by time, and what the append made of a batch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.world import (
    EVERYTHING,
    NOW_MS,
    SMALL,
    P,
    append,
    base_of,
    batches_of,
    check_timestamps,
    end_of,
    make_batch,
    open_small,
)

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.settings import LogSettings
from penstock.records import RecordBatch, build_batch, end_txn_marker
from penstock.storage.errors import OffsetOutOfRange
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.vfs import MemoryDisk

ONE_SEGMENT = replace(SMALL, segment_bytes=1_000_000)


def filled(
    settings: LogSettings = SMALL, batches: int = 12, *, reopened: bool = False
) -> tuple[Log, list[bytes]]:
    """Batches of three records each, and in several segments where they are small."""
    disk = MemoryDisk()
    directory = open_small(disk, settings)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(3, size=120, fill=n)) for n in range(batches)]
    if reopened:
        directory.close()
        log = open_small(disk, settings).logs[P]
    return log, whole


# -- bounds -------------------------------------------------------------------------------------------


def test_an_offset_within_a_batch_gives_the_whole_batch() -> None:
    log, whole = filled()
    for offset in (3, 4, 5):
        assert log.read(offset, 1) == whole[1]


def test_the_first_batch_comes_whole_however_small_the_limit() -> None:
    log, whole = filled()
    assert log.read(0, 0) == whole[0]
    assert log.read(0, len(whole[0]) - 1) == whole[0]
    assert log.read(0, len(whole[0]) - 1, whole_first=False) == b""
    assert log.read(0, len(whole[0]), whole_first=False) == whole[0]


def test_the_last_batch_may_be_cut_by_the_limit() -> None:
    """As a Kafka fetch does: consumers ignore a partial batch at the end."""
    log, whole = filled(ONE_SEGMENT)
    assert log.read(0, len(whole[0]) + 10) == (whole[0] + whole[1])[: len(whole[0]) + 10]


def test_the_log_end_is_readable_and_empty_and_beyond_it_is_out_of_range() -> None:
    log, _ = filled()
    assert log.read(log.log_end, EVERYTHING) == b""
    for offset in (-1, log.log_end + 1):
        with pytest.raises(OffsetOutOfRange, match=f"not {offset}") as caught:
            log.read(offset, EVERYTHING)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_is_out_of_range() -> None:
    log, whole = filled()
    log.advance_start(4)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 1)
    assert log.read(4, 1) == whole[1], "the batch comes whole, its first records too"


@pytest.mark.parametrize("reopened", [False, True], ids=["running", "reopened"])
@pytest.mark.parametrize("settings", [SMALL, ONE_SEGMENT], ids=["segments", "one segment"])
def test_nothing_comes_from_behind_a_visible_offset(settings: LogSettings, reopened: bool) -> None:
    """Wherever it lies: at a batch's border, within a batch, at a segment's border, in a sealed segment."""
    log, whole = filled(settings, reopened=reopened)
    for visible in range(log.log_end + 3):
        offset, found = 0, b""
        while data := log.read(offset, EVERYTHING, visible=visible):
            found += data
            offset = end_of(data[-len(whole[0]) :])
        assert found == b"".join(data for data in whole if end_of(data) <= visible), f"visible {visible}"


def test_a_read_stays_within_one_segment() -> None:
    log, whole = filled()
    data = log.read(0, EVERYTHING)
    assert data == b"".join(each for each in whole if base_of(each) < log.segments[1].base_offset)


def test_batches_staged_in_one_turn_respect_the_segment_size() -> None:
    """Even the first ones, into an empty segment."""
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    for _ in range(20):
        log.stage(make_batch(1, size=500), leader_epoch=0, now_ms=NOW_MS)
    log.write_staged()
    assert log.log_end == 20
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    for _ in range(3):
        append(log, make_batch(1, size=3000))
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_segment_is_rolled_by_the_age_of_its_records() -> None:
    log = open_small(MemoryDisk(), replace(ONE_SEGMENT, segment_ms=1000)).create(P, now_ms=NOW_MS)
    for late in (0, 1000, 1001, 1500, 2002):
        append(log, make_batch(1, timestamp=NOW_MS + late))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    settings = replace(ONE_SEGMENT, segment_index_bytes=24, index_interval_bytes=0)
    log = open_small(MemoryDisk(), settings).create(P, now_ms=NOW_MS)
    for n in range(12):
        append(log, make_batch(1, timestamp=NOW_MS + n))
    assert len(log.segments) > 2
    assert all(segment.time_index.size_bytes() <= 36 for segment in log.segments)


# -- by time ------------------------------------------------------------------------------------------

times = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=25)


@given(times=times, start=st.integers(0, 20), reopened=st.booleans())
def test_a_timestamp_is_found_as_by_a_walk_however_out_of_order(
    times: list[list[int]], start: int, reopened: bool
) -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    whole = [
        append(log, build_batch([(b"k", bytes(90), NOW_MS + late) for late in batch])) for batch in times
    ]
    if reopened:
        directory.close()
        log = open_small(disk).logs[P]
    log.advance_start(min(start, log.log_end))
    check_timestamps(log, whole)
    records = [(r.timestamp, r.offset) for data in whole for r in RecordBatch.parse(data).records()]
    youngest = max(timestamp for timestamp, _ in records)
    latest = log.reader.latest_timestamp()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == next(each for each in records if each[0] == youngest)


def test_without_timestamps_none_is_found() -> None:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    for _ in range(30):
        append(log, make_batch(1, size=300, timestamp=-1, step=0))
    assert log.reader.offset_for_timestamp(0) is None
    assert log.reader.latest_timestamp() is None


def test_an_empty_log_has_no_times() -> None:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    assert log.reader.offset_for_timestamp(0) is None
    assert log.reader.latest_timestamp() is None
    assert log.aborted(0, 10) == []
    assert log.read(0, EVERYTHING) == b""


# -- what an append does ------------------------------------------------------------------------------


def test_an_append_gives_offset_and_leader_epoch_and_leaves_the_rest() -> None:
    log, _ = filled()
    sent = bytes(make_batch(2))
    stored = RecordBatch.parse(append(log, sent, leader_epoch=7))
    assert (stored.base_offset, stored.leader_epoch) == (36, 7)
    assert stored.crc_valid()
    assert bytes(stored.view[16:]) == sent[16:]
    assert log.epochs.latest == 7


def test_with_log_append_time_the_broker_stamps() -> None:
    settings = replace(SMALL, message_timestamp_type="LogAppendTime")
    log = open_small(MemoryDisk(), settings).create(P, now_ms=NOW_MS)
    appended = log.append(make_batch(3, timestamp=5), leader_epoch=0, now_ms=NOW_MS + 9)
    assert appended.append_time == NOW_MS + 9
    (stored,) = (RecordBatch.parse(data) for data in batches_of(log))
    assert stored.crc_valid()
    assert {record.timestamp for record in stored.records()} == {NOW_MS + 9}
    found = log.reader.offset_for_timestamp(NOW_MS + 9)
    assert found is not None
    assert found.offset == 0


def test_a_retry_is_answered_with_its_first_offset_and_appended_once() -> None:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    data = bytes(make_batch(2, producer=(7, 0, 0)))
    first = log.append(data, leader_epoch=0, now_ms=NOW_MS)
    again = log.append(data, leader_epoch=0, now_ms=NOW_MS)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.log_end == 2


def test_a_bad_batch_is_refused_and_leaves_everything_as_it_was() -> None:
    log, whole = filled()
    for data, code in (
        (bytes(make_batch(1)) + b"x", ErrorCode.INVALID_RECORD),
        (bytes(make_batch(1))[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (end_txn_marker(1, 0, True, 0, NOW_MS), ErrorCode.INVALID_RECORD),
        (bytes(make_batch(1, size=6000)), ErrorCode.MESSAGE_TOO_LARGE),
    ):
        with pytest.raises(KafkaError) as caught:
            log.append(data, leader_epoch=0, now_ms=NOW_MS)
        assert caught.value.code is code
    assert batches_of(log) == whole


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_began() -> None:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    append(log, make_batch(2))
    append(log, make_batch(1, producer=(7, 0, 0), transactional=True))
    append(log, make_batch(1, producer=(8, 0, 0), transactional=True))
    assert log.last_stable == 2
    log.append(
        end_txn_marker(7, 0, False, 0, NOW_MS), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
    )
    assert log.last_stable == 3
    assert [each[:3] for each in log.aborted(0, 5)] == [(7, 2, 4)]
    log.append(
        end_txn_marker(8, 0, True, 0, NOW_MS), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
    )
    assert log.last_stable == log.log_end


def test_replicated_batches_keep_the_leaders_offsets_and_gaps() -> None:
    leader, whole = filled()
    follower = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    follower.append_replicated(whole[0] + whole[1], now_ms=NOW_MS)
    follower.append_replicated(whole[5], now_ms=NOW_MS)
    assert batches_of(follower) == [whole[0], whole[1], whole[5]]
    assert follower.log_end == end_of(whole[5])
    assert follower.read(8, 1) == whole[5], "an offset in a gap leads to what comes next"
    with pytest.raises(KafkaError, match="expected 18 or more"):
        follower.append_replicated(whole[2], now_ms=NOW_MS)
    with pytest.raises(KafkaError):
        follower.append_replicated(whole[6][:-1] + b"x", now_ms=NOW_MS)
    assert follower.log_end == 18
    assert leader.log_end == 36


# -- cutting ------------------------------------------------------------------------------------------


def test_a_truncation_takes_batches_whole() -> None:
    log, whole = filled()
    assert log.truncate(100) == 36
    assert log.truncate(34) == 33
    assert batches_of(log) == whole[:11]
    assert log.truncate(30) == 30
    assert batches_of(log) == whole[:10]
    assert log.truncate(0) == 0
    assert batches_of(log) == []
    assert base_of(append(log, make_batch(1))) == 0


def test_a_log_can_begin_anew_anywhere() -> None:
    log, _ = filled()
    log.restart_at(500, NOW_MS)
    assert (log.log_start, log.log_end, log.flushed) == (500, 500, 500)
    assert not log.producers.by_id
    assert base_of(append(log, make_batch(1))) == 500


def test_the_log_start_moves_only_ahead_and_within_the_log() -> None:
    log, _ = filled()
    log.advance_start(10)
    log.advance_start(5)
    assert log.log_start == 10
    with pytest.raises(OffsetOutOfRange):
        log.advance_start(log.log_end + 1)


def test_a_retry_is_told_the_append_time_of_its_first_copy() -> None:
    settings = replace(SMALL, message_timestamp_type="LogAppendTime")
    log = open_small(MemoryDisk(), settings).create(P, now_ms=NOW_MS)
    data = bytes(make_batch(2, producer=(7, 0, 0)))
    first = log.append(data, leader_epoch=0, now_ms=NOW_MS)

    again = log.append(data, leader_epoch=0, now_ms=NOW_MS + 1000)

    assert (first.append_time, again.append_time) == (NOW_MS, NOW_MS)
    assert (again.base_offset, again.is_duplicate) == (first.base_offset, True)
