"""Reads one range of one partition from its segment files, and decodes it to Arrow batches.

A task has offsets, not files: it lists the directory itself, finds its start with the offset index (or at the position
noted by the plan, if that batch is still there), and reads in large steps. If a file has disappeared before it is
opened, because the log was compacted or truncated, the task lists the directory again and continues at its offset. An
open file is read to its end, even if it is renamed.

    before the first segment        records deleted by retention: an error or a warning, by `failOnDataLoss`
    damage at the end of the log    the log ends there
    damage anywhere else            an error with topic, partition, offset and file
"""

import logging
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrow.decode import CorruptRecords, Decoder
from penstock.arrow.errors import DataLoss
from penstock.arrow.frames import Frames, Mask
from penstock.arrow.scan.log_dirs import LogLocation
from penstock.arrow.scan.log_files import (
    ATTEMPTS_MAX,
    IndexPoint,
    data_loss,
    list_segments,
    load_indexes,
    old_format,
)
from penstock.arrow.scan.transaction_outcomes import AbortedRange
from penstock.base.ids import Offset
from penstock.records import HEADER_BYTES, LOG_OVERHEAD
from penstock.records.batch import LENGTH_MIN, MAGIC
from penstock.storage.errors import CorruptLog
from penstock.storage.scan import BATCH_BYTES_MAX, next_sound, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.vfs import File, Vfs

log = logging.getLogger("penstock.spark")

FIRST_BYTES: Final = 128 << 10
STEP_BYTES_MAX: Final = 8 << 20
"""Reads start small and double, so that a short range does not need a long read."""

_HEADER: Final = Struct(">qi4xb6xi")
"""Fields of a batch header: base offset, length, magic, last offset delta."""


class ScanRange(NamedTuple):
    """The range of a task. Small and picklable."""

    location: LogLocation
    start: Offset
    stop: Offset
    start_point: IndexPoint | None = None
    """The last known position before start."""
    stop_point: IndexPoint | None = None
    """The last known position before stop: reads grow up to there, and are small after it."""
    aborted: tuple[AbortedRange, ...] = ()


def read_range(
    vfs: Vfs, span: ScanRange, columns: Sequence[str], *, fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range as Arrow batches of some megabytes."""
    decoder = Decoder(*span.location.partition, columns, start=span.start, stop=span.stop)
    for piece in RangeReader(vfs, span, fails_on_data_loss=fails_on_data_loss):
        try:
            yield from decoder.stream(piece.frames)
        except CorruptRecords as error:
            raise CorruptRecords(
                error.topic, error.partition, error.offset, f"{error.why}, in {piece.path}"
            ) from error
    yield from decoder.finish()


class SegmentFrames(NamedTuple):
    """Complete batches of one file, valid until the next ones are requested."""

    frames: Frames
    path: str


class RangeReader:
    """Reads the batches of a range in order, without those of aborted transactions."""

    def __init__(self, vfs: Vfs, span: ScanRange, *, fails_on_data_loss: bool) -> None:
        self._vfs = vfs
        self._span = span
        self._fails = fails_on_data_loss
        self._position: Offset = span.start
        """The next offset to find. Never decreases."""
        self._buffer = bytearray()
        """Reused for all reads: new memory would cost more than the reading."""
        self._aborted: dict[int, list[AbortedRange]] = {}
        for each in span.aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)

    def __iter__(self) -> Iterator[SegmentFrames]:
        attempts = 0
        while self._position < self._span.stop:
            before = self._position
            try:
                segments = list_segments(self._vfs, self._span.location)
                yield from self._segments(segments)
                return
            except FileNotFoundError:
                attempts = attempts + 1 if self._position == before else 0
                if attempts == ATTEMPTS_MAX:
                    raise data_loss(
                        self._span.location, "its files disappeared after they were listed"
                    ) from None
            except DataLoss as error:
                self._lost(error)
                return

    def _segments(self, segments: SegmentList) -> Iterator[SegmentFrames]:
        """Read from the position on through the listed segments."""
        first = segments[0].base_offset
        if self._position < first:
            what = f"offsets {self._position} to {min(first, self._span.stop) - 1} were deleted before they were read"
            self._lost(data_loss(self._span.location, what))
            self._position = first
        load_indexes(segments.active)
        index = segments.index_of(self._position)
        while self._position < self._span.stop:
            segment = segments[index]
            if segment.size:
                yield from self._segment(segment, is_last=segment is segments.active)
            index += 1
            if index == len(segments):
                break
            self._position = max(self._position, segments[index].base_offset)
        if self._position < self._span.stop:
            what = f"the log ends at offset {self._position}, but ended at {self._span.stop} or later before"
            self._lost(data_loss(self._span.location, what))

    def _lost(self, error: DataLoss) -> None:
        if self._fails:
            raise error
        log.warning("%s; failOnDataLoss is false, so the rest is read", error)

    # -- one segment ----------------------------------------------------------------------------------

    def _segment(self, segment: Segment, *, is_last: bool) -> Iterator[SegmentFrames]:
        file = segment.file()
        size = file.size()
        if size < segment.size or (size > segment.size and not is_last):
            raise FileNotFoundError(file.path)  # another file has the name by now
        try:
            at = self._find(segment, file)
        except CorruptLog as error:
            self._damaged(file, error.position, segment.size, error.problem, is_last=is_last)
            return
        until = self._span.stop_point
        border = until.position if until is not None and until.segment == segment.base_offset else 0
        step = needed = FIRST_BYTES
        while at is not None and at < segment.size and self._position < self._span.stop:
            wanted = max(min(step, border - at) if at < border else step, needed)
            wanted = min(wanted, segment.size - at)
            data = self._read(file, wanted, at)
            taken = self._take(data, segment.size - at, has_crc_checked=is_last)
            if len(taken.frames):
                yield SegmentFrames(taken.frames, file.path)
            step = FIRST_BYTES if at < border <= at + taken.size else min(step * 2, STEP_BYTES_MAX)
            at, needed = at + taken.size, taken.needed
            if taken.is_last:
                return
            if taken.problem or len(data) < wanted:
                why = taken.problem or "the file was truncated"
                self._damaged(file, at, segment.size, why, is_last=is_last)
                return

    def _read(self, file: File, size: int, at: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        room = memoryview(self._buffer)[:size]
        return room[: file.pread_into(room, at)]

    def _find(self, segment: Segment, file: File) -> int | None:
        """Position of the first batch that ends at or after the offset; None if the segment ends before it."""
        try:
            return self._find_by_knot(segment, file)
        except CorruptLog as error:
            damaged_at = error.position
            failure = error
        # Damage before the offset does not matter here.
        while (at := next_sound(file, damaged_at + 1, segment.size, segment.base_offset)) is not None:
            if int.from_bytes(file.pread(8, at), "big") > self._position:
                break
            try:
                return _first_from(file, at, segment.size, self._position)
            except CorruptLog as error:
                damaged_at = error.position
        raise failure

    def _find_by_knot(self, segment: Segment, file: File) -> int | None:
        point = self._span.start_point
        if point is not None and point.segment == segment.base_offset and point.last_offset < self._position:
            try:
                spot = next(walk_headers(file, point.position, segment.size), None)
            except CorruptLog:
                spot = None
            if spot is not None and spot.last_offset == point.last_offset:
                return _first_from(file, spot.position + spot.size, segment.size, self._position)
        found = segment.find(self._position)
        return None if found is None else found.position

    def _take(self, data: memoryview, left: int, *, has_crc_checked: bool) -> "_Taken":
        """Find the batches in the buffer and advance the offset; `left` is the number of bytes in the file."""
        frames = Frames.read(data)
        is_odd = (frames.last_offset_deltas < 0) | (frames.sizes > BATCH_BYTES_MAX)
        ends = np.flatnonzero(is_odd | (frames.base_offsets >= self._span.stop))
        frames = frames.between(0, int(ends[0]) if len(ends) else len(frames))
        torn = frames.bad_crc() if has_crc_checked else None
        if torn is not None:
            frames = frames.between(0, torn)
        size = frames.end
        self._position = max(self._position, int(frames.last_offsets.max(initial=-1)) + 1)
        if self._aborted and frames.is_transactional.any():
            frames = frames.only(~self._is_aborted(frames))
        if torn is not None:
            return _Taken(frames, size, HEADER_BYTES, False, "CRC mismatch")
        return _Taken(frames, size, *self._behind(data[size:], left - size))

    def _behind(self, rest: memoryview, left: int) -> tuple[int, bool, str]:
        """The next batch: its size, whether it is after the range, and its problem."""
        if len(rest) < HEADER_BYTES:
            what = f"{left} bytes are left, expected a batch of at least {HEADER_BYTES}"
            return HEADER_BYTES, False, what if 0 < left < HEADER_BYTES else ""
        base, length, magic, delta = _HEADER.unpack_from(rest)
        return LOG_OVERHEAD + length, base >= self._span.stop, _problem(magic, length, delta, left)

    def _is_aborted(self, frames: Frames) -> Mask:
        batches = zip(
            frames.producer_ids.tolist(),
            frames.base_offsets.tolist(),
            frames.is_transactional.tolist(),
            strict=True,
        )
        return np.array(
            [
                is_transactional and self._has_aborted(producer_id, offset)
                for producer_id, offset, is_transactional in batches
            ],
            np.bool_,
        )

    def _has_aborted(self, producer_id: int, offset: Offset) -> bool:
        return any(
            each.first_offset <= offset <= each.last_offset for each in self._aborted.get(producer_id, ())
        )

    def _has_sound(self, file: File, at: int, size: int) -> bool:
        """Whether a valid batch follows a damaged one."""
        return at < size and next_sound(file, at + 1, size, self._position) is not None

    def _damaged(self, file: File, at: int, size: int, why: str, *, is_last: bool) -> None:
        """Handle an invalid batch: it is the end of the log if no valid batch follows, otherwise an error."""
        size = min(size, file.size())
        old = old_format(file, at, size)
        if old is not None:
            why = old
        elif (
            is_last
            and self._position >= self._span.location.durable_to
            and not self._has_sound(file, at, size)
        ):
            return
        topic, partition = self._span.location.partition
        raise CorruptRecords(topic, partition, self._position, f"{why}, at position {at} of {file.path}")


class _Taken(NamedTuple):
    """The batches in a buffer."""

    frames: Frames
    """The complete batches in the range."""
    size: int
    """Bytes of complete batches."""
    needed: int
    """Size of the next batch, if known."""
    is_last: bool
    """Whether the next batch is after the range."""
    problem: str
    """The problem of the next batch, if known."""


def _first_from(file: File, at: int, end: int, offset: Offset) -> int | None:
    """Position of the first batch, from a position on, that ends at or after an offset."""
    return next((spot.position for spot in walk_headers(file, at, end) if spot.last_offset >= offset), None)


def _problem(magic: int, length: int, last_delta: int, left: int) -> str:
    """Why there is no batch at a position; empty if there is one."""
    if (
        magic != MAGIC
        or not LENGTH_MIN <= length <= min(left, BATCH_BYTES_MAX) - LOG_OVERHEAD
        or last_delta < 0
    ):
        return f"no batch: magic {magic}, length {length}, expected magic 2 and at most {left} bytes"
    return ""
