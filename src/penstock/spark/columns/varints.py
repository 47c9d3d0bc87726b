"""Zigzag varints, many at once.

A varint is read from the eight bytes that start at its position, taken as one little-endian word. The first byte
without its top bit ends it; what lies beyond is masked away, and the groups of seven bits that are left are pushed
together in three steps, all without a loop over bytes or over numbers:

    word    ...... 0000_0011 1010_1100      two bytes: 0xAC goes on, 0x03 does not
    masked  ...... 0000_0011 0010_1100
    packed  ...... 00_0001_1010_1100        428, which is 214 after zigzag

Words near the end of the bytes are read as if zeros followed. Whoever asks must know where the numbers have to end,
and compare: a number that is cut off shows as one that ends too late.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records import CorruptBatch
from penstock.records.varint import Readable, decode_varlong

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]

WORD_BYTES: Final = 8

MALFORMED: Final = -(1 << 62)
"""In place of a number that does not fit its bits or never ends. No length and no difference of offsets is
that small, and neither is a time: every check of a range finds it."""

_U = np.uint64
_ONE = _U(1)
_TOP_BITS = _U(0x8080_8080_8080_8080)
_LOW_BITS = _U(0x7F7F_7F7F_7F7F_7F7F)
_PACKING = (
    (_U(0x007F_007F_007F_007F), _U(0x7F00_7F00_7F00_7F00), _ONE),
    (_U(0x0000_3FFF_0000_3FFF), _U(0x3FFF_0000_3FFF_0000), _U(2)),
    (_U(0x0000_0000_0FFF_FFFF), _U(0x0FFF_FFFF_0000_0000), _U(4)),
)


class Source:
    """Bytes that hold varints, and a view of the word at each of them."""

    def __init__(self, data: Readable) -> None:
        if len(data) < WORD_BYTES:
            data = bytes(data) + bytes(WORD_BYTES)
        self.data = data
        self.buffer: pa.Buffer = pa.py_buffer(data)
        self.bytes: Bytes = np.frombuffer(data, np.uint8)
        self._last_word = len(data) - WORD_BYTES
        self._words: Words = np.ndarray((self._last_word + 1,), "<u8", data, strides=(1,))

    def words(self, positions: Ints) -> Words:
        """The eight bytes at each position, of which none is negative."""
        last = self._last_word
        if not positions.size or positions.max() <= last:
            found: Words = self._words[positions]
            return found
        there = np.minimum(positions, last)
        # A shift by 64 bits or more gives 0 in numpy, and that is what lies past the end.
        near: Words = self._words[there] >> ((positions - there) << 3).astype(_U)
        return near


class Cursor:
    """A place in each record, from which numbers are read in turn.

    A word is used up before the next is fetched: four short numbers in a row take one look at the memory.
    """

    def __init__(self, source: Source, at: Ints) -> None:
        self.at = at
        """The place. Never changed in place, so it may be kept."""
        self._source = source
        self._left = 0
        """Bytes that every word still has."""
        self._words: Words

    def skip(self, sizes: Ints) -> None:
        """Pass what is not a number."""
        self.at = self.at + sizes
        self._left = 0

    def skip_varint(self, extra: int) -> None:
        """Pass a number, and so many bytes after it."""
        width, width_max, _ = self._look()
        self._pass(width + extra, width_max + extra)

    def varints(self) -> Ints:
        """The next number of each, of 32 bits."""
        width, width_max, mask = self._look()
        bits = _packed(self._words & mask, width_max)
        numbers = _unzigzag(bits)
        if width_max >= 5:
            numbers[(width > 5) | (bits >> _U(32) != 0)] = MALFORMED
        self._pass(width, width_max)
        return numbers

    def varlongs(self) -> Ints:
        """The next number of each, of 64 bits."""
        width, width_max, mask = self._look()
        numbers = _unzigzag(_packed(self._words & mask, width_max))
        if width_max == WORD_BYTES:  # times so far from the first are rare, and are read one by one
            for index in np.flatnonzero(width == WORD_BYTES):
                at = int(self.at[index])
                try:
                    number, end = decode_varlong(self._source.data, at)
                except CorruptBatch:
                    number, end = MALFORMED, at + 1
                numbers[index], width[index] = number, end - at
        self._pass(width, width_max)
        return numbers

    def _look(self) -> tuple[Ints, int, Words]:
        """How many bytes the next number of each has, the most of these, and the bits that are its own."""
        while True:
            if self._left <= 0:
                self._words = self._source.words(self.at)
                self._left = WORD_BYTES
            stops = ~self._words & _TOP_BITS
            mask = stops ^ (stops - _ONE)  # up to the first byte that ends a number; all bits if none does
            width = (np.bitwise_count(mask) >> 3).astype(np.int64)
            width_max = int(width.max(initial=0))
            if width_max <= self._left:
                mask &= _LOW_BITS
                return width, width_max, mask
            self._left = 0  # one of them goes on past its word

    def _pass(self, width: Ints, width_max: int) -> None:
        self.at = self.at + width
        self._left -= width_max
        if self._left > 0:
            self._words = self._words >> (width << 3).astype(_U)


def _packed(groups: Words, width_max: int) -> Words:
    """Groups of seven bits, pushed together."""
    for reach, (low, high, shift) in zip((1, 2, 4), _PACKING, strict=True):
        if width_max <= reach:
            break
        groups = (groups & low) | ((groups & high) >> shift)
    return groups


def _unzigzag(bits: Words) -> Ints:
    numbers: Ints = ((bits >> _ONE) ^ (_U(0) - (bits & _ONE))).view(np.int64)
    return numbers


def varint_widths(numbers: Ints) -> Ints:
    """How many bytes each takes."""
    bits_of = zigzag(numbers)
    widths = np.ones(len(numbers), np.int64)
    highest = int(bits_of.max(initial=0))
    bits = 7
    while highest >> bits:
        widths += bits_of >> _U(bits) != 0
        bits += 7
    return widths


def spread(numbers: Ints, widths: Ints) -> Words:
    """Each number as a varint in a word of its own. It has 55 bits at most, as all lengths and Spark's times do."""
    words = zigzag(numbers)
    for low, high, shift in reversed(_PACKING):
        words = (words & low) | ((words << shift) & high)
    goes_on: Words = _TOP_BITS & ((_ONE << ((widths - 1) << 3).astype(_U)) - _ONE)
    return words | goes_on


def zigzag(numbers: Ints) -> Words:
    bits: Words = ((numbers << 1) ^ (numbers >> 63)).view(_U)
    return bits
