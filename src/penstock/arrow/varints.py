"""Decodes and encodes many zigzag varints at once.

A varint is decoded from the eight bytes at its position, read as one little-endian word. The first byte without its
top bit ends it; the bytes after it are masked out, and the remaining groups of seven bits are packed in three steps,
without a loop over bytes or numbers:

    word    ...... 0000_0011 1010_1100      two bytes: 0xAC is continued, 0x03 is the last
    masked  ...... 0000_0011 0010_1100
    packed  ...... 00_0001_1010_1100        428, which is 214 after zigzag

Words near the end of the data are padded with zeros. The caller must compare the end of the numbers with the end of
the data: a truncated number ends too late.
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
Pairs: TypeAlias = npt.NDArray[np.uint16]
Widths: TypeAlias = npt.NDArray[np.uint16]

WORD_BYTES: Final = 8

MALFORMED: Final = -(1 << 62)
"""Result for a number that is too large or has no end. No valid length, offset delta or time is that small, so
every range check detects it."""

_SHORT_BYTES: Final = 2

_W = np.uint16
_PAIR_TOPS = _W(0x8080)
_FIRST_TOP = _W(0x80)

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
    """Bytes that hold varints, with a view of the word at each position."""

    def __init__(self, data: Readable) -> None:
        if len(data) < WORD_BYTES:
            data = bytes(data) + bytes(WORD_BYTES)
        self.data = data
        self.buffer: pa.Buffer = pa.py_buffer(data)
        self.bytes: Bytes = np.frombuffer(data, np.uint8)
        self._last_word = len(data) - WORD_BYTES
        self._words: Words = np.ndarray((self._last_word + 1,), "<u8", data, strides=(1,))

    def words(self, positions: Ints) -> Words:
        """The eight bytes at each position. Positions are not negative."""
        last = self._last_word
        if not positions.size or positions.max() <= last:
            found: Words = self._words[positions]
            return found
        there = np.minimum(positions, last)
        # In numpy a shift by 64 bits or more gives 0, which is the padding.
        near: Words = self._words[there] >> ((positions - there) << 3).astype(_U)
        return near

    def pairs(self, positions: Ints) -> Pairs:
        """The two bytes at each position; past the end, the last pair."""
        first, second = (
            self.bytes.take(each, mode="clip").astype(np.uint16) for each in (positions, positions + 1)
        )
        return first | (second << _W(8))


class Cursor:
    """A position in each record, from which consecutive numbers are read.

    A word is loaded once and consumed: four short numbers take one memory access. Most numbers have one or two
    bytes, and are read as pairs of bytes, at a quarter of the cost of words. Usually all numbers read together have
    the same width, and then their words are shifted together.
    """

    def __init__(self, source: Source, at: Ints) -> None:
        self._source = source
        self._at = at
        self._passed: Widths | Ints | int = 0
        """Bytes after `_at`, per record or for all."""
        self._words: Words
        self._left = 0
        """Unread bytes in every word."""
        self._fetch()

    @property
    def at(self) -> Ints:
        """The positions. The array is never modified, so callers may keep it."""
        self._at, self._passed = self._at + self._passed, 0
        return self._at

    def skip(self, sizes: Ints) -> None:
        """Skip bytes that are not numbers."""
        self._at, self._passed = self._at + (self._passed + sizes), 0
        self._left = 0

    def skip_varint(self, extra: int) -> None:
        """Skip a number, and `extra` bytes after it."""
        short = self._look_short()
        if short is None:
            width, width_max, _ = self._look()
            self._pass(width + extra, width_max + extra)
        else:
            self._pass(short.width + extra, short.width_max + extra)

    def varints(self) -> Ints:
        """Read the next 32-bit number of each record."""
        short = self._look_short()
        if short is not None:
            self._pass(short.width, short.width_max)
            return short.numbers()
        width, width_max, mask = self._look()
        bits = _packed(self._words & mask, width_max)
        numbers = _unzigzag(bits)
        if width_max >= 5:
            numbers[(width > 5) | (bits >> _U(32) != 0)] = MALFORMED
        self._pass(width, width_max)
        return numbers

    def varlongs(self) -> Ints:
        """Read the next 64-bit number of each record."""
        short = self._look_short()
        if short is not None:
            self._pass(short.width, short.width_max)
            return short.numbers()
        width, width_max, mask = self._look()
        numbers = _unzigzag(_packed(self._words & mask, width_max))
        if width_max == WORD_BYTES:  # such large time deltas are rare, and are read one by one
            places = self.at
            for index in np.flatnonzero(width == WORD_BYTES):
                at = int(places[index])
                try:
                    number, end = decode_varlong(self._source.data, at)
                except CorruptBatch:
                    number, end = MALFORMED, at + 1
                numbers[index], width[index] = number, end - at
        self._pass(width, width_max)
        return numbers

    def _fetch(self) -> None:
        self._words = self._source.words(self.at)
        self._left = WORD_BYTES

    def _look_short(self) -> "_Short | None":
        """The next number of each record, if none has more than two bytes."""
        if self._left > 0:
            short = _Short(self._words.astype(np.uint16))
            if short.width_max <= self._left:
                return short if short.width_max <= _SHORT_BYTES else None
            self._left = 0  # a number continues past its word
        short = _Short(self._source.pairs(self.at))
        return short if short.width_max <= _SHORT_BYTES else None

    def _look(self) -> tuple[Ints, int, Words]:
        """Width of the next number of each record in bytes, the maximum width, and its bits."""
        while True:
            if self._left <= 0:
                self._fetch()
            stops = ~self._words & _TOP_BITS
            mask = stops ^ (
                stops - _ONE
            )  # up to the first byte that ends a number; all bits if there is none
            width = (np.bitwise_count(mask) >> 3).astype(np.int64)
            width_max = int(width.max(initial=0))
            if width_max <= self._left:
                mask &= _LOW_BITS
                return width, width_max, mask
            self._left = 0  # a number continues past its word

    def _pass(self, width: Widths | Ints | int, width_max: int) -> None:
        self._passed = self._passed + width
        self._left -= width_max
        if self._left > 0:
            bits = _U(width << 3) if isinstance(width, int) else (width << 3).astype(_U)
            self._words = self._words >> bits


class _Short:
    """The number at the start of each pair of bytes, if none is longer."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        tops = self._pairs & _PAIR_TOPS
        self._goes_on = (tops & _FIRST_TOP) >> _W(7)
        """1 for each number that has a second byte, 0 for others."""
        self._is_any_long = bool(self._goes_on.max(initial=0))
        self.width_max = 1 + self._is_any_long
        if int(tops.max(initial=0)) == _PAIR_TOPS:
            self.width_max = WORD_BYTES  # a third byte, or more

    @property
    def width(self) -> Widths | int:
        """In bytes; one number if all are equal."""
        if self._goes_on.min(initial=1) == self._is_any_long:
            return self.width_max
        return self._goes_on + _W(1)

    def numbers(self) -> Ints:
        bits = self._pairs & _W(0x7F)
        if self._is_any_long:
            bits |= (self._pairs >> _W(1)) & (_W(0x3F80) * self._goes_on)
        signed = (bits >> _W(1)) ^ (_W(0) - (bits & _W(1)))
        return signed.view(np.int16).astype(np.int64)


def _packed(groups: Words, width_max: int) -> Words:
    """Pack groups of seven bits."""
    for reach, (low, high, shift) in zip((1, 2, 4), _PACKING, strict=True):
        if width_max <= reach:
            break
        groups = (groups & low) | ((groups & high) >> shift)
    return groups


def _unzigzag(bits: Words) -> Ints:
    numbers: Ints = ((bits >> _ONE) ^ (_U(0) - (bits & _ONE))).view(np.int64)
    return numbers


def varint_widths(numbers: Ints) -> Ints:
    """Encoded size of each number in bytes."""
    bits_of = zigzag(numbers)
    widths = np.ones(len(numbers), np.int64)
    highest = int(bits_of.max(initial=0))
    bits = 7
    while highest >> bits:
        widths += bits_of >> _U(bits) != 0
        bits += 7
    return widths


def spread(numbers: Ints, widths: Ints) -> Words:
    """Encode each number as a varint in a word. Numbers have at most 55 bits, as all lengths and Spark's times do."""
    words = zigzag(numbers)
    for low, high, shift in reversed(_PACKING):
        words = (words & low) | ((words << shift) & high)
    goes_on: Words = _TOP_BITS & ((_ONE << ((widths - 1) << 3).astype(_U)) - _ONE)
    return words | goes_on


def zigzag(numbers: Ints) -> Words:
    bits: Words = ((numbers << 1) ^ (numbers >> 63)).view(_U)
    return bits
