"""Reads a partition's files without owning them.

Nothing is written, locked or repaired: the owner may be running, or may have crashed. So the files may change while
they are read. The code relies on these rules:

- A log only grows at its end. An incomplete or invalid batch there, with no valid batch after it, is not part of the
  log: the log ends before it.
- A segment that is deleted or compacted is renamed, its bytes never change: a reader can finish an open file.
- A `.swap` file is a compacted segment that replaces all segments in its range, as the next start of a
  broker would do; `.cleaned` and `.deleted` files are not part of the log.
- Offsets never change. If a file has disappeared, a reader lists the directory again and continues at its offset.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from penstock.arrow.errors import DataLoss
from penstock.arrow.scan.log_dirs import LogLocation
from penstock.base.ids import Offset
from penstock.records import LOG_OVERHEAD
from penstock.records.batch import MAGIC_AT, OLD_LENGTH_MIN
from penstock.storage import names
from penstock.storage.errors import CorruptLog
from penstock.storage.findings import OFFSET_ENTRY, read_through
from penstock.storage.open_files import OpenFiles
from penstock.storage.scan import BATCH_BYTES_MAX, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.vfs import File, Vfs, read_file

ATTEMPTS_MAX: Final = 100
"""Retries after a file was renamed during the read: two are rare, 100 are an error."""

OPEN_FILES_MAX: Final = 64
"""A scan reads segments one after the other, so it needs few open files."""

INDEX_INTERVAL_BYTES: Final = 4096
"""For indexes that are rebuilt in memory: Kafka's default of `index.interval.bytes`."""

INDEX_POINT_BYTES: Final = 1 << 20
"""Minimum distance of two positions at which a segment may be split."""

Result = TypeVar("Result")


class IndexPoint(NamedTuple):
    """A known position, from an index or a scan: the batch that starts there ends at `last_offset`."""

    last_offset: Offset
    segment: Offset
    """Base offset of the segment."""
    position: int


class LogView(NamedTuple):
    """The state of a partition on which a scan is planned."""

    location: LogLocation
    segments: SegmentList
    """The size of the last segment is the end of the log."""
    log_start: Offset
    log_end: Offset
    tail: tuple[IndexPoint, ...]
    """Positions in the last segment after those in its index."""

    def segments_with_ends(self) -> Iterator[tuple[Segment, Offset]]:
        """Each segment with the first offset after it."""
        ends = [*(each.base_offset for each in self.segments[1:]), self.log_end]
        return zip(self.segments, ends, strict=True)


def data_loss(location: LogLocation, why: str) -> DataLoss:
    topic, partition = location.partition
    return DataLoss(f"topic {topic} partition {partition}: {why}, in {location.directory}")


def with_view(vfs: Vfs, location: LogLocation, work: Callable[[LogView], Result]) -> Result:
    """Read the state of a partition and call a function with it; retry if files change meanwhile."""
    for _ in range(ATTEMPTS_MAX):
        try:
            view = open_view(vfs, location)
        except FileNotFoundError:
            continue
        try:
            return work(view)
        except FileNotFoundError:
            continue
        except CorruptLog:
            # A file that was replaced by a shorter one looks damaged.
            if _sealed(list_segments(vfs, location)) == _sealed(view.segments):
                raise
    raise data_loss(location, "its files disappeared after they were listed")


def _sealed(segments: SegmentList) -> list[tuple[Offset, int]]:
    return [(each.base_offset, each.size) for each in segments[:-1]]


# -- list -------------------------------------------------------------------------------------------------


def list_segments(vfs: Vfs, location: LogLocation) -> SegmentList:
    """The current segments of a partition with their current sizes."""
    listed = _listed(vfs, location)
    in_place = {base: (size, "") for base, state, size in listed if not state}
    unfinished = min((base for base, state, _ in listed if state == names.CLEANED), default=None)
    for base, state, size in listed:
        if state == names.SWAP and (unfinished is None or base < unfinished):
            path = f"{location.directory}/{names.segment_file(base, names.LOG, state)}"
            end = max(_end_of(vfs, path, base, size), base + 1)
            in_place = {each: found for each, found in in_place.items() if not base <= each < end}
            in_place[base] = (size, state)
    bases = sorted(in_place)
    # An empty segment in the middle comes from a failed roll; the log continued in the segment before it.
    bases = [base for base in bases if in_place[base][0] or base in (bases[0], bases[-1])]
    if not bases:
        raise data_loss(location, "it has no segment")
    files = OpenFiles(vfs, OPEN_FILES_MAX, read_only=True)
    segments = []
    for base in bases:
        size, state = in_place[base]
        segments.append(
            Segment(
                files, location.directory, base, interval_bytes=INDEX_INTERVAL_BYTES, size=size, state=state
            )
        )
    return SegmentList(segments)


def _listed(vfs: Vfs, location: LogLocation) -> list[tuple[Offset, str, int]]:
    """Base offset, state and size of each `.log` file.

    A listing is not atomic: it may miss files that are renamed meanwhile. Two equal listings missed none, because a
    segment's names never return to an earlier state. Sizes are read afterwards; if a file is gone by then, all is
    listed again.
    """
    before: list[str] | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            now = sorted(each for each in os.listdir(location.directory) if names.LOG in each)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise data_loss(location, "the partition was deleted") from error
        found = _sized(vfs, location.directory, now) if now == before else None
        if found is not None:
            return found
        before = now
    raise data_loss(location, f"its files changed {ATTEMPTS_MAX} times while they were listed")


def _sized(vfs: Vfs, directory: str, listed: list[str]) -> list[tuple[Offset, str, int]] | None:
    found = []
    for name in listed:
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed.kind != names.LOG or parsed.state == names.DELETED:
            continue
        stat = vfs.stat(f"{directory}/{name}")
        if stat is None:
            return None
        found.append((parsed.base_offset, parsed.state, stat.size))
    return found


def _end_of(vfs: Vfs, path: str, base: Offset, size: int) -> Offset:
    """First offset after a segment file."""
    file = vfs.open(path)
    end = base
    try:
        for spot in walk_headers(file, 0, size):
            end = spot.last_offset + 1
    except CorruptLog:
        pass  # the reader reports it
    finally:
        file.close()
    return end


# -- log end ----------------------------------------------------------------------------------------------


def open_view(vfs: Vfs, location: LogLocation) -> LogView:
    """Read the segments and the log end of a partition. Raises FileNotFoundError if a segment disappears."""
    segments = list_segments(vfs, location)
    end, tail = _measure(segments.active, location.durable_to)
    if len(segments) > 1 and not segments.active.size:
        # A failed roll at the end of the log.
        shorter = SegmentList(segments[:-1])
        size = shorter.active.size
        end_before, tail_before = _measure(shorter.active, location.durable_to)
        if end_before > end:
            segments, end, tail = shorter, end_before, tail_before
        else:
            shorter.active.size = size
    log_start = min(max(location.log_start, segments[0].base_offset), end)
    return LogView(location, segments, log_start, end, tail)


def load_indexes(segment: Segment) -> None:
    """Load the indexes of the last segment: Kafka preallocates their files, with zeros at the end."""
    segment.index.load()
    segment.time_index.load()


def _measure(segment: Segment, durable_to: Offset) -> tuple[Offset, tuple[IndexPoint, ...]]:
    """Find the end of the last valid batch in the last segment, and set the segment's size to it.

    Damage below the recovery point is not the end of the log: it stays, and the reader reports it.
    """
    load_indexes(segment)
    size, indexed = segment.size, _last_indexed(segment)
    tail = _walk(segment, indexed)
    if indexed and not tail.whole_to:
        tail = _walk(segment, 0)
    end = tail.end
    if tail.is_damaged and end < durable_to:
        end = durable_to
    else:
        size = tail.whole_to
    segment.size, segment.next_offset = size, end
    return end, tuple(tail.points)


class _Tail(NamedTuple):
    """The result of a scan to the end of a segment."""

    end: Offset
    whole_to: int
    """Position after the last valid batch; 0 if there is none."""
    is_damaged: bool
    """Whether there are bytes after it."""
    points: list[IndexPoint]


def _walk(segment: Segment, start: int) -> _Tail:
    file, base = segment.file(), segment.base_offset
    end, whole_to, is_damaged = base, 0, False
    points: list[IndexPoint] = []
    for piece in read_through(file, start, segment.size, floor=base):
        batch = piece.batch
        is_damaged = batch is None or not piece.is_sound
        if batch is None or not piece.is_sound:
            old = old_format(file, piece.position, segment.size)
            if old is not None:
                raise CorruptLog(file.path, piece.position, old)
            continue
        end, whole_to = max(end, batch.next_offset), piece.position + piece.size
        if not points or piece.position - points[-1].position >= INDEX_POINT_BYTES:
            points.append(IndexPoint(batch.last_offset, base, piece.position))
    return _Tail(end, whole_to, is_damaged, points)


def old_format(file: File, position: int, end: int) -> str | None:
    """The error for a message in format 0 or 1; None if there is none.

    Its CRC-32 distinguishes it from damage.
    """
    header = file.pread(_OLD_HEADER.size, position)
    if len(header) < _OLD_HEADER.size:
        return None
    _, length, crc, magic = _OLD_HEADER.unpack(header)
    if (
        magic not in (0, 1)
        or not OLD_LENGTH_MIN <= length <= min(end - position, BATCH_BYTES_MAX) - LOG_OVERHEAD
    ):
        return None
    if zlib.crc32(file.pread(length - 4, position + MAGIC_AT)) != crc:
        return None
    return f"its records are in message format {magic}, expected 2 (of Kafka 0.11 and later)"


_OLD_HEADER = Struct(">qiIb")
"""Offset, length, CRC-32 of the following bytes, magic."""


def _last_indexed(segment: Segment) -> int:
    """Position of the last batch with a correct index entry; 0 if there is none."""
    entry = segment.index.last()
    if entry is None or not 0 < entry.position < segment.size:
        return 0
    try:
        spot = next(walk_headers(segment.file(), entry.position, segment.size), None)
    except CorruptLog:
        return 0
    return entry.position if spot is not None and spot.last_offset == entry.offset else 0


# -- split points -----------------------------------------------------------------------------------------


def index_points(vfs: Vfs, view: LogView, segment: Segment) -> list[IndexPoint]:
    """Positions in a segment from its index, at least `KNOT_BYTES` apart.

    They may be wrong: a reader checks a position before it starts there.
    """
    base = segment.base_offset
    if segment is view.segments.active:
        known = [(each.offset, each.position) for each in segment.index.entries()]
        known += [(each.last_offset, each.position) for each in view.tail]
    else:
        known = _entries_of(vfs, segment)
    kept: list[IndexPoint] = []
    for last_offset, position in known:
        if position >= segment.size:
            break
        if not kept or (
            last_offset > kept[-1].last_offset and position - kept[-1].position >= INDEX_POINT_BYTES
        ):
            kept.append(IndexPoint(last_offset, base, position))
    return kept


def _entries_of(vfs: Vfs, segment: Segment) -> list[tuple[Offset, int]]:
    """Every n-th entry of a sealed segment's index, which has one for about every 4 KB of log."""
    try:
        data = read_file(vfs, segment.index.ref.path)
    except FileNotFoundError:
        return []
    count = len(data) // OFFSET_ENTRY.size
    step = max(1, count * INDEX_POINT_BYTES // max(segment.size, 1))
    found = (OFFSET_ENTRY.unpack_from(data, each * OFFSET_ENTRY.size) for each in range(0, count, step))
    return [(segment.base_offset + relative, position) for relative, position in found]
