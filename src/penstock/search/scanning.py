"""Reads chunks and returns the records that match.

A call works for about `CALL_NS` and then returns what it has, so that a client sees progress and a cancelled search
stops soon. What it keeps is bounded by `RESULT_BYTES_MAX` and the number of results that are still wanted: of a chunk
with more matches the newest are returned, and the rest of the chunk is searched again later.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic_ns
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.arrow.decode import Decoder
from penstock.arrow.frames import Frames
from penstock.arrow.scan.log_files import IndexPoint
from penstock.arrow.scan.read_range import RangeReader, ScanRange
from penstock.arrow.scan.transaction_outcomes import AbortedRange
from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.records.cutting import cut_headers
from penstock.search.matching import Matcher
from penstock.search.planning import location_of
from penstock.search.prefilter import Prefilter
from penstock.search.query import Chunk, Match, Portion, SearchQuery, SearchSpan, Unsearched
from penstock.search.rows import row_of
from penstock.storage.errors import StorageError
from penstock.vfs import Vfs

CALL_NS: Final = 200_000_000
FOUND_NS: Final = 20_000_000
"""A call begins no chunk after this time; the second, if it has found something."""

CHUNK_NS: Final = 1_000_000_000
"""A call that has taken this long returns within a chunk. The rest of the chunk is searched later, so that its results
are no longer in order; that takes an expression, or records that decompress to very much."""

RESULT_BYTES_MAX: Final = 1 << 20
MATCH_COST: Final = 64
"""Bytes that a match counts beside its fields."""

COMPRESSED_BYTES: Final = 1 << 20
"""Compressed bytes between two looks at the clock."""

COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


def search(vfs: Vfs, query: SearchQuery, work: Sequence[tuple[SearchSpan, Chunk]], limit: int) -> Portion:
    """Search chunks in order, until the time is over, enough is found, or all are done."""
    matcher = Matcher(query)
    began_ns = monotonic_ns()
    found: list[Match] = []
    unsearched: list[Unsearched] = []
    size = looked_bytes = done = 0
    rests: tuple[Chunk, ...] = ()
    for span, chunk in work:
        scan = _ChunkScan(
            vfs, matcher, span, chunk, limit - len(found), RESULT_BYTES_MAX - size, began_ns + CHUNK_NS
        )
        try:
            rests = scan.run()
        except (KafkaError, StorageError, OSError) as error:
            # Damaged, or unreadable. What lies behind this chunk is in others.
            unsearched.append(Unsearched(chunk.partition, scan.position, chunk.stop, str(error)))
        unsearched += scan.unsearched
        found += scan.matches()
        size += scan.size
        looked_bytes += max(chunk.size_bytes - sum(each.size_bytes for each in rests), 0)
        done += 1
        is_late = monotonic_ns() >= began_ns + (FOUND_NS if found else CALL_NS)
        if rests or len(found) >= limit or size >= RESULT_BYTES_MAX or is_late:
            break
    expression = matcher.expression
    failed = (0, "") if expression is None else (expression.failed_count, expression.failed_why)
    return Portion(tuple(found), done, rests, looked_bytes, tuple(unsearched), *failed)


class _ChunkScan:
    """One chunk, read in order; the newest matches are kept."""

    def __init__(
        self,
        vfs: Vfs,
        matcher: Matcher,
        span: SearchSpan,
        chunk: Chunk,
        matches_max: int,
        bytes_max: int,
        deadline_ns: int,
    ) -> None:
        self._vfs = vfs
        self._matcher = matcher
        self._span = span
        self._chunk = chunk
        self._matches_max = matches_max
        self._bytes_max = bytes_max
        self._deadline_ns = deadline_ns
        self._kept: deque[tuple[Match, int]] = deque()
        self.size = 0
        """Bytes of the matches that are kept."""
        self._dropped = False
        """Whether there were more matches than may be kept."""
        self.position: Offset = chunk.start
        """All records before it are searched."""
        self.unsearched: list[Unsearched] = []
        """Damaged batches."""

    def matches(self) -> list[Match]:
        """Newest first."""
        return [match for match, _ in reversed(self._kept)]

    def run(self) -> tuple[Chunk, ...]:
        """Search; return what is left of the chunk, newest first. Raises an error of the log at `position`."""
        chunk = self._chunk
        for rows in self._rows():
            for index in np.flatnonzero(self._matcher.mask(rows, chunk.partition)).tolist():
                self._keep(rows, index)
        rests = []
        if self.position < chunk.stop:
            rests.append(self._part(self.position, chunk.stop))
        if self._dropped:
            rests.append(self._part(chunk.start, self._kept[0][0].offset))
        return tuple(rests)

    def _part(self, start: Offset, stop: Offset) -> Chunk:
        chunk = self._chunk
        share = (stop - start) / (chunk.stop - chunk.start)
        point = chunk.point if start == chunk.start else None
        return Chunk(chunk.partition, start, stop, max(int(chunk.size_bytes * share), 1), point)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        span, chunk = self._span, self._chunk
        scan = ScanRange(
            location_of(span),
            chunk.start,
            chunk.stop,
            start_point=None if chunk.point is None else IndexPoint(*chunk.point),
            aborted=tuple(AbortedRange(*each) for each in span.aborted),
        )
        needle = self._matcher.query.contains
        prefilter = None if needle is None else Prefilter(needle)
        decoder = Decoder(span.topic, span.partition, COLUMNS, start=chunk.start, stop=chunk.stop)
        try:
            for piece in RangeReader(self._vfs, scan, fails_on_data_loss=False):
                for frames in _parts(piece.frames):
                    candidates = frames if prefilter is None else prefilter.candidates(frames)
                    candidates = self._sound(candidates, piece.path)
                    if len(candidates):
                        yield from decoder.stream(candidates)
                    self.position = min(max(frames.next_offset or 0, self.position), chunk.stop)
                    if monotonic_ns() >= self._deadline_ns:
                        yield from decoder.finish()
                        return
        except KafkaError:
            yield from decoder.finish()  # what was read before the damage
            raise
        yield from decoder.finish()
        self.position = chunk.stop

    def _sound(self, frames: Frames, path: str) -> Frames:
        """The batches without those whose CRC is wrong, which are noted."""
        while (index := frames.bad_crc()) is not None:
            start, stop = int(frames.base_offsets[index]), int(frames.last_offsets[index]) + 1
            said, found = frames.crcs(index)
            why = f"the batch has CRC {said:#010x}, but its bytes have {found:#010x}, in {path}"
            self.unsearched.append(Unsearched(self._chunk.partition, start, max(start, stop), why))
            is_kept = np.ones(len(frames), np.bool_)
            is_kept[index] = False
            frames = frames.only(is_kept)
        return frames

    def _keep(self, rows: pa.RecordBatch, index: int) -> None:
        match, size = _match(self._chunk.partition, rows, index, self._matcher.query.field_bytes)
        self._kept.append((match, size))
        self.size += size
        while len(self._kept) > max(self._matches_max, 1) or (
            self.size > self._bytes_max and len(self._kept) > 1
        ):
            self.size -= self._kept.popleft()[1]
            self._dropped = True


def _parts(frames: Frames) -> Iterator[Frames]:
    """Batches that are handled together: a part of compressed ones is small, since it may decompress to gigabytes."""
    if not len(frames) or not frames.codecs.any():
        yield frames
        return
    heights = np.cumsum(frames.sizes)
    first = 0
    while first < len(frames):
        limit = heights[first] - frames.sizes[first] + COMPRESSED_BYTES
        last = max(first + 1, int(np.searchsorted(heights, limit, side="right")))
        yield frames.between(first, last)
        first = last


def _match(partition: int, rows: pa.RecordBatch, index: int, bytes_max: int) -> tuple[Match, int]:
    """The record of a row, with long fields cut, and its size."""
    offset, timestamp, key, value, headers = row_of(rows, index, bytes_max)
    cut = [
        (name, each.size) for name, each in (("key", key), ("value", value)) if each and each.size > bytes_max
    ]
    size = MATCH_COST + sum(len(each.data) for each in (key, value) if each is not None)
    kept_headers, whole = cut_headers(headers, bytes_max)
    if whole is not None:
        cut.append(("headers", whole))
    match = Match(
        partition,
        offset,
        timestamp,
        None if key is None else key.data,
        None if value is None else value.data,
        tuple(kept_headers),
        tuple(cut),
    )
    return match, size + sum(len(name) + len(content or b"") for name, content in kept_headers)
