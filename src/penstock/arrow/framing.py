"""Selects the batches with records to return, and locates their records.

The cost is about a microsecond per batch, and nothing per record. CRCs are checked; control batches, batches of
aborted transactions and batches outside of the range are skipped. The others form blocks that are decoded together,
in place or decompressed into the block's memory.

Aborted transactions are given as in a Fetch response, by producer id and first offset: from there on the producer's
transactional batches are dropped until its abort marker, as in Kafka's consumer.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

import numpy as np

from penstock.arrow.frames import Frames, Mask
from penstock.arrow.varints import Ints
from penstock.arrow.walk import RECORD_BYTES_MIN
from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    ControlType,
    CorruptBatch,
    RecordBatch,
    parse_control,
)
from penstock.records.batch import LENGTH_AT, LENGTH_MIN, MAGIC, MAGIC_AT, OLD_LENGTH_MIN
from penstock.records.varint import Readable

OFFSET_MAX = (1 << 63) - (1 << 32)
"""A larger base offset plus the largest delta would not fit into 64 bits."""

_LENGTH = Struct(">i")


class CorruptRecords(KafkaError):
    """Records of a partition are corrupt."""

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(
            f"partition {partition} of topic {topic} has corrupt records at offset {offset}: {why}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.why = why

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        """Pickle support: raised in a worker, shown by the driver."""
        return CorruptRecords, (self.topic, self.partition, self.offset, self.why)


class Block(NamedTuple):
    """Batches to be decoded together, and the memory with all of their records."""

    frames: Frames
    records: Readable
    """The input, or the memory into which records were decompressed."""
    begins: Ints
    """Start of each batch's records in `data`."""
    ends: Ints


class Framer:
    """Selects the batches of one partition from start up to stop."""

    def __init__(self, topic: str, partition: int, start: int, stop: int, block_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.stop = stop
        self.position = start
        """The next offset to fetch. Never decreases, never exceeds stop."""
        self._block_bytes = block_bytes
        self._unpacked = bytearray()
        """Reused for every block: new memory would cost more than the copy into it."""

    def corrupt(self, offset: int, why: str) -> CorruptRecords:
        return CorruptRecords(self.topic, self.partition, offset, why)

    def explain(self, frames: Frames, index: int, otherwise: str) -> CorruptRecords:
        """The error that the record-by-record reader finds in a batch."""
        try:
            for _ in RecordBatch.parse(memoryview(frames.data), int(frames.at[index])).records():
                pass
        except CorruptBatch as error:
            otherwise = str(error)
        return self.corrupt(int(frames.base_offsets[index]), otherwise)

    def blocks(self, frames: Frames, aborted: Sequence[tuple[int, int]]) -> Iterator[Block]:
        """Yield the blocks of batches. The position is past all of them when the first is yielded.

        A block is valid until the next is requested: both may use the same memory.
        """
        if self.position >= self.stop:
            return
        within = self._within(frames)
        self._check(within)
        wanted = self._wanted(within, aborted)
        self._move(within, is_end=len(within) < len(frames))
        yield from self._unpacked_blocks(wanted) if wanted.codecs.any() else self._plain_blocks(wanted)
        if self.position < self.stop:
            self._check_rest(frames.rest)

    # -- selection -------------------------------------------------------------------------------------

    def _within(self, frames: Frames) -> Frames:
        """The batches before the first that starts at stop or later."""
        is_past = frames.base_offsets >= self.stop
        is_past[1:] |= np.maximum.accumulate(frames.last_offsets)[:-1] >= self.stop - 1
        past = _first(is_past)
        return frames if past is None else frames.between(0, past)

    def _check(self, frames: Frames) -> None:
        """Raise CorruptRecords for the first invalid batch."""
        first_offsets, deltas = frames.base_offsets, frames.last_offset_deltas
        odd = _first((first_offsets < 0) | (first_offsets > OFFSET_MAX) | (deltas < 0))
        torn = frames.bad_crc()
        if torn is not None and (odd is None or torn <= odd):
            said, found = frames.crcs(torn)
            why = f"the batch has CRC {said:#010x}, but its bytes have {found:#010x}"
            raise self.corrupt(int(first_offsets[torn]), why)
        if odd is not None:
            self._move(frames.between(0, odd), is_end=False)
            first = int(first_offsets[odd])
            raise self.corrupt(self.position, f"the batch has offsets {first} to {first + int(deltas[odd])}")

    def _move(self, frames: Frames, *, is_end: bool) -> None:
        """Move the position past these batches, up to stop."""
        behind = self.stop if is_end else int(frames.last_offsets.max(initial=-1)) + 1
        self.position = max(self.position, min(behind, self.stop))

    def _wanted(self, frames: Frames, aborted: Sequence[tuple[int, int]]) -> Frames:
        """The batches with records to return."""
        before = np.maximum.accumulate(np.concatenate(([self.position - 1], frames.last_offsets)))
        is_wanted = (frames.last_offsets > before[:-1]) & ~frames.is_control
        is_wanted &= (frames.counts != 0) | (
            frames.sizes > HEADER_BYTES
        )  # otherwise compaction removed all records
        if aborted:
            is_wanted &= ~self._aborted(frames, aborted)
        return frames.only(is_wanted)

    def _aborted(self, frames: Frames, aborted: Sequence[tuple[int, int]]) -> Mask:
        """Mask of the batches of aborted transactions."""
        ahead = sorted(aborted, key=itemgetter(1), reverse=True)
        aborting: set[int] = set()
        is_aborted = np.zeros(len(frames), np.bool_)
        last_offsets, producers = frames.last_offsets.tolist(), frames.producer_ids.tolist()
        is_control, is_transactional = frames.is_control.tolist(), frames.is_transactional.tolist()
        for index, (last_offset, producer) in enumerate(zip(last_offsets, producers, strict=True)):
            while ahead and ahead[-1][1] <= last_offset:
                aborting.add(ahead.pop()[0])
            if producer in aborting:
                is_aborted[index] = is_transactional[index]
                if is_control[index] and self._is_abort(frames, index):
                    aborting.discard(producer)
        return is_aborted

    def _is_abort(self, frames: Frames, index: int) -> bool:
        parsed = RecordBatch.parse(memoryview(frames.data), int(frames.at[index]))
        try:
            record = next(parsed.records(), None)
            return record is not None and parse_control(record).type == ControlType.ABORT
        except CorruptBatch as error:
            raise self.corrupt(parsed.base_offset, str(error)) from None

    def _check_rest(self, rest: Readable) -> None:
        """Raise CorruptRecords unless the bytes after the last complete batch can be the start of another."""
        if len(rest) <= MAGIC_AT:
            return
        (length,) = _LENGTH.unpack_from(rest, LENGTH_AT)
        magic = rest[MAGIC_AT]
        if length < (OLD_LENGTH_MIN if magic in (0, 1) else LENGTH_MIN):
            raise self.corrupt(
                self.position, f"the batch has length {length}, expected at least {LENGTH_MIN}"
            )
        if magic in (0, 1):
            raise self.corrupt(
                self.position,
                f"they are a message set of magic {magic}, from before Kafka 0.11; "
                f"only record batches of magic {MAGIC} are read",
            )
        if magic != MAGIC:
            raise self.corrupt(self.position, f"the batch has magic {magic}, expected {MAGIC}")

    # -- blocks ----------------------------------------------------------------------------------------

    def _plain_blocks(self, frames: Frames) -> Iterator[Block]:
        """A block of uncompressed batches: the records stay in place."""
        begins, ends = frames.at + HEADER_BYTES, frames.at + frames.sizes
        sizes = ends - begins
        odd = _first((frames.counts <= 0) | (frames.counts * RECORD_BYTES_MIN > sizes))
        if odd is not None:
            raise self._miscounted(frames, odd, int(sizes[odd]))
        heights = np.cumsum(sizes)
        first = 0
        while first < len(frames):
            limit = heights[first] - sizes[first] + self._block_bytes
            last = max(first + 1, int(np.searchsorted(heights, limit, side="right")))
            yield Block(frames.between(first, last), frames.data, begins[first:last], ends[first:last])
            first = last

    def _unpacked_blocks(self, frames: Frames) -> Iterator[Block]:
        """Blocks with compressed batches: all records are written to one buffer."""
        if not self._unpacked:
            self._unpacked = bytearray(self._block_bytes)
        edges = [0]
        for index in range(len(frames)):
            records = self._records(frames, index)
            if edges[-1] + len(records) > self._block_bytes:
                yield from self._block(frames, index, self._unpacked, edges)
                edges = [0]
            edges.append(edges[-1] + len(records))
            if edges[-1] > self._block_bytes:  # a block of its own, in the memory of the decompressor
                yield from self._block(frames, index + 1, records, edges)
                edges = [0]
            else:
                self._unpacked[edges[-2] : edges[-1]] = records
        yield from self._block(frames, len(frames), self._unpacked, edges)

    def _block(self, frames: Frames, last: int, records: Readable, edges: list[int]) -> Iterator[Block]:
        """Yield the batches before the last, with records at these edges; nothing if there are none."""
        if len(edges) > 1:
            these = frames.between(last - len(edges) + 1, last)
            yield Block(these, records, np.array(edges[:-1]), np.array(edges[1:]))

    def _records(self, frames: Frames, index: int) -> memoryview:
        view, at = memoryview(frames.data), int(frames.at[index])
        try:
            if frames.codecs[index]:
                records = RecordBatch.parse(view, at).decompressed(DECOMPRESSED_BYTES_MAX)
            else:
                records = view[at + HEADER_BYTES : at + int(frames.sizes[index])]
        except CorruptBatch as error:
            raise self.corrupt(int(frames.base_offsets[index]), str(error)) from None
        if not 0 < frames.counts[index] * RECORD_BYTES_MIN <= len(records):
            raise self._miscounted(frames, index, len(records))
        return records

    def _miscounted(self, frames: Frames, index: int, size: int) -> CorruptRecords:
        return self.explain(frames, index, f"the batch counts {frames.counts[index]} records in {size} bytes")


def _first(which: Mask) -> int | None:
    """Index of the first true element."""
    return int(np.argmax(which)) if which.any() else None
