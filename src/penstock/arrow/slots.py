"""Writes the varints of many records at once.

Each record has a slot of bytes, wide enough for the largest numbers. A number is written as a whole word; the next
number overwrites the bytes after its end, and the bytes after the last number are ignored.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.arrow.arrays import gather
from penstock.arrow.varints import WORD_BYTES, Ints, Words, spread, varint_widths

SLOT_BYTES: Final = 40
"""A record's length, attributes, timestamp, offset and two more lengths take at most 29; plus the rest of a word."""


class Slots:
    def __init__(self, count: int) -> None:
        self._data = pa.allocate_buffer(max(1, count) * SLOT_BYTES)
        self._words: Words = np.ndarray((self._data.size - WORD_BYTES + 1,), "<u8", self._data, strides=(1,))
        self._begins = np.arange(0, count * SLOT_BYTES, SLOT_BYTES)
        self._ends = self._begins

    def varints(self, numbers: Ints) -> None:
        """Append a number to each slot."""
        widths = varint_widths(numbers)
        self._words[self._ends] = spread(numbers, widths)
        self._ends = self._ends + widths

    def zero_byte(self) -> None:
        self._words[self._ends] = 0
        self._ends = self._ends + 1

    def array(self) -> pa.Array:
        """The bytes written, one element per slot."""
        return gather(self._data, self._begins, self._ends)
