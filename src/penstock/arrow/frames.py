"""Parses the headers of consecutive batches, as in a Fetch response or a segment, all at once.

A header gives the position of the next one, so a small loop finds all positions. Each field of all headers is then a
column of numbers. The reader of the bytes and the decoder share one `Frames`, so headers are parsed once.

A batch is anything with magic 2 and a possible length. `bad_crc` checks its contents.
"""

from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.arrow.varints import Ints
from penstock.records import HEADER_BYTES, LOG_OVERHEAD
from penstock.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_MASK,
    LENGTH_AT,
    LENGTH_MIN,
    LOG_APPEND_TIME_MASK,
    MAGIC,
    TRANSACTIONAL_MASK,
)
from penstock.records.checksum import crc32c
from penstock.records.varint import Readable

Mask = npt.NDArray[np.bool_]

_SHAPE: Final = Struct(">i4xb")
"""Starting at the length field: length, leader epoch, magic."""

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES


class Frames:
    """The complete batches in some bytes, in order."""

    def __init__(self, data: Readable, at: Ints, headers: npt.NDArray[np.void], rest: Readable = b"") -> None:
        self.data = data
        self.at = at
        """Start of each batch in the data."""
        self.rest = rest
        """The bytes after them that are not a complete batch; empty for a selection of batches."""
        self._headers = headers
        self._crcs_checked = False
        self.sizes = self._column("length") + LOG_OVERHEAD
        self.base_offsets = self._column("base_offset")
        self.last_offset_deltas = self._column("last_offset_delta")
        self.attributes = self._column("attributes")
        self.counts = self._column("count")

    @classmethod
    def read(cls, data: Readable) -> "Frames":
        """Parse complete batches from the start of the data, up to the first that is invalid or incomplete."""
        if not isinstance(data, bytes | bytearray):
            data = memoryview(data).cast("B")
        found, end = _find(data)
        at = np.array(found, np.int64)
        # A view with an element at every byte, from which the headers are selected.
        everywhere = np.ndarray(
            (max(len(data) - HEADER_BYTES + 1, 0),), f"V{HEADER_BYTES}", data, strides=(1,)
        )
        return cls(data, at, everywhere[at].view(_HEADER), memoryview(data)[end:])

    def __len__(self) -> int:
        return len(self.at)

    def _column(self, name: str) -> Ints:
        return self._headers[name].astype(np.int64)

    def _chosen(self, which: Mask | slice) -> "Frames":
        chosen = Frames(self.data, self.at[which], self._headers[which])
        chosen._crcs_checked = self._crcs_checked
        return chosen

    def only(self, which: Mask) -> "Frames":
        """A selection of batches."""
        return self if which.all() else self._chosen(which)

    def between(self, first: int, last: int) -> "Frames":
        """The batches from first up to last, exclusive."""
        return self._chosen(slice(first, last))

    # -- header fields ---------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """End of the last batch; 0 if there is none."""
        return int(self.at[-1] + self.sizes[-1]) if len(self) else 0

    @property
    def next_offset(self) -> int | None:
        """Offset after the last batch, from its header; None if there is none."""
        return int(self.base_offsets[-1]) + int(self.last_offset_deltas[-1]) + 1 if len(self) else None

    @property
    def last_offsets(self) -> Ints:
        return self.base_offsets + self.last_offset_deltas

    @property
    def producer_ids(self) -> Ints:
        return self._column("producer_id")

    @property
    def codecs(self) -> Ints:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> Mask:
        return self._has(CONTROL_MASK)

    @property
    def is_transactional(self) -> Mask:
        return self._has(TRANSACTIONAL_MASK)

    @property
    def is_append_time(self) -> Mask:
        return self._has(LOG_APPEND_TIME_MASK)

    def _has(self, attribute: int) -> Mask:
        found: Mask = self.attributes & attribute != 0
        return found

    @property
    def timestamps(self) -> Ints:
        """Base of the records' timestamps; with append time, the timestamp of all records."""
        base, largest = self._column("base_timestamp"), self._column("max_timestamp")
        return np.where(self.is_append_time, largest, base)

    # -- CRCs ------------------------------------------------------------------------------------------

    def bad_crc(self) -> int | None:
        """Index of the first batch with a wrong CRC; each batch is checked once."""
        if self._crcs_checked:
            return None
        view = memoryview(self.data)
        begins, ends = (self.at + ATTRIBUTES_AT).tolist(), (self.at + self.sizes).tolist()
        found = [crc32c(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        wrong = np.flatnonzero(np.array(found, np.int64) != self._headers["crc"])
        if len(wrong):
            return int(wrong[0])
        self._crcs_checked = True
        return None

    def crcs(self, index: int) -> tuple[int, int]:
        """The CRC in a batch's header, and the CRC of its bytes."""
        at = int(self.at[index])
        covered = memoryview(self.data)[at + ATTRIBUTES_AT : at + int(self.sizes[index])]
        return int(self._headers["crc"][index]), crc32c(covered)


def _find(data: Readable) -> tuple[list[int], int]:
    """Starts of complete batches, and the end of the last."""
    found: list[int] = []
    at, end = 0, len(data)
    shape_at, append = _SHAPE.unpack_from, found.append
    while end - at >= HEADER_BYTES:
        length, magic = shape_at(data, at + LENGTH_AT)
        behind = at + LOG_OVERHEAD + length
        if magic != MAGIC or length < LENGTH_MIN or behind > end:
            break
        append(at)
        at = behind
    return found, at
