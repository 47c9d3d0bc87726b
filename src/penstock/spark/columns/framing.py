"""Batches, one after the other, as a Fetch or a segment has them: which of them have records to show.

Here each batch costs a few microseconds and no record costs anything. A batch's header is looked at, its CRC is
checked, and then it is passed over (control batches, those of aborted transactions, those outside of what is read) or
put into a block, to be decoded together with its neighbours: where it lies, or unpacked into memory of the block's.

Aborted transactions are told as a broker tells them, by producer and first offset: from there on the producer's
transactional batches are dropped until its abort marker comes by. That is how Kafka's own consumer does it.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import (
    DECOMPRESSED_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    ControlType,
    CorruptBatch,
    RecordBatch,
    parse_control,
)
from penstock.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_MASK,
    LENGTH_AT,
    LENGTH_MIN,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    MAGIC_AT,
    OLD_LENGTH_MIN,
    TRANSACTIONAL_MASK,
)
from penstock.records.checksum import crc32c
from penstock.records.varint import Readable
from penstock.spark.columns.walk import RECORD_BYTES_MIN

OFFSET_MAX = (1 << 63) - (1 << 32)
"""A base offset beyond it, plus the largest difference, would not fit 64 bits."""

_LENGTH = Struct(">i")


class CorruptRecords(KafkaError):
    """Records of a partition that cannot be read."""

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
        """It is raised in a worker and shown by the driver."""
        return CorruptRecords, (self.topic, self.partition, self.offset, self.why)


class Batch(NamedTuple):
    """A batch with records to show, as its header has it."""

    at: int
    """Where it starts in what was given."""
    size: int
    codec: int
    record_count: int
    base_offset: int
    timestamp: int
    """What its records' times are relative to; with append time, what they all are."""
    is_append_time: bool


class Block:
    """Batches to be decoded together, and the one piece of memory that has all of their records."""

    def __init__(self, records: Readable, *, is_unpacked: bool) -> None:
        self.records = records
        """What was given, or where records were unpacked to."""
        self.is_unpacked = is_unpacked
        self.batches: list[Batch] = []
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.size_bytes = 0


class Framer:
    """The batches of one partition from start on, as far as stop."""

    def __init__(self, topic: str, partition: int, start: int, stop: int, block_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.stop = stop
        self.position = start
        """The next offset to ask for. Never goes back, never passes stop."""
        self._block_bytes = block_bytes
        self._unpacked = bytearray()
        """Used for one block after the other: fresh memory would cost more than the copy into it."""

    def corrupt(self, offset: int, why: str) -> CorruptRecords:
        return CorruptRecords(self.topic, self.partition, offset, why)

    def explain(self, view: memoryview, batch: Batch, otherwise: str) -> CorruptRecords:
        """What the reader that goes record by record finds wrong with the batch."""
        try:
            for _ in RecordBatch.parse(view, batch.at).records():
                pass
        except CorruptBatch as error:
            otherwise = str(error)
        return self.corrupt(batch.base_offset, otherwise)

    def blocks(self, data: Readable, aborted: Sequence[tuple[int, int]]) -> Iterator[Block]:
        """What there is to decode in whole batches; a last one that is cut off is left.

        A block is done with when the next is asked for: both may use the same memory.
        """
        view = memoryview(data)
        block = Block(data, is_unpacked=False)
        for batch in self._wanted(view, aborted):
            begin = batch.at + HEADER_BYTES
            payload = self._unpack(view, batch) if batch.codec else None
            size = batch.size - HEADER_BYTES if payload is None else len(payload)
            if batch.record_count <= 0 or batch.record_count * RECORD_BYTES_MIN > size:
                raise self.explain(
                    view, batch, f"the batch counts {batch.record_count} records in {size} bytes"
                )
            if block.size_bytes + size > self._block_bytes or (batch.codec and not block.is_unpacked):
                if block.batches:
                    yield block
                block = self._block(data, payload)
            if block.is_unpacked:
                unpacked = view[begin : begin + size] if payload is None else payload
                begin = block.size_bytes
                if block.records is not payload:
                    block.records[begin : begin + size] = unpacked  # type: ignore[index]
            block.batches.append(batch)
            block.begins.append(begin)
            block.ends.append(begin + size)
            block.size_bytes += size
        if block.batches:
            yield block

    def _block(self, data: Readable, payload: memoryview | None) -> Block:
        """The block that starts with a batch of which this was unpacked, if anything was."""
        if payload is None:
            return Block(data, is_unpacked=False)
        if len(payload) > self._block_bytes:
            return Block(payload, is_unpacked=True)  # alone in its block, where it was unpacked
        if not self._unpacked:
            self._unpacked = bytearray(self._block_bytes)
        return Block(self._unpacked, is_unpacked=True)

    def _wanted(self, view: memoryview, aborted: Sequence[tuple[int, int]]) -> Iterator[Batch]:
        """Each batch with records to show. The position has moved past it when it is given."""
        ahead = sorted(aborted, key=itemgetter(1), reverse=True)
        aborting: set[int] = set()
        at, end = 0, len(view)
        while self.position < self.stop and end - at >= HEADER_BYTES:
            header = HEADER.unpack_from(view, at)
            base_offset, length, _, magic, crc, attributes, last_delta = header[:7]
            base_time, max_time, producer, _, _, count = header[7:]
            size = LOG_OVERHEAD + length
            if magic != MAGIC or length < LENGTH_MIN or size > end - at:
                break
            if base_offset >= self.stop:
                self.position = self.stop
                return
            found = crc32c(view[at + ATTRIBUTES_AT : at + size])
            if found != crc:
                raise self.corrupt(
                    base_offset, f"the batch has CRC {crc:#010x}, its bytes give {found:#010x}"
                )
            last_offset = base_offset + last_delta
            if not 0 <= base_offset <= min(last_offset, OFFSET_MAX):
                raise self.corrupt(self.position, f"the batch has offsets {base_offset} to {last_offset}")
            while ahead and ahead[-1][1] <= last_offset:
                aborting.add(ahead.pop()[0])
            is_new = last_offset >= self.position
            if is_new:
                self.position = min(last_offset + 1, self.stop)
            if attributes & CONTROL_MASK:
                if producer in aborting and self._is_abort(view, at):
                    aborting.discard(producer)
            elif (
                is_new
                and not (attributes & TRANSACTIONAL_MASK and producer in aborting)
                and (count or size > HEADER_BYTES)  # or it is all that compaction left
            ):
                is_append_time = attributes & LOG_APPEND_TIME_MASK != 0
                timestamp = max_time if is_append_time else base_time
                yield Batch(at, size, attributes & CODEC_MASK, count, base_offset, timestamp, is_append_time)
            at += size
        if self.position < self.stop:
            self._check_rest(view, at, end)

    def _check_rest(self, view: memoryview, at: int, end: int) -> None:
        """What follows the last whole batch is the begin of another, or it is refused."""
        if end - at <= MAGIC_AT:
            return
        (length,) = _LENGTH.unpack_from(view, at + LENGTH_AT)
        magic = view[at + MAGIC_AT]
        if length < (OLD_LENGTH_MIN if magic in (0, 1) else LENGTH_MIN):
            raise self.corrupt(
                self.position, f"the batch has length {length}, at least {LENGTH_MIN} expected"
            )
        if magic in (0, 1):
            raise self.corrupt(
                self.position,
                f"they are a message set of magic {magic}, from before Kafka 0.11; "
                f"only record batches of magic {MAGIC} are read",
            )
        if magic != MAGIC:
            raise self.corrupt(self.position, f"the batch has magic {magic}, expected {MAGIC}")

    def _is_abort(self, view: memoryview, at: int) -> bool:
        parsed = RecordBatch.parse(view, at)
        try:
            record = next(parsed.records(), None)
            return record is not None and parse_control(record).type == ControlType.ABORT
        except CorruptBatch as error:
            raise self.corrupt(parsed.base_offset, str(error)) from None

    def _unpack(self, view: memoryview, batch: Batch) -> memoryview:
        try:
            return RecordBatch.parse(view, batch.at).decompressed(DECOMPRESSED_BYTES_MAX)
        except CorruptBatch as error:
            raise self.corrupt(batch.base_offset, str(error)) from None
