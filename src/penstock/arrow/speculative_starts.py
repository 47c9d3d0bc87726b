"""Guesses record starts in the middle of large batches, so that several walks can run in parallel.

The length of a record gives the start of the next, so a large batch would need one long walk. But a guess can be
verified: if the walk from the start of the batch reaches exactly the position where another walk started, that
position was the start of a record, and the second walk is valid. So guesses are made at even distances, all walks run
in parallel, and each must end where the next one started.

A guess is a position where three consecutive records could start: their lengths lead from one to the next, their
attributes are 0, their offsets increase by one. If there is no such position nearby, the previous walk continues. A
wrong guess is detected, and only costs time.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from penstock.arrow.varints import Cursor, Ints, Source

LANE_RECORDS: Final = 256
"""Records per walk. Fewer need more guesses, more leave fewer parallel walks."""

_WINDOW_RECORDS: Final = 2
"""How far a guess may be after its even distance, in records of the batch's mean size."""
_WINDOW_BYTES_MAX: Final = 2048

_U = np.uint64

Places: TypeAlias = Ints | Sequence[int]


def lanes(source: Source, steps: Ints, begins: Places, ends: Places, counts: Places) -> tuple[Ints, Ints]:
    """Start and end of each walk; a batch with few records is one walk.

    steps maps the first two bytes of a record to the distance to the next record, or 0.
    """
    batch_begins, batch_ends = np.asarray(begins), np.asarray(ends)
    found = _guesses(source, steps, batch_begins, batch_ends, np.asarray(counts))
    lane_begins = np.sort(np.concatenate((batch_begins, found)))
    # A walk ends where the next starts, or with its batch.
    lane_ends = batch_ends[np.searchsorted(batch_begins, lane_begins, side="right") - 1]
    np.minimum(lane_ends[:-1], lane_begins[1:], out=lane_ends[:-1])
    return lane_begins, lane_ends


def _guesses(source: Source, steps: Ints, begins: Ints, ends: Ints, counts: Ints) -> Ints:
    sizes = ends - begins
    walks = counts // LANE_RECORDS
    batch = np.repeat(
        np.arange(len(counts)), np.maximum(walks - 1, 0)
    )  # one guess per walk, except the first
    if not len(batch):
        return batch
    number = np.arange(1, len(batch) + 1) - np.searchsorted(batch, batch)
    targets = begins[batch] + number * (sizes[batch] // walks[batch])
    windows = np.minimum(_WINDOW_RECORDS * sizes[batch] // counts[batch], _WINDOW_BYTES_MAX)
    places = np.arange(int(windows.sum())) + np.repeat(targets - np.cumsum(windows) + windows, windows)
    limits = np.repeat(ends[batch], windows)
    # Checking lengths and attributes is cheap and leaves few candidates; only their numbers are decoded.
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
    """Start of the next record if one starts here; 0 if none can start here, or none follows."""
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
