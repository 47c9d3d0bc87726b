"""Finds the batches that have the searched bytes, before any record is decoded.

A record that contains some bytes has them in one piece within the records of its batch. So a batch without them cannot
match, and is left out. A batch with them may still not match: the bytes may lie across two records, or in a field that
is not searched. It is decoded, and the columns decide.

Uncompressed batches are searched where they are, in one pass over the whole read. Compressed ones are decompressed
first, one at a time. If most of them have the bytes, decompressing them twice costs more than it saves, and the next
ones are decoded without a look.
"""

import re
from bisect import bisect_right

import numpy as np

from penstock.arrow.frames import Frames, Mask
from penstock.records import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, CorruptBatch, RecordBatch

_PROBATION = 16
"""Compressed batches after which the share of candidates is judged."""


class Prefilter:
    def __init__(self, needle: bytes) -> None:
        self._search = re.compile(re.escape(needle)).search  # on any buffer; as fast as bytes.find
        self._looked = 0
        self._found = 0

    def candidates(self, frames: Frames) -> Frames:
        """The batches that may match."""
        if not len(frames):
            return frames
        codecs = frames.codecs
        has = np.zeros(len(frames), np.bool_)
        if not codecs.all():
            self._plain(frames, has)
        for index in np.flatnonzero(codecs).tolist():
            has[index] = self._compressed(frames, index)
        has &= ~frames.is_control
        return frames.only(has)

    def _plain(self, frames: Frames, has: Mask) -> None:
        view = memoryview(frames.data)
        begins = frames.at.tolist()
        ends = (frames.at + frames.sizes).tolist()
        at, stop = begins[0], ends[-1]
        while (found := self._search(view, at, stop)) is not None:
            index = bisect_right(begins, found.start()) - 1
            if begins[index] + HEADER_BYTES <= found.start() and found.end() <= ends[index]:
                has[index] = True
                at = ends[index]
            else:
                at = found.start() + 1

    def _compressed(self, frames: Frames, index: int) -> bool:
        if self._looked >= _PROBATION and 2 * self._found > self._looked:
            return True
        try:
            batch = RecordBatch.parse(memoryview(frames.data), int(frames.at[index]))
            records = batch.decompressed(DECOMPRESSED_BYTES_MAX)
        except CorruptBatch:
            return True  # the decoder reports it
        is_found = self._search(records) is not None
        self._looked += 1
        self._found += is_found
        return is_found
