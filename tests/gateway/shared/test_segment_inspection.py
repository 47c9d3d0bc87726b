"""What is shown of a segment equals what a scan of the log finds, for logs of any shape."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.shared.test_explorer import ALL, SESSION, run
from tests.nodes import StillNode
from tests.storage.housekeeping import compact
from tests.storage.test_compaction import open_table
from tests.storage.world import NOW_MS, P, append, make_batch, open_small

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.gateway.http.explorer import view_anywhere
from penstock.gateway.shared.controller_call import decide
from penstock.gateway.shared.segment_inspection import (
    DECODED_BYTES_MAX,
    SCANNED_MAX,
    BatchPage,
    Probe,
    batch_page,
    index_view,
    inspect_batches,
    lookup_offset,
    lookup_time,
)
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.records import Codec, RecordBatch, build_batch, end_txn_marker
from penstock.replica import Partition
from penstock.storage import Log
from penstock.storage.scan import scan_batches
from penstock.vfs import MemoryDisk


class Appended(NamedTuple):
    records: int
    size: int
    timestamp: int
    is_transactional: bool = False


BATCHES = st.lists(
    st.builds(
        Appended,
        st.integers(1, 9),
        st.integers(0, 300),
        st.integers(0, 50).map(lambda each: NOW_MS + each * 100),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


def written(batches: list[Appended]) -> Log:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    sequence = 0
    for each in batches:
        producer = (7, 0, sequence) if each.is_transactional else None
        append(
            log,
            make_batch(
                each.records,
                size=each.size,
                timestamp=each.timestamp,
                producer=producer,
                transactional=each.is_transactional,
            ),
        )
        if each.is_transactional:
            sequence += each.records
            append(log, bytearray(end_txn_marker(7, 0, True, 0, NOW_MS)), marker=True)
    return log


def pages(log: Log, limit: int) -> list[BatchPage]:
    """All batches of a log, page after page and segment after segment."""
    found, offset = [], log.segments[0].base_offset
    while offset < log.log_end:
        page = batch_page(log.segments, offset, limit)
        found.append(page)
        offset = page.end_offset if page.next_offset is None else page.next_offset
    return found


@settings(max_examples=40)
@given(BATCHES, st.integers(1, 7))
def test_pages_of_batches_are_what_a_scan_finds(batches: list[Appended], limit: int) -> None:
    log = written(batches)
    shown = [(page.segment, each) for page in pages(log, limit) for each in page.batches]
    scanned = [
        (segment.base_offset, position, RecordBatch.parse(bytes(batch.view)))
        for segment in log.segments
        for position, batch in scan_batches(segment.file(), 0, segment.size)
    ]
    assert [
        (
            segment,
            each.position,
            each.size_bytes,
            each.base_offset,
            each.last_offset,
            each.records,
            each.max_timestamp,
            each.base_timestamp,
            each.producer_id,
            each.base_sequence,
            each.is_transactional,
            each.is_control,
            each.leader_epoch,
        )
        for segment, each in shown
    ] == [
        (
            segment,
            position,
            batch.size,
            batch.base_offset,
            batch.last_offset,
            batch.count,
            batch.max_timestamp,
            batch.base_timestamp,
            batch.producer_id if batch.has_producer_id else None,
            batch.base_sequence if batch.base_sequence >= 0 else None,
            batch.is_transactional,
            batch.is_control,
            batch.leader_epoch,
        )
        for segment, position, batch in scanned
    ]


@settings(max_examples=40)
@given(BATCHES, st.data())
def test_an_offset_is_found_where_the_log_finds_it(batches: list[Appended], data: st.DataObject) -> None:
    log = written(batches)
    offset = data.draw(st.integers(0, log.log_end - 1))
    shown = lookup_offset(log.segments, offset)
    found = log.segments.find(offset)
    assert found is not None
    segment, spot = found
    assert (shown.segment, shown.segment_bytes) == (segment.base_offset, segment.size)
    assert shown.batch is not None
    assert (shown.batch.position, shown.batch.size_bytes) == (spot.position, spot.size)
    assert shown.record is not None
    assert shown.record.offset == offset
    _check_index_search(shown.index_probes, [tuple(each) for each in segment.index.entries()], offset)
    entry = segment.index.lookup(offset)
    assert shown.scan_from == entry.position
    assert (shown.index_entry is None) == (entry.position == 0)
    # The scan begins at the entry, has no gap, and ends with the batch.
    ends = [shown.scan_from, *(each.position + each.size_bytes for each in shown.scanned)]
    assert [each.position for each in shown.scanned] == ends[:-1]
    assert [each.is_found for each in shown.scanned] == [False] * (len(shown.scanned) - 1) + [True]
    assert shown.scanned_bytes == ends[-1] - shown.scan_from


def _check_index_search(probes: list[Probe], entries: list[tuple[int, ...]], key: int) -> None:
    """Each probe is the entry in the middle; together they leave the last entry that is not above the key."""
    low, high = 0, len(entries) - 1
    for each in probes:
        assert (each.low, each.high, each.entry) == (low, high, (low + high) // 2)
        assert entries[each.entry] == (each.key, each.value)
        if each.is_above:
            high = (low + high) // 2 - 1
        else:
            low = (low + high) // 2 + 1
    assert low > high
    assert all(each[0] <= key for each in entries[:low])
    assert all(each[0] > key for each in entries[low:])


@settings(max_examples=40)
@given(BATCHES, st.integers(-100, 5_200))
def test_a_time_is_found_where_the_log_finds_it(batches: list[Appended], after_ms: int) -> None:
    log = written(batches)
    time = NOW_MS + after_ms
    shown = lookup_time(log.segments, time, log.log_start)
    expected = log.segments.find_timestamp(time, log.log_start)
    if expected is None:
        assert shown.record is None
        assert shown.segment is None
        return
    assert shown.record is not None
    assert (shown.record.offset, shown.record.timestamp) == (expected.offset, expected.timestamp)
    segment = log.segments[log.segments.index_of(expected.offset)]
    _check_index_search(shown.time_probes, [tuple(each) for each in segment.time_index.entries()], time)
    entry = segment.time_index.lookup(time)
    assert (shown.time_entry is None) == (entry is None)
    if entry is not None and shown.time_entry is not None:
        assert (shown.time_entry.timestamp, shown.time_entry.offset) == entry


@settings(max_examples=40)
@given(BATCHES, st.integers(1, 5), st.data())
def test_index_entries_around_an_offset_are_those_of_the_index(
    batches: list[Appended], limit: int, data: st.DataObject
) -> None:
    log = written(batches)
    offset = data.draw(st.integers(0, log.log_end))
    segment = log.segments[log.segments.index_of(offset)]
    shown = index_view(log.segments, offset, limit)
    entries, time_entries = segment.index.entries(), segment.time_index.entries()
    assert (shown.segment, shown.entries, shown.time_entries) == (
        segment.base_offset,
        len(entries),
        len(time_entries),
    )
    assert [(each.offset, each.position) for each in shown.offset_index] == entries[
        shown.first_entry : shown.first_entry + limit
    ]
    assert [(each.timestamp, each.offset) for each in shown.time_index] == time_entries[
        shown.first_time_entry : shown.first_time_entry + limit
    ]
    floor = sum(each.offset <= offset for each in entries) - 1
    if floor >= 0:
        assert entries[floor] in [(each.offset, each.position) for each in shown.offset_index]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 5), min_size=20, max_size=80), st.randoms(use_true_random=False))
def test_a_compacted_log_is_shown_as_it_is(keys: list[int], rng: Random) -> None:
    _, log = open_table(MemoryDisk(), segment_bytes=1_000)
    for key in keys:
        log.append(
            build_batch([(b"%d" % key, bytes(rng.randrange(60)), NOW_MS)] * 2), leader_epoch=0, now_ms=NOW_MS
        )
    done = compact(log, NOW_MS, log.log_end)
    if done is not None:
        done[1].run()
    left = {record.offset for batch in log.batches() for record in batch.records()}
    for offset in range(log.segments[0].base_offset, log.log_end):
        shown = lookup_offset(log.segments, offset)
        if shown.record is not None:
            assert shown.record.offset == min(each for each in left if each >= offset)
            assert ("not in the log any more" in shown.message) == (offset not in left)
        else:
            assert "compaction has removed the record" in shown.message
            assert offset not in left
    assert sum(each.records for page in pages(log, 3) for each in page.batches) == len(left)


def test_at_the_log_end_there_is_no_batch_and_no_record() -> None:
    log = written([Appended(3, 10, NOW_MS)])
    assert batch_page(log.segments, 3, 10).batches == []
    found = lookup_offset(log.segments, 3)
    assert (found.segment, found.record) == (None, None)
    assert found.message == "Offset 3 is the log end: the next record will have it."


def test_a_long_scan_is_listed_in_part_and_counted_whole() -> None:
    disk = MemoryDisk()
    _, log = open_table(disk, index_interval_bytes=1 << 30)
    for _ in range(SCANNED_MAX + 20):
        log.append(build_batch([(b"k", b"v", NOW_MS)]), leader_epoch=0, now_ms=NOW_MS)
    shown = lookup_offset(log.segments, SCANNED_MAX + 15)
    assert shown.scanned_batches == SCANNED_MAX + 16
    assert len(shown.scanned) == SCANNED_MAX + 1
    assert shown.scanned[-1].is_found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_batch_is_not_decoded(codec: Codec) -> None:
    _, log = open_table(MemoryDisk(), max_message_bytes=1 << 30)
    value = bytes(DECODED_BYTES_MAX)
    log.append(build_batch([(b"k", value, NOW_MS)], codec=codec), leader_epoch=0, now_ms=NOW_MS)
    shown = lookup_offset(log.segments, 0)
    assert shown.record is None
    assert shown.batch is not None
    assert "not decoded here" in shown.message


def test_lost_indexes_are_rebuilt_before_they_are_shown() -> None:
    log = written([Appended(3, 300, NOW_MS)] * 20)
    segment = log.segments[0]
    assert not segment.index.ref.path.startswith(log.segments.active.index.ref.path)
    for ref in (segment.index.ref, segment.time_index.ref):
        log.vfs.remove(ref.path)
        segment._files.forget(ref)
    assert index_view(log.segments, 0, 5).entries > 0
    shown = lookup_offset(log.segments, segment.next_offset - 1)
    assert shown.record is not None


def test_an_offset_outside_of_the_log_is_refused_before_a_file_is_read() -> None:
    node = StillNode()
    context = node.node.context
    partition = _partition_of(node, "orders", {})
    for offset in (-1, 1):
        with pytest.raises(KafkaError, match=f"orders-0 has offsets 0 to 0, not {offset}") as refused:
            run(node, inspect_batches(context, partition, offset, 10))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def _partition_of(node: StillNode, topic: str, configs: dict[str, str]) -> Partition:
    run(node, decide(node.node.context, CreateTopics((NewTopic(topic, 1, configs=configs),))))
    partitions: dict[TopicPartition, Partition] = node.node.context.replicas.partitions
    return partitions[TopicPartition(topic, 0)]


def test_records_of_compacted_segments_are_counted() -> None:
    node = StillNode()
    partition = _partition_of(node, "table", {"cleanup.policy": "compact", "segment.bytes": "1000"})
    log = partition.log
    for number in range(60):
        log.append(
            build_batch([(b"%d" % (number % 7), bytes(40), NOW_MS)] * 3),
            leader_epoch=partition.leader_epoch,
            now_ms=NOW_MS,
        )
    done = compact(log, NOW_MS, log.log_end)
    assert done is not None
    done[1].run()
    shown = run(node, view_anywhere(node.node.context, SESSION, "table", ALL)).partitions[0].segments
    scanned = [
        sum(batch.count for _, batch in scan_batches(each.file(), 0, each.size)) for each in log.segments
    ]
    assert [each.records for each in shown] == scanned
    assert [each.is_compacted for each in shown] == [True] * (len(shown) - 1) + [False]
    assert scanned[0] < shown[0].end_offset - shown[0].base_offset
