"""Places to start walking from in the middle of large batches.

Records are found one through the other, so a large batch would be walked from its begin alone. But a guess can be
proved: if a walk that starts at the begin of a batch comes to exactly the place where another walk was started, then
that place was the start of a record, and the second walk was right. So guesses are made at even distances, all walks
go in step, and each has to end where the next one began.

A guess is a place where a record could start, and two more behind it: lengths that lead from one to the next,
attributes that are 0, offsets that count up by one. Where no such place is near, the walk before goes on through. A
wrong guess is found out; it costs time and nothing else.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from penstock.arrow.varints import Cursor, Ints, Source

LANE_RECORDS: Final = 256
"""So many a walk: fewer would have more guesses to make, more would have fewer walks in step."""

_WINDOW_RECORDS: Final = 2
"""How far a guess may lie behind its even distance, in records of the batch's mean size."""
_WINDOW_BYTES_MAX: Final = 2048

_U = np.uint64

Places: TypeAlias = Ints | Sequence[int]


def lanes(source: Source, steps: Ints, begins: Places, ends: Places, counts: Places) -> tuple[Ints, Ints]:
    """Begin and end of each walk; a batch of few records is one.

    steps has, by the first two bytes of a record, how far the next one is, or 0.
    """
    batch_begins, batch_ends = np.asarray(begins), np.asarray(ends)
    found = _guesses(source, steps, batch_begins, batch_ends, np.asarray(counts))
    lane_begins = np.sort(np.concatenate((batch_begins, found)))
    # A walk ends where the next begins, or with its batch.
    lane_ends = batch_ends[np.searchsorted(batch_begins, lane_begins, side="right") - 1]
    np.minimum(lane_ends[:-1], lane_begins[1:], out=lane_ends[:-1])
    return lane_begins, lane_ends


def _guesses(source: Source, steps: Ints, begins: Ints, ends: Ints, counts: Ints) -> Ints:
    sizes = ends - begins
    walks = counts // LANE_RECORDS
    batch = np.repeat(
        np.arange(len(counts)), np.maximum(walks - 1, 0)
    )  # one guess for each walk but the first
    if not len(batch):
        return batch
    number = np.arange(1, len(batch) + 1) - np.searchsorted(batch, batch)
    targets = begins[batch] + number * (sizes[batch] // walks[batch])
    windows = np.minimum(_WINDOW_RECORDS * sizes[batch] // counts[batch], _WINDOW_BYTES_MAX)
    places = np.arange(int(windows.sum())) + np.repeat(targets - np.cumsum(windows) + windows, windows)
    limits = np.repeat(ends[batch], windows)
    # Looking at lengths and attributes is cheap and leaves few; of those the numbers are read.
    seconds = _nexts(source, steps, places, limits)
    places, seconds, limits = (each[seconds > 0] for each in (places, seconds, limits))
    thirds = _nexts(source, steps, seconds, limits)
    places, seconds, thirds = (each[thirds > 0] for each in (places, seconds, thirds))
    offset = _offset_deltas(source, places)
    is_good = (_offset_deltas(source, seconds) == offset + 1) & (_offset_deltas(source, thirds) == offset + 2)
    places = places[is_good]
    _, first_of_window = np.unique(np.searchsorted(targets, places, side="right"), return_index=True)
    found: Ints = places[first_of_window]
    return found


def _nexts(source: Source, steps: Ints, places: Ints, limits: Ints) -> Ints:
    """Where the next record starts if one starts here; 0 where none can, or none follows."""
    words = source.words(places)
    step = steps[words & _U(0xFFFF)]
    after_length = _U(8) + ((words & _U(0x80)) >> _U(4))  # one byte, or two
    is_good = (step > 0) & ((words >> after_length) & _U(0xFF) == 0) & (places + step < limits)
    return np.where(is_good, places + step, 0)


def _offset_deltas(source: Source, places: Ints) -> Ints:
    cursor = Cursor(source, places)
    cursor.skip_varint(extra=1)
    cursor.varlongs()
    return cursor.varints()
