"""Splits a range of offsets into chunks, newest first, and leaves out what the index rules out.

The first chunks are small, so that the newest results come at once; later ones are larger, because each costs a
listing of the directory. A chunk is a range of offsets and not of positions: if the log is compacted meanwhile, it has
the same records, or fewer.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

from penstock.arrow.scan.log_dirs import LogLocation
from penstock.arrow.scan.log_files import (
    ATTEMPTS_MAX,
    IndexPoint,
    LogView,
    data_loss,
    list_segments,
    load_indexes,
)
from penstock.arrow.scan.task_ranges import SizedRange
from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.search.gram_index import may_contain
from penstock.search.query import Chunk, PartitionPlan, SearchQuery, SearchSpan
from penstock.vfs import Vfs

FIRST_BYTES: Final = 1 << 20
CHUNK_BYTES_MAX: Final = 32 << 20
WHERE_BYTES_MAX: Final = 4 << 20
"""An expression takes some 10 us for each record: so much takes about as long as `CHUNK_BYTES_MAX` without one."""


def location_of(span: SearchSpan) -> LogLocation:
    return LogLocation(TopicPartition(span.topic, span.partition), span.directory, span.log_start)


def plan(vfs: Vfs, query: SearchQuery, span: SearchSpan) -> PartitionPlan:
    if span.start >= span.stop:
        return PartitionPlan(span.partition, ())
    try:
        for _ in range(ATTEMPTS_MAX):
            try:
                return _plan(vfs, query, span)
            except FileNotFoundError:
                continue  # a segment was deleted or compacted after it was listed
        raise data_loss(location_of(span), "its files disappeared after they were listed")
    except (KafkaError, OSError) as error:
        return PartitionPlan(span.partition, (), problem=str(error))


def _plan(vfs: Vfs, query: SearchQuery, span: SearchSpan) -> PartitionPlan:
    location = location_of(span)
    segments = list_segments(vfs, location)
    load_indexes(segments.active)
    base = segments.active.base_offset
    tail = tuple(IndexPoint(last_offset, base, position) for last_offset, position in span.points)
    start = max(span.start, segments[0].base_offset)
    if start >= span.stop:
        return PartitionPlan(span.partition, ())
    view = LogView(location, segments, span.log_start, max(span.stop, base), tail)
    sized = SizedRange(vfs, view, start, span.stop)
    largest = WHERE_BYTES_MAX if query.where is not None else CHUNK_BYTES_MAX
    steps = (min(FIRST_BYTES << index, largest) for index in count())
    ranges = _candidates(vfs, query, view, start, span.stop)
    chunks = tuple(
        chunk
        for first, stop in reversed(ranges)
        for chunk in _chunks(span.partition, sized, first, stop, steps)
    )
    skipped = sized.height(span.stop) - sized.height(start)
    skipped -= sum(sized.height(stop) - sized.height(first) for first, stop in ranges)
    return PartitionPlan(span.partition, chunks, round(skipped))


def _chunks(
    partition: int, sized: SizedRange, first: Offset, stop: Offset, steps: Iterator[int]
) -> Iterator[Chunk]:
    """Cut a range into chunks of about these sizes, from its end on."""
    while stop > first:
        cut, step = first, next(steps)
        wanted = sized.height(stop) - step
        if wanted - sized.height(first) > step / 2:
            cut = sized.offset_at(wanted)
            point = sized.point_before(cut)
            if point is not None and wanted - sized.height(point.last_offset) < step / 2:
                cut = point.last_offset + 1  # so that the reader need not look for its start
            cut = min(max(cut, first), stop - 1)
        point = sized.point_before(cut)
        size = max(int(sized.height(stop) - sized.height(cut)), 1)
        yield Chunk(partition, cut, stop, size, None if point is None else point[:3])
        stop = cut


def _candidates(
    vfs: Vfs, query: SearchQuery, view: LogView, start: Offset, stop: Offset
) -> list[tuple[Offset, Offset]]:
    """The ranges of offsets that may have matches, in order; adjacent ones are joined."""
    found: list[tuple[Offset, Offset]] = []
    for segment, end in view.segments_with_ends():
        if end <= start or segment.base_offset >= stop:
            continue
        ranges = None
        if query.contains is not None and segment is not view.segments.active:
            ranges = may_contain(vfs, view.location.directory, segment.base_offset, query.contains)
        for first, last in [(segment.base_offset, end)] if ranges is None else ranges:
            low, high = max(first, start), min(last, stop)
            if low < high:
                if found and found[-1][1] == low:
                    found[-1] = (found[-1][0], high)
                else:
                    found.append((low, high))
    return found
