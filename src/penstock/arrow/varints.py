"""Zigzag varints, many at once.

A varint is read from the eight bytes that start at its position, taken as one little-endian word. The first byte
without its top bit ends it; what lies beyond is masked away, and the groups of seven bits that are left are pushed
together in three steps, all without a loop over bytes or over numbers:

    word    ...... 0000_0011 1010_1100      two bytes: 0xAC goes on, 0x03 does not
    masked  ...... 0000_0011 0010_1100
    packed  ...... 00_0001_1010_1100        428, which is 214 after zigzag

Words near the end of the bytes are read as if zeros followed. The caller must know where the numbers
have to end, and compare: a number that is cut off ends too late.
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
"""In place of a number that does not fit its bits or never ends. No length and no difference of offsets is
that small, and neither is a time: every check of a range finds it."""

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

    def pairs(self, positions: Ints) -> Pairs:
        """The two bytes at each position; the last one of all stands for those that would follow."""
        first, second = (
            self.bytes.take(each, mode="clip").astype(np.uint16) for each in (positions, positions + 1)
        )
        return first | (second << _W(8))


class Cursor:
    """A place in each record, from which numbers are read in turn.

    A word is fetched at the begin and used up: four short numbers in a row take one look at the memory. Most numbers
    have one byte or two, and are read as pairs of bytes, at a quarter of what words cost; most often all that are
    read in step have the same width, and then their words move on together.
    """

    def __init__(self, source: Source, at: Ints) -> None:
        self._source = source
        self._at = at
        self._passed: Widths | Ints | int = 0
        """Bytes behind `_at`, of each or of all alike."""
        self._words: Words
        self._left = 0
        """Bytes that every word still has."""
        self._fetch()

    @property
    def at(self) -> Ints:
        """The place. Never changed in place, so it may be kept."""
        self._at, self._passed = self._at + self._passed, 0
        return self._at

    def skip(self, sizes: Ints) -> None:
        """Pass what is not a number."""
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
        """The next number of each, of 32 bits."""
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
        """The next number of each, of 64 bits."""
        short = self._look_short()
        if short is not None:
            self._pass(short.width, short.width_max)
            return short.numbers()
        width, width_max, mask = self._look()
        numbers = _unzigzag(_packed(self._words & mask, width_max))
        if width_max == WORD_BYTES:  # times so far from the first are rare, and are read one by one
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
        """The next number of each, if none of them has more than two bytes."""
        if self._left > 0:
            short = _Short(self._words.astype(np.uint16))
            if short.width_max <= self._left:
                return short if short.width_max <= _SHORT_BYTES else None
            self._left = 0  # one of them goes on past its word
        short = _Short(self._source.pairs(self.at))
        return short if short.width_max <= _SHORT_BYTES else None

    def _look(self) -> tuple[Ints, int, Words]:
        """How many bytes the next number of each has, the most of these, and the bits that are its own."""
        while True:
            if self._left <= 0:
                self._fetch()
            stops = ~self._words & _TOP_BITS
            mask = stops ^ (stops - _ONE)  # up to the first byte that ends a number; all bits if none does
            width = (np.bitwise_count(mask) >> 3).astype(np.int64)
            width_max = int(width.max(initial=0))
            if width_max <= self._left:
                mask &= _LOW_BITS
                return width, width_max, mask
            self._left = 0  # one of them goes on past its word

    def _pass(self, width: Widths | Ints | int, width_max: int) -> None:
        self._passed = self._passed + width
        self._left -= width_max
        if self._left > 0:
            bits = _U(width << 3) if isinstance(width, int) else (width << 3).astype(_U)
            self._words = self._words >> bits


class _Short:
    """The number at the begin of each pair of bytes, where none has more than these."""

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
        """In bytes; one number where all are alike."""
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
