"""Reads a partition's files without owning them.

Nothing is written, locked or repaired: the owner may be running, or may have crashed. So the files may change while
they are read. The code relies on these rules:

- a log only grows at its end, and what is not a whole, sound batch there, with nothing sound behind it, is not
  part of it yet, or any more: the log ends before it
- a segment that is deleted or compacted gets another name, never other bytes: a reader that holds it open reads on
- a `.swap` file is a compacted segment that takes the place of all that lies in its range, as the next start of a
  broker would make it do; `.cleaned` and `.deleted` files are no part of the log
- offsets never change. A reader that finds a file gone lists the directory again and goes on at its offset
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
"""A reader loses only to a writer that renames at that very moment: twice is rare, 100 times a fault."""

OPEN_FILES_MAX: Final = 64
"""A scan reads one segment after the other, so it needs few open files."""

INDEX_INTERVAL_BYTES: Final = 4096
"""Where an index must be made anew, in memory: Kafka's default for `index.interval.bytes`."""

INDEX_POINT_BYTES: Final = 1 << 20
"""How far apart the places are, at least, at which a segment may be cut."""

Result = TypeVar("Result")


class IndexPoint(NamedTuple):
    """A known position, from an index or a walk: the batch that begins there ends at `last_offset`."""

    last_offset: Offset
    segment: Offset
    """Base offset of the segment."""
    position: int


class LogView(NamedTuple):
    """A partition as it was found once: what a scan is planned on."""

    location: LogLocation
    segments: SegmentList
    """The last one's size is where the log ends."""
    log_start: Offset
    log_end: Offset
    tail: tuple[IndexPoint, ...]
    """Places in the last segment behind those that its index knows."""

    def segments_with_ends(self) -> Iterator[tuple[Segment, Offset]]:
        """Each segment, and the first offset behind it."""
        ends = [*(each.base_offset for each in self.segments[1:]), self.log_end]
        return zip(self.segments, ends, strict=True)


def data_loss(location: LogLocation, why: str) -> DataLoss:
    topic, partition = location.partition
    return DataLoss(f"topic {topic} partition {partition}: {why}, in {location.directory}")


def with_view(vfs: Vfs, location: LogLocation, work: Callable[[LogView], Result]) -> Result:
    """Look at a partition and do something with what is there; again, if that has changed meanwhile."""
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
            # A file that was replaced by a shorter one has the look of damage.
            if _sealed(list_segments(vfs, location)) == _sealed(view.segments):
                raise
    raise data_loss(location, "its files are not where they were listed")


def _sealed(segments: SegmentList) -> list[tuple[Offset, int]]:
    return [(each.base_offset, each.size) for each in segments[:-1]]


# -- listing ----------------------------------------------------------------------------------------------


def list_segments(vfs: Vfs, location: LogLocation) -> SegmentList:
    """The segments of a partition as they are now, each up to the size that it has now."""
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
    # One in the middle without a byte was left by a roll that failed; the log went on in the segment before it.
    bases = [base for base in bases if in_place[base][0] or base in (bases[0], bases[-1])]
    if not bases:
        raise data_loss(location, "there is no segment")
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

    A listing is no snapshot of a directory: one that was taken while files were renamed may miss some. Of two that are
    alike neither did, for the names of a segment on its way out or in never come back to what they were. Sizes are
    looked at afterwards: a file that has no size any more was renamed meanwhile, and all is listed again.
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
    """First offset behind a segment file."""
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


# -- where a log ends -------------------------------------------------------------------------------------


def open_view(vfs: Vfs, location: LogLocation) -> LogView:
    """Look at a partition: what segments it has, and where it ends. FileNotFoundError if one goes meanwhile."""
    segments = list_segments(vfs, location)
    end, tail = _measure(segments.active, location.durable_to)
    if len(segments) > 1 and not segments.active.size:
        # The same roll that failed, and nothing came after it.
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
    """Have the indexes of the last segment in memory: Kafka makes their files at full size, zeros at the end."""
    segment.index.load()
    segment.time_index.load()


def _measure(segment: Segment, durable_to: Offset) -> tuple[Offset, tuple[IndexPoint, ...]]:
    """Find where the last segment ends, behind its last sound batch, and let its size say so.

    Damage below the recovery point is not the end of the log: it stays in, and the reader reports it.
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
    """What a walk to the end of a segment has found."""

    end: Offset
    whole_to: int
    """Position behind the last sound batch; 0 where there was none."""
    is_damaged: bool
    """Something comes after it."""
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
    """What to say of a message in one of the formats before record batches; None where there is none.

    Its CRC-32 tells it from damage.
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
"""Offset, length, CRC-32 of what follows it, magic."""


def _last_indexed(segment: Segment) -> int:
    """Position of the last batch that the index tells the truth about; 0 where it tells of none."""
    entry = segment.index.last()
    if entry is None or not 0 < entry.position < segment.size:
        return 0
    try:
        spot = next(walk_headers(segment.file(), entry.position, segment.size), None)
    except CorruptLog:
        return 0
    return entry.position if spot is not None and spot.last_offset == entry.offset else 0


# -- where a segment may be cut ---------------------------------------------------------------------------


def index_points(vfs: Vfs, view: LogView, segment: Segment) -> list[IndexPoint]:
    """Places in a segment, at least `KNOT_BYTES` apart, as its index tells them.

    They need not be true: a reader checks one before it begins there.
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
    """Every n-th entry of a sealed segment's index, which has one for each 4 KB or so of log."""
    try:
        data = read_file(vfs, segment.index.ref.path)
    except FileNotFoundError:
        return []
    count = len(data) // OFFSET_ENTRY.size
    step = max(1, count * INDEX_POINT_BYTES // max(segment.size, 1))
    found = (OFFSET_ENTRY.unpack_from(data, each * OFFSET_ENTRY.size) for each in range(0, count, step))
    return [(segment.base_offset + relative, position) for relative, position in found]
