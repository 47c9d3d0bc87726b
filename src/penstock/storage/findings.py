"""Reads segment files that may be damaged, for tools.

Other readers stop at the first bytes that are not a batch. `read_through` reports the damage and continues at the next
sound batch. The checks report their results as `Finding`s.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Literal, NamedTuple

from penstock.base.ids import Offset
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from penstock.records.batch import ATTRIBUTES_AT, LENGTH_AT, LENGTH_MIN, MAGIC, MAGIC_AT
from penstock.records.checksum import crc32c
from penstock.storage.errors import CorruptLog
from penstock.storage.scan import next_sound, scan_batches
from penstock.vfs import File

Severity = Literal["error", "note"]
"""An error breaks a rule of the format. A note is normal in some situations."""


class Finding(NamedTuple):
    severity: Severity
    path: str
    position: int | None
    """Byte in the file; None for the whole file."""
    problem: str
    found: str = ""
    expected: str = ""

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path} at position {self.position}"
        found = f", found {self.found}" if self.found else ""
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{where}: {self.problem}{found}{expected}"


@dataclass
class Tally:
    """Counts of what a check has read and found."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    errors: int = 0
    notes: int = 0


Progress = Callable[[int], None]
"""Called with the number of log bytes read since the last call."""


def ignore_progress(_: int) -> None:
    pass


class SegmentPiece(NamedTuple):
    """A stretch of a segment file: one sound batch, or damage up to the next one."""

    position: int
    size: int
    batch: RecordBatch | None
    """Valid until the next piece is read. Set, but not to be trusted, if only its CRC is wrong."""
    problem: str = ""
    """Empty for a sound batch."""
    found: str = ""
    expected: str = ""

    @property
    def is_sound(self) -> bool:
        return not self.problem


def read_through(file: File, start: int, end: int, *, floor: Offset = 0) -> Iterator[SegmentPiece]:
    """All pieces between two positions. No batch has an offset below `floor`."""
    position = start
    while position < end:
        try:
            for at, batch in scan_batches(file, position, end):
                position = at
                piece = _judge(file, at, batch, end, floor)
                yield piece
                position = at + piece.size
                if piece.size != batch.size:
                    break
        except CorruptLog as error:
            # A live log may have been cut while we read: what is past its end now is not damage.
            end = min(end, file.size())
            if error.position >= end:
                return
            found, expected = _describe(file, error.position, end)
            after = next_sound(file, error.position + 1, end, floor) or end
            yield SegmentPiece(
                error.position, after - error.position, None, "no record batch", found, expected
            )
            position = after


def _judge(file: File, position: int, batch: RecordBatch, end: int, floor: Offset) -> SegmentPiece:
    actual = crc32c(batch.view[ATTRIBUTES_AT:])
    if actual == batch.crc:
        return SegmentPiece(position, batch.size, batch)
    size = batch.size
    if not _may_begin(file, position + size, end):
        # The length is as doubtful as the rest.
        size = (next_sound(file, position + 1, end, floor) or end) - position
    found, expected = f"CRC {batch.crc:#010x}", f"{actual:#010x}, which its bytes give"
    return SegmentPiece(position, size, batch, "CRC mismatch", found, expected)


def _may_begin(file: File, position: int, end: int) -> bool:
    """Whether a position is the end, or looks like the beginning of a batch."""
    header = file.pread(MAGIC_AT + 1, position)
    if position == end or len(header) <= MAGIC_AT:
        return position == end
    length = int.from_bytes(header[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    return header[MAGIC_AT] == MAGIC and LENGTH_MIN <= length <= end - position - LOG_OVERHEAD


def _describe(file: File, position: int, end: int) -> tuple[str, str]:
    """What is found in a batch's place, and what was expected."""
    left = end - position
    if left < HEADER_BYTES:
        return f"{left} bytes to the end of the file", f"a batch of at least {HEADER_BYTES}"
    header = file.pread(HEADER_BYTES, position)
    if not any(header):
        return "zeros", "a record batch"
    length = int.from_bytes(header[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    return (
        f"magic {header[MAGIC_AT]}, length {length}",
        f"magic {MAGIC}, length {LENGTH_MIN} to {left - LOG_OVERHEAD}",
    )


# -- entries of index files ------------------------------------------------------------------------------

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TXN_ENTRY = Struct(">hqqqq")
_BLOCK_ENTRIES = 4096


class RawEntry(NamedTuple):
    position: int
    """Of the entry in the index file."""
    fields: tuple[int, ...]


def read_entries(file: File, size: int, layout: Struct) -> Iterator[RawEntry]:
    """Each whole entry of an index file, as the numbers that are there."""
    block = layout.size * _BLOCK_ENTRIES
    for start in range(0, size // layout.size * layout.size, block):
        data = file.pread(min(block, size - start), start)
        data = data[: len(data) // layout.size * layout.size]
        for number, fields in enumerate(layout.iter_unpack(data)):
            yield RawEntry(start + number * layout.size, fields)


def is_zero_from(file: File, position: int, size: int) -> bool:
    """Whether nothing but zeros follows: Kafka makes index files at full size and trims them at a clean stop."""
    step = 1 << 20
    return not any(any(file.pread(min(step, size - at), at)) for at in range(position, size, step))
