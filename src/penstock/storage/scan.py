"""Walking the batches of a segment file, front to back.

Every reader of whole files (recovery, index rebuilding, the cleaner, the tools) goes through here. The file
is read in large steps into one buffer that is used again, so a batch is a view that is good only until the
next one is asked for. What is not a batch ends the walk with `CorruptLog`, which names file and position.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from penstock.storage.errors import CorruptLog
from penstock.vfs import File

STEP_BYTES = 1 << 20
"""As large as pays: beyond 1 MB a read costs the same for each byte, and the buffer leaves the CPU's cache."""

_LENGTH = Struct(">i")
_LENGTH_AT = 8
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD

_WALK = Struct(">qiibIhiqq")
"""The header up to the largest timestamp: all that finding a batch needs."""


class Spot(NamedTuple):
    """Where a batch lies in its segment file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int = -1


def scan_batches(
    file: File, start: int, end: int, *, step: int = STEP_BYTES
) -> Iterator[tuple[int, RecordBatch]]:
    """Each batch between two positions, with its position; its CRC is for the caller to check."""
    buffer = bytearray(min(step, max(end - start, 0)))
    while start < end:
        want = min(len(buffer), end - start)
        filled = file.pread_into(memoryview(buffer)[:want], start)
        consumed = 0
        while filled - consumed >= HEADER_BYTES:
            size = LOG_OVERHEAD + _LENGTH.unpack_from(buffer, consumed + _LENGTH_AT)[0]
            if size > filled - consumed and LENGTH_MIN <= size <= end - start - consumed:
                break  # whole in the file, not in the buffer
            try:
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


def walk_headers(file: File, start: int, end: int, *, step: int = 8192) -> Iterator[Spot]:
    """Where each batch between two positions lies, reading little more than headers.

    Small steps and no objects but the result: this is what a look-up by offset does after the index.
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
            yield Spot(position, size, base, base + last_delta, max_timestamp, epoch)
            consumed += size
        if consumed == 0:
            raise CorruptLog(
                file.path, start, f"{end - start} bytes are left, expected at least {HEADER_BYTES}"
            )
        start += consumed


def next_sound(file: File, start: int, end: int, offset: Offset) -> int | None:
    """Position of the first batch at or after start that is sound and does not go back in offsets.

    A batch has its magic, 2, as its 17th byte: each such byte is tried.
    """
    step = 1 << 20
    while start + HEADER_BYTES <= end:
        block = file.pread(min(step, end - start), start)
        at = block.find(2, 16)
        while at >= 0 and at - 16 + HEADER_BYTES <= len(block):
            position = start + at - 16
            length = int.from_bytes(block[at - 8 : at - 4], "big", signed=True)
            base_offset = int.from_bytes(block[at - 16 : at - 8], "big", signed=True)
            if HEADER_BYTES - 12 <= length <= end - position - 12 and base_offset >= offset:
                try:
                    if RecordBatch.parse(file.pread(12 + length, position)).crc_valid():
                        return position
                except KafkaError:
                    pass
            at = block.find(2, at + 1)
        start += max(len(block) - HEADER_BYTES + 1, 1)
    return None
