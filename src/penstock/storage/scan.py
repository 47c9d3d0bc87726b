"""Reads the batches of a segment file, front to back.

Used by everything that reads whole files: recovery, index rebuilding, compaction, tools. The file is read in large
steps into a reused buffer, so each batch is valid only until the next one. Bytes that are not a batch raise
`CorruptLog`, with file and position.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, CorruptBatch, RecordBatch
from penstock.records.batch import LENGTH_AT, LENGTH_MIN
from penstock.storage.errors import CorruptLog
from penstock.vfs import File

STEP_BYTES = 1 << 20
"""Beyond 1 MB larger reads are not faster, and the buffer no longer fits into the CPU's cache."""

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Relative offsets and positions in indexes are int32: a segment spans at most this many offsets and bytes."""

BATCH_BYTES_MAX = 128 * 2**20
"""Largest batch: readers would not accept a larger one."""

_LENGTH = Struct(">i")

_WALK = Struct(">qiibIhiqq")
"""The header up to the largest timestamp."""


class BatchPosition(NamedTuple):
    """Position, size, offsets and timestamp of a batch in a segment file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int = -1


def scan_batches(
    file: File, start: int, end: int, *, step: int = STEP_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Each batch between two positions, with its position. CRCs are not checked."""
    buffer = bytearray(min(step, max(end - start, 0)))
    while start < end:
        want = min(len(buffer), end - start)
        filled = file.pread_into(memoryview(buffer)[:want], start)
        consumed = 0
        while filled - consumed >= HEADER_BYTES:
            size = LOG_OVERHEAD + _LENGTH.unpack_from(buffer, consumed + LENGTH_AT)[0]
            left = min(end - start - consumed, BATCH_BYTES_MAX)
            if size > filled - consumed and LENGTH_MIN <= size <= left:
                break  # complete in the file, but not in the buffer
            try:
                if size > BATCH_BYTES_MAX:
                    raise CorruptBatch(f"the batch has {size} bytes, expected at most {BATCH_BYTES_MAX}")
                batch = RecordBatch.parse(memoryview(buffer)[:filled], consumed)
            except KafkaError as error:
                raise CorruptLog(file.path, start + consumed, str(error)) from error
            yield start + consumed, batch
            consumed += size
        if consumed == 0:
            if filled < want:
                raise CorruptLog(file.path, start, f"the file has {start + filled} bytes, expected {end}")
            if end - start < HEADER_BYTES:
                raise CorruptLog(
                    file.path,
                    start,
                    f"{end - start} bytes are left, expected a batch of at least {HEADER_BYTES}",
                )
            buffer = bytearray(
                max(size, 2 * len(buffer)) if filled >= HEADER_BYTES else max(want, HEADER_BYTES)
            )
        start += consumed


def walk_headers(file: File, start: int, end: int, *, step: int = 8192) -> Iterator[BatchPosition]:
    """The position of each batch between two positions, reading little more than headers.

    Used by lookups by offset after the index, so it reads in small steps and creates no other objects.
    """
    while start < end:
        buffer = file.pread(min(step, end - start), start)
        consumed = 0
        while len(buffer) - consumed >= HEADER_BYTES:
            base, length, epoch, magic, _, _, last_delta, _, max_timestamp = _WALK.unpack_from(
                buffer, consumed
            )
            position = start + consumed
            size = LOG_OVERHEAD + length
            if magic != 2 or length < LENGTH_MIN or size > end - position or last_delta < 0:
                raise CorruptLog(
                    file.path,
                    position,
                    f"no batch: magic {magic}, length {length}, expected magic 2 and {LENGTH_MIN} to "
                    f"{end - position - LOG_OVERHEAD} bytes",
                )
            yield BatchPosition(position, size, base, base + last_delta, max_timestamp, epoch)
            consumed += size
        if consumed == 0:
            raise CorruptLog(
                file.path, start, f"{end - start} bytes are left, expected at least {HEADER_BYTES}"
            )
        start += consumed


def next_sound(file: File, start: int, end: int, offset: Offset) -> int | None:
    """Position of the first batch at or after start that is sound and does not go back in offsets.

    The bytes before start are damaged. The end by their length field is tried first, then every position with a
    plausible header: an offset within a segment's range of the expected one, a possible length, magic 2, known
    attributes.
    """
    length = int.from_bytes(file.pread(4, start - 1 + LENGTH_AT), "big")
    likely = start - 1 + LOG_OVERHEAD + length
    if start < likely and _is_sound(file, likely, end, offset):
        return likely
    shape = _shape_of_header(offset)
    while start + HEADER_BYTES <= end:
        block = file.pread(min(STEP_BYTES, end - start), start)
        found = shape.search(block)
        while found is not None:
            if _is_sound(file, start + found.start(), end, offset):
                return start + found.start()
            found = shape.search(block, found.start() + 1)
        start += max(len(block) - HEADER_BYTES + 1, 1)
    return None


def _shape_of_header(offset: Offset) -> re.Pattern[bytes]:
    reach = {offset >> 32, (offset + RELATIVE_OFFSET_MAX) >> 32}
    highs = b"|".join(re.escape(high.to_bytes(4, "big")) for high in sorted(reach))
    # base offset 8, length 4, leader epoch 4, magic 1, CRC 4, attributes 2
    return re.compile(rb"(?:%b).{4}[\x00-\x08].{3}.{4}\x02.{4}\x00[\x00-\x7f]" % highs, re.DOTALL)


def _is_sound(file: File, position: int, end: int, offset: Offset) -> bool:
    """Whether there is a sound batch at a position, at or after an offset."""
    header = file.pread(HEADER_BYTES, position)
    if position + HEADER_BYTES > end or len(header) < HEADER_BYTES:
        return False
    base_offset, length = (
        int.from_bytes(header[:8], "big", signed=True),
        _LENGTH.unpack_from(header, LENGTH_AT)[0],
    )
    size = LOG_OVERHEAD + length
    if not (length >= LENGTH_MIN and size <= min(end - position, BATCH_BYTES_MAX) and base_offset >= offset):
        return False
    try:
        return RecordBatch.parse(file.pread(size, position)).crc_valid()
    except KafkaError:
        return False
