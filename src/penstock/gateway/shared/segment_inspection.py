"""Inspects one segment: its batches, its index entries, and how a record is found in it.

A lookup repeats what the log does itself. `SegmentList.find` and `find_timestamp` say where the record is. The steps
are those that lead there: the binary search in the index, the batch headers that are read from its position on, the
record in the batch. Everything reads files, so it runs on a thread; each call reads a bounded number of entries and
headers.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.steps import Steps, beside
from penstock.gateway.shared.log_inspection import OffsetIndexEntry, TimeIndexEntry, reading_error
from penstock.handlers.support.context import Context
from penstock.records import HEADER_BYTES, CorruptBatch, Record, RecordBatch
from penstock.records.batch import DELETE_HORIZON_MASK, LOG_APPEND_TIME_MASK
from penstock.replica import Partition
from penstock.storage.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from penstock.storage.scan import BatchPosition, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList

SCANNED_MAX: Final = 100
"""Batches of a scan that are listed; further ones are counted."""

DECODED_BYTES_MAX: Final = 1 << 20
"""The largest batch that is decoded to show one of its records; also the limit of what it unpacks to."""


class BatchView(Struct, rename="camel"):
    base_offset: int
    last_offset: int
    """Offset of the last record that the producer put into it. Compaction keeps it."""
    position: int
    """Where it begins in the segment's file, in bytes."""
    size_bytes: int
    records: int
    codec: str
    """`none`, `gzip`, `snappy`, `lz4` or `zstd`."""
    leader_epoch: int
    base_timestamp: int | None
    """null if compaction has put the time there after which tombstones may be deleted."""
    max_timestamp: int
    timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    producer_id: int | None
    """null without an idempotent producer."""
    producer_epoch: int | None
    base_sequence: int | None
    is_transactional: bool
    is_control: bool
    """It holds a transaction marker."""
    delete_horizon: int | None
    """The time after which compaction may delete its tombstones."""


class BatchPage(Struct, rename="camel"):
    segment: int
    """Base offset of the segment."""
    end_offset: int
    """The base offset of the next segment, or the log end offset."""
    size_bytes: int
    batches: list[BatchView]
    next_offset: int | None
    """The `offset` of the next page; null at the end of the segment."""


class IndexView(Struct, rename="camel"):
    segment: int
    """Base offset of the segment."""
    entries: int
    """Number of entries of the offset index."""
    first_entry: int
    """Number of the first entry shown, from 0."""
    offset_index: list[OffsetIndexEntry]
    time_entries: int
    first_time_entry: int
    time_index: list[TimeIndexEntry]


class Probe(Struct, rename="camel"):
    """A step of a binary search."""

    low: int
    high: int
    """The entry is one of these, or what is sought is before all of them."""
    entry: int
    """The entry in the middle."""
    key: int
    """Its offset, or its timestamp in a time index."""
    value: int
    """Its position, or its offset in a time index."""
    is_above: bool
    """Whether its key is above the sought one: the search continues before it, otherwise after it."""


class ScannedBatch(Struct, rename="camel"):
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    is_found: bool


class FoundRecord(Struct, rename="camel"):
    offset: int
    timestamp: int
    number: int
    """Its place in the batch, from 0."""
    key_bytes: int | None
    """null for a null key."""
    value_bytes: int | None


class Lookup(Struct, rename="camel"):
    """How the log finds the first record at or after an offset or a time."""

    sought: int
    by: str
    """`offset` or `time`."""
    segments: int
    """Number of segments of the log."""
    message: str
    """What was found, in a sentence."""
    segment: int | None = None
    """Base offset of the segment. This and all that follows is null or empty if there is no such record."""
    segment_number: int | None = None
    """From 0."""
    segment_bytes: int | None = None
    time_probes: list[Probe] = []
    """The search in the time index, for a time."""
    time_entry: TimeIndexEntry | None = None
    """The last entry that is not after the time; null if the time is before all of them."""
    index_probes: list[Probe] = []
    """The search in the offset index."""
    index_entry: OffsetIndexEntry | None = None
    """The last entry that is not above the offset; null if the offset is before all of them: the scan then starts with
    the file."""
    scan_from: int | None = None
    """Position at which the scan of batch headers starts."""
    scanned: list[ScannedBatch] = []
    """The batches whose headers are read, the first 100 of them and the one with the record."""
    scanned_batches: int = 0
    scanned_bytes: int = 0
    """Bytes from the start of the scan to the end of the batch."""
    batch: BatchView | None = None
    record: FoundRecord | None = None
    """null if the batch is larger than 1 MB, or unpacks to more."""


# -- entry points, on the loop ----------------------------------------------------------------------------


def inspect_batches(context: Context, partition: Partition, offset: Offset, limit: int) -> Steps[BatchPage]:
    """Batches from the one that holds an offset on, up to the end of its segment."""
    look = partition.log.reader.look
    _check_range(partition, offset)
    page: BatchPage = yield beside(
        context.world, lambda: look(lambda segments: batch_page(segments, offset, limit)), reading_error
    )
    return page


def inspect_indexes(context: Context, partition: Partition, offset: Offset, limit: int) -> Steps[IndexView]:
    """Entries of both indexes around an offset."""
    look = partition.log.reader.look
    _check_range(partition, offset)
    view: IndexView = yield beside(
        context.world, lambda: look(lambda segments: index_view(segments, offset, limit)), reading_error
    )
    return view


def inspect_lookup(
    context: Context, partition: Partition, offset: Offset, time: TimestampMs | None = None
) -> Steps[Lookup]:
    """How a record is found, by offset or by time."""
    log = partition.log
    look, log_start = log.reader.look, log.log_start
    if time is None:
        _check_range(partition, offset)

    def work(segments: SegmentList) -> Lookup:
        if time is None:
            return lookup_offset(segments, offset)
        return lookup_time(segments, time, log_start)

    lookup: Lookup = yield beside(context.world, lambda: look(work), reading_error)
    return lookup


def _check_range(partition: Partition, offset: Offset) -> None:
    log = partition.log
    first = log.segments[0].base_offset
    if not first <= offset <= log.log_end:
        raise KafkaError(
            f"{partition.name} has offsets {first} to {log.log_end}, not {offset}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )


# -- batches and index entries, on a thread ---------------------------------------------------------------


def batch_page(segments: SegmentList, offset: Offset, limit: int) -> BatchPage:
    """As `inspect_batches`."""
    found = segments.find(offset)
    if found is None:
        active = segments.active
        return BatchPage(active.base_offset, active.next_offset, active.size, [], None)
    segment, first = found
    file, size = segment.file(), segment.size
    end = segments.end_of(segments.index_of(segment.base_offset))
    batches = [_batch(segment, spot) for spot in islice(walk_headers(file, first.position, size), limit)]
    last = batches[-1]
    is_more = last.position + last.size_bytes < size
    return BatchPage(segment.base_offset, end, size, batches, last.last_offset + 1 if is_more else None)


def _batch(segment: Segment, spot: BatchPosition) -> BatchView:
    header = bytearray(segment.file().pread(HEADER_BYTES, spot.position))
    # The header alone is parsed, as a batch without records.
    header[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    batch = RecordBatch.parse(header)
    attributes = batch.attributes
    has_horizon = bool(attributes & DELETE_HORIZON_MASK)
    return BatchView(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        position=spot.position,
        size_bytes=spot.size,
        records=batch.count,
        codec=batch.codec.name.lower(),
        leader_epoch=batch.leader_epoch,
        base_timestamp=None if has_horizon else batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        timestamp_type="LogAppendTime" if attributes & LOG_APPEND_TIME_MASK else "CreateTime",
        producer_id=batch.producer_id if batch.has_producer_id else None,
        producer_epoch=batch.producer_epoch if batch.has_producer_id else None,
        base_sequence=batch.base_sequence if batch.base_sequence >= 0 else None,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon=batch.base_timestamp if has_horizon else None,
    )


def index_view(segments: SegmentList, offset: Offset, limit: int) -> IndexView:
    """As `inspect_indexes`."""
    segment = segments[segments.index_of(offset)]
    segment.index_bytes()  # which rebuilds lost indexes
    index, time_index = segment.index, segment.time_index
    entries = index.count
    first = _window(_floor(_probes(index, offset)), entries, limit)
    # Timestamps and offsets of the time index increase together, so its entries are searched by offset.
    time_entries = time_index.count
    near = _floor(_probes(time_index, offset, field=1))
    first_time = _window(near, time_entries, limit)
    return IndexView(
        segment.base_offset,
        entries,
        first,
        [OffsetIndexEntry(*each) for each in index.window(first, limit)],
        time_entries,
        first_time,
        [TimeIndexEntry(*each) for each in time_index.window(first_time, limit)],
    )


def _window(middle: int | None, count: int, limit: int) -> int:
    """The first of `limit` entries around one."""
    return max(0, min((middle or 0) - limit // 2, count - limit))


def _probes(index: OffsetIndex | TimeIndex, key: int, field: int = 0) -> list[Probe]:
    """The binary search for the last entry whose first field, or another one, is not above a key."""
    low, high = 0, index.count - 1
    probes = []
    while low <= high:
        middle = (low + high) // 2
        found = index.window(middle, 1)
        if not found:
            break  # cut off in the meantime
        entry: OffsetEntry | TimeEntry = found[0]
        is_above = entry[field] > key
        probes.append(Probe(low, high, middle, entry[0], entry[1], is_above))
        low, high = (low, middle - 1) if is_above else (middle + 1, high)
    return probes


def _floor(probes: list[Probe]) -> int | None:
    return max((each.entry for each in probes if not each.is_above), default=None)


# -- lookups, on a thread ---------------------------------------------------------------------------------


def lookup_offset(segments: SegmentList, offset: Offset) -> Lookup:
    """How the first record at or after an offset is found."""
    lookup = Lookup(
        offset, "offset", len(segments), f"Offset {offset} is the log end: the next record will have it."
    )
    found = segments.find(offset)
    if found is not None:
        segment, spot = found
        _choose(lookup, segments, segment)
        lookup.index_probes = _probes(segment.index, offset)
        _scan(lookup, segment, offset, spot)
        _find_record(lookup, segment, spot, lambda record: record.offset >= offset)
    return lookup


def lookup_time(segments: SegmentList, time: TimestampMs, log_start: Offset) -> Lookup:
    """How the first record at or after a time is found."""
    lookup = Lookup(time, "time", len(segments), "No record has this time or a later one.")
    record = segments.find_timestamp(time, log_start)
    found = None if record is None else segments.find(record.offset)
    if record is not None and found is not None:
        segment, spot = found
        _choose(lookup, segments, segment)
        lookup.time_probes = _probes(segment.time_index, time)
        floor = _floor(lookup.time_probes)
        if floor is not None:
            [entry] = segment.time_index.window(floor, 1)
            lookup.time_entry = TimeIndexEntry(*entry)
            lookup.index_probes = _probes(segment.index, entry.offset)
        # Before the first entry of the time index, the log scans the segment from its start.
        _scan(lookup, segment, segment.base_offset if floor is None else entry.offset, spot)
        _find_record(
            lookup,
            segment,
            spot,
            lambda each: each.timestamp >= time and each.offset >= log_start,
        )
    return lookup


def _choose(lookup: Lookup, segments: SegmentList, segment: Segment) -> None:
    segment.index_bytes()  # which rebuilds lost indexes
    lookup.segment = segment.base_offset
    lookup.segment_number = segments.index_of(segment.base_offset)
    lookup.segment_bytes = segment.size


def _scan(lookup: Lookup, segment: Segment, offset: Offset, found: BatchPosition) -> None:
    """The headers that are read from the index entry for an offset on, up to the batch that was found."""
    entry = segment.index.lookup(offset)
    start = entry.position
    if _floor(lookup.index_probes) is not None:
        lookup.index_entry = OffsetIndexEntry(*entry)
    lookup.scan_from = start
    lookup.scanned = list(_scanned(lookup, segment, start, found))
    lookup.scanned_bytes = found.position + found.size - start
    lookup.batch = _batch(segment, found)


def _scanned(lookup: Lookup, segment: Segment, start: int, found: BatchPosition) -> Iterator[ScannedBatch]:
    for spot in walk_headers(segment.file(), start, found.position + found.size):
        lookup.scanned_batches += 1
        is_found = spot.position == found.position
        if is_found or lookup.scanned_batches <= SCANNED_MAX:
            yield ScannedBatch(
                spot.position, spot.size, spot.base_offset, spot.last_offset, spot.max_timestamp, is_found
            )


def _find_record(
    lookup: Lookup, segment: Segment, spot: BatchPosition, is_sought: Callable[[Record], bool]
) -> None:
    place = f"the batch of offsets {spot.base_offset} to {spot.last_offset}, at position {spot.position}"
    if spot.size > DECODED_BYTES_MAX:
        lookup.message = (
            f"The record is in {place}. The batch has {spot.size} bytes, and is not decoded here."
        )
        return
    batch = RecordBatch.parse(segment.file().pread(spot.size, spot.position))
    try:
        records = enumerate(batch.records(DECODED_BYTES_MAX))
        found = next(((number, record) for number, record in records if is_sought(record)), None)
    except CorruptBatch as error:
        lookup.message = f"The record is in {place}, which is not decoded here: {error}"
        return
    if found is None:
        lookup.message = f"The sought offset belongs to {place}; compaction has removed the record."
        return
    number, record = found
    lookup.record = FoundRecord(
        record.offset,
        record.timestamp,
        number,
        None if record.key is None else len(record.key),
        None if record.value is None else len(record.value),
    )
    lookup.message = f"Offset {record.offset} is record {number + 1} of {batch.count} in {place}."
    if lookup.by == "offset" and record.offset != lookup.sought:
        lookup.message = f"Offset {lookup.sought} is not in the log any more. {lookup.message}"
