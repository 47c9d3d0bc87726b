"""Batches that lie one behind the other, as a Fetch or a segment has them: their headers, all at once.

A header says where the next one is, so they are found one through the other, by a loop that does nothing else. Each
field of all headers is then a column of numbers. The same `Frames` serve the code that fetches or
reads the bytes and the decoder: headers are walked once.

A batch is what has magic 2 and a length that fits. Whether it is sound, `bad_crc` tells.
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
"""From the length on: length, leader epoch, magic."""

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
    """Whole batches in some bytes, in their order."""

    def __init__(self, data: Readable, at: Ints, headers: npt.NDArray[np.void], rest: Readable = b"") -> None:
        self.data = data
        self.at = at
        """Where each batch begins in the data."""
        self.rest = rest
        """What lies behind them and is no whole batch; nothing, where these are some of others."""
        self._headers = headers
        self._crcs_checked = False
        self.sizes = self._column("length") + LOG_OVERHEAD
        self.base_offsets = self._column("base_offset")
        self.last_offset_deltas = self._column("last_offset_delta")
        self.attributes = self._column("attributes")
        self.counts = self._column("count")

    @classmethod
    def read(cls, data: Readable) -> "Frames":
        """Of whole batches from the begin of the data on; what is none, or is cut off, ends them."""
        if not isinstance(data, bytes | bytearray):
            data = memoryview(data).cast("B")
        found, end = _find(data)
        at = np.array(found, np.int64)
        # An element at every byte, of which those that are headers are taken.
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
        """Some of them."""
        return self if which.all() else self._chosen(which)

    def between(self, first: int, last: int) -> "Frames":
        """From the first of them on, up to the last and without it."""
        return self._chosen(slice(first, last))

    # -- what headers say ------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Where the last of them ends; 0 where there is none."""
        return int(self.at[-1] + self.sizes[-1]) if len(self) else 0

    @property
    def next_offset(self) -> int | None:
        """Behind the last of them, as it says itself; None where there is none."""
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
        """What the times of a batch's records are relative to; with append time, what they all are."""
        base, largest = self._column("base_timestamp"), self._column("max_timestamp")
        return np.where(self.is_append_time, largest, base)

    # -- what bytes say --------------------------------------------------------------------------------

    def bad_crc(self) -> int | None:
        """The first batch whose bytes are not what they were when they were sent; each is looked at once."""
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
        """What a batch says, and what its bytes give."""
        at = int(self.at[index])
        covered = memoryview(self.data)[at + ATTRIBUTES_AT : at + int(self.sizes[index])]
        return int(self._headers["crc"][index]), crc32c(covered)


def _find(data: Readable) -> tuple[list[int], int]:
    """Where whole batches begin, and where the last of them ends."""
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
