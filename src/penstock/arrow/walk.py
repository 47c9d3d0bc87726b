"""Finds the start of each record.

The length of a record gives the start of the next, so this is the one sequential part of decoding. There are two
methods:

    in parallel    walks from many positions at once: starts of batches, and guesses inside large ones
                   (`speculative_starts`). A table maps the first two bytes of a record to the distance to the next.
    one by one     a plain loop, for few records, and for records that the table does not have: those of more
                   than 8 KB, and those with invalid lengths.

A walk through a batch is valid if it takes as many steps as the batch has records and ends at the end of the batch.
All starts are then inside the batch, because positions only increase.
"""

from itertools import pairwise, repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.arrow.speculative_starts import LANE_RECORDS, Places, lanes
from penstock.arrow.varints import Ints, Source
from penstock.records import CorruptBatch
from penstock.records.varint import Readable, decode_varint

RECORD_BYTES_MIN: Final = 7
"""Minimum size of a record: length, attributes, and five numbers of one byte each."""

_LOCKSTEP_US: Final = 8.0
"""Approximate cost of one step of all walks: a few numpy calls on short arrays."""
_SINGLE_US: Final = 0.09
"""Approximate cost of one step of the plain loop."""

_ROUND: Final = 32
"""Finished walks are dropped after this many steps."""

_COPY_BYTES_MAX: Final = 400
"""Records up to about this size are copied first: indexing bytes is twice as fast as indexing a view."""

_STRAY: Final = 1 << 40
"""Step for a negative length: leads out of every batch."""


def _make_table() -> npt.NDArray[np.int64]:
    """Maps the first two bytes, as a little-endian number, to the distance to the next record; 0 if unknown."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    steps = np.zeros(1 << 16, np.int64)
    is_short = (first < 0x80) & (first & 1 == 0)
    is_long = (first >= 0x80) & (second < 0x80) & (first & 1 == 0)
    steps[is_short] = (first[is_short] >> 1) + 1
    steps[is_long] = ((first[is_long] & 0x7F) >> 1) + (second[is_long] << 6) + 2
    steps[steps < RECORD_BYTES_MIN] = 0
    return steps


_STEPS: Final = _make_table()
_SHORT: Final = [_STRAY if byte & 1 else (byte >> 1) + 1 for byte in range(0x80)]
"""Steps for lengths of one byte."""
_LONG: Final = [
    [_STRAY if first & 1 else ((first & 0x7F) >> 1) + (second << 6) + 2 for first in range(256)]
    if second < 0x80
    else [0] * 256
    for second in range(256)
]
"""Steps for lengths of two bytes, by the second byte, then the first; 0 for longer lengths."""


def record_starts(source: Source, begins: Places, ends: Places, counts: Places) -> Ints | int:
    """The start of every record in order; or the index of an invalid batch."""
    steps_max = min(int(np.max(counts)), 2 * LANE_RECORDS)
    if steps_max * _LOCKSTEP_US < int(np.sum(counts)) * _SINGLE_US:
        starts = _in_lockstep(source, begins, ends, counts)
        if starts is not None:
            return starts
    return _one_by_one(source, begins, ends, counts)


def _in_lockstep(source: Source, begins: Places, ends: Places, counts: Places) -> Ints | None:
    at, stop = lanes(source, _STEPS, begins, ends, counts)
    pairs = np.ndarray((len(source.data) - 1,), "<u2", source.data, strides=(1,))
    last_pair = len(pairs) - 1
    found = []
    left = int(np.max(counts))
    while left > 0 and at.size:
        steps = min(left, _ROUND)
        passed = np.empty((steps + 1, len(at)), np.int64)
        passed[0] = at
        place, step = np.empty_like(at), np.empty_like(at)
        # A finished walk continues with the others; its extra positions are dropped below.
        for here, there in pairwise(passed):
            np.minimum(here, last_pair, out=place)
            _STEPS.take(pairs[place], out=step, mode="clip")
            np.add(here, step, out=there)
        is_inside = passed < stop
        inside = np.count_nonzero(is_inside, axis=0)
        goes_on = inside > steps
        ended = np.flatnonzero(~goes_on)
        if (passed[inside[ended], ended] != stop[ended]).any() or (passed[-1] == at)[goes_on].any():
            return None  # an invalid length, or one that the table does not have
        found.append(passed[:-1][is_inside[:-1]])
        at, stop = passed[-1][goes_on], stop[goes_on]
        left -= steps
    # No two walks visit the same position, and batches are in order.
    starts = np.sort(np.concatenate(found))
    edges = np.searchsorted(starts, np.append(begins, ends[-1]))
    if at.size or not np.array_equal(np.diff(edges), counts):
        return None
    return starts


def _one_by_one(source: Source, begins: Places, ends: Places, counts: Places) -> Ints | int:
    found = []
    data = source.data
    batches = np.stack((begins, ends, counts), axis=1).tolist()
    for index, (begin, end, count) in enumerate(batches):
        if type(data) is memoryview and end - begin < count * _COPY_BYTES_MAX:
            starts = _walk(bytes(data[begin:end]), 0, end - begin, count)
            shift = begin
        else:
            starts = _walk(data, begin, end, count)
            shift = 0
        if starts is None:
            return index
        found.append(np.fromiter(starts, np.int64, count) + shift)
    return np.concatenate(found)


def _walk(data: Readable, begin: int, end: int, count: int) -> list[int] | None:
    starts: list[int] = []
    append = starts.append
    short, long = _SHORT, _LONG
    at = begin
    try:
        for _ in repeat(None, count):
            append(at)
            first = data[at]
            if first < 0x80:
                at += short[first]
            else:
                step = long[data[at + 1]][first]
                at = at + step if step else _far(data, at)
    except (IndexError, CorruptBatch):
        return None
    return starts if at == end else None


def _far(data: Readable, at: int) -> int:
    """End of the record at a position, whose length takes three bytes or more."""
    size, body = decode_varint(data, at)
    return body + size if size >= 0 else _STRAY
