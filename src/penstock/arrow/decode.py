"""Decodes record batches of a partition to Arrow record batches of the requested columns.

No record becomes a Python object. The bytes of a Fetch response or a segment go through four steps:

    frames    parse batch headers into columns                                   per batch
    framing   check CRCs, decompress, drop aborted transactions and offsets
              outside of [start, stop)                                           per batch
    walk      find the start of each record                                      per record, in parallel
    columns   decode each field of all records at once, then build arrays        per field

Arrow batches have about four megabytes, because Spark has a cost per batch. Rows that do not fill one are held until
more arrive, or until `finish`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.arrow.arrays import fixed
from penstock.arrow.columns import (
    Constant,
    Fields,
    Malformed,
    Mask,
    binary,
    microseconds,
    numbers,
    timestamps_of,
)
from penstock.arrow.frames import Frames
from penstock.arrow.framing import Block, CorruptRecords, Framer
from penstock.arrow.headers import headers_of
from penstock.arrow.schema import ARROW_TYPES, COLUMNS, arrow_schema
from penstock.arrow.varints import Ints, Source
from penstock.arrow.walk import record_starts
from penstock.records.varint import Readable

__all__ = ["BATCH_BYTES", "CorruptRecords", "Decoder"]

BATCH_BYTES: Final = 4 << 20
ROWS_MAX: Final = 1 << 17
"""Maximum rows of an Arrow batch; limits batches of very small rows."""

BLOCK_BYTES: Final = 8 << 20
"""Bytes of records decoded together. More is cheaper per batch, as long as it fits into the processor's caches."""

_ROW_BYTES: Final = {
    "key": 4,
    "value": 4,
    "topic": 4,
    "partition": 4,
    "offset": 8,
    "timestamp": 8,
    "timestampType": 4,
    "headers": 12,
}
"""Bytes of a row in addition to its record."""


class Decoder:
    """Decodes one partition's records from offset start up to stop, exclusive."""

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        *,
        start: int,
        stop: int,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        unknown = [each for each in columns if each not in COLUMNS]
        if unknown or not columns:
            raise ValueError(f"columns are {list(columns)}, expected some of {', '.join(COLUMNS)}")
        self.schema: pa.Schema = arrow_schema(columns)
        self._columns = frozenset(columns)
        self._names = tuple(columns)
        self._framer = Framer(topic, partition, start, stop, BLOCK_BYTES)
        self._stop = stop
        self._shown = start
        """No later record is below it: the start, then the offset after the last decoded record."""
        self._batch_bytes = batch_bytes
        self._row_bytes = sum(_ROW_BYTES[each] for each in columns) + len(topic) * ("topic" in columns)
        self._constants = {
            "topic": Constant(topic, ARROW_TYPES["topic"]),
            "partition": Constant(partition, ARROW_TYPES["partition"]),
        }
        self._types = {each: Constant(int(each), ARROW_TYPES["timestampType"]) for each in (False, True)}
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def position(self) -> int:
        """The next offset to fetch, after all batches that were fed; stop when nothing is left to read."""
        return self._framer.position

    def feed(self, data: Readable, aborted: Sequence[tuple[int, int]] = ()) -> list[pa.RecordBatch]:
        """Decode whole batches; the last may be incomplete. No reference to data is kept.

        aborted is the producer id and first offset of each aborted transaction in the Fetch response; without it
        records of aborted transactions are included, as for `read_uncommitted`.
        """
        return list(self.stream(data, aborted))

    def stream(
        self, data: Readable | Frames, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Like feed, but one Arrow batch at a time, for bytes that may decompress to much more.

        Accepts parsed headers instead of bytes.
        """
        frames = data if isinstance(data, Frames) else Frames.read(data)
        for block in self._framer.blocks(frames, aborted):
            for rows, size_bytes in self._decoded(block):
                yield from self._emit(rows, size_bytes)

    def finish(self) -> list[pa.RecordBatch]:
        """Return the rows that are still held."""
        held, self._held, self._held_bytes = self._held, [], 0
        if len(held) > 1:
            held = [pa.concat_batches(held)]
        return held

    def _emit(self, rows: pa.RecordBatch, size_bytes: int) -> list[pa.RecordBatch]:
        if 2 * size_bytes >= self._batch_bytes:
            return [
                *self.finish(),
                rows,
            ]  # returned separately: joining would copy the large one
        self._held.append(rows)
        self._held_bytes += size_bytes
        return self.finish() if 2 * self._held_bytes >= self._batch_bytes else []

    def _decoded(self, block: Block) -> Iterator[tuple[pa.RecordBatch, int]]:
        source, frames = Source(block.records), block.frames
        starts = record_starts(source, block.begins, block.ends, frames.counts)
        if isinstance(starts, int):
            raise self._framer.explain(
                frames, starts, "the lengths of its records do not add up to its length"
            )
        lasts = np.cumsum(frames.counts)
        record_ends = np.empty_like(starts)
        record_ends[:-1] = starts[1:]
        record_ends[lasts - 1] = block.ends
        bases = _Bases(frames.base_offsets, frames.timestamps, frames.is_append_time, lasts)
        for first, last in self._cuts(starts):
            chunk = slice(first, last)
            try:
                fields = Fields(source, starts[chunk], record_ends[chunk], self._columns)
                rows = self._rows(fields, bases.of(first, last))
            except Malformed as error:
                record = first + error.index
                batch = int(np.searchsorted(lasts, record, side="right"))
                index = record - (int(lasts[batch - 1]) if batch else 0)
                why = f"record {index} of the batch: {error.why}"
                raise self._framer.explain(frames, batch, why) from None
            if rows is not None:
                yield rows, self._size(len(rows), int(record_ends[last - 1] - starts[first]))

    def _cuts(self, starts: Ints) -> Iterator[tuple[int, int]]:
        """Ranges of records, end exclusive, for one Arrow batch each."""
        costs = np.arange(len(starts)) * self._row_bytes
        if self._columns & {"key", "value", "headers"}:
            costs += starts
        # Evenly sized, so that a block does not end in a small batch.
        total = int(costs[-1] - costs[0])
        step = total // max(1, round(total / self._batch_bytes)) + 1
        first = 0
        while first < len(starts):
            reached = int(np.searchsorted(costs, costs[first] + step, side="left"))
            last = min(max(reached, first + 1), first + ROWS_MAX)
            yield first, last
            first = last

    def _size(self, rows: int, record_bytes: int) -> int:
        size = rows * self._row_bytes
        if self._columns & {"key", "value", "headers"}:
            size += record_bytes
        return size

    def _rows(self, fields: Fields, bases: "_Bases") -> pa.RecordBatch | None:
        offsets = bases.offsets + fields.offset_deltas
        times = None
        if "timestamp" in self._columns:
            times = timestamps_of(fields, bases.timestamps, bases.is_append_time)
        keep = self._kept(offsets)
        if keep is not None:
            offsets = offsets[keep]
        if not len(offsets):
            return None
        self._shown = int(offsets[-1]) + 1
        arrays = [self._column(name, fields, offsets, times, bases, keep) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _kept(self, offsets: Ints) -> Mask | None:
        """Mask of the records in the range; None if all are. Records whose offset does not increase are skipped."""
        if offsets[0] >= self._shown and offsets[-1] < self._stop and (offsets[1:] > offsets[:-1]).all():
            return None
        before = np.maximum.accumulate(np.concatenate(([self._shown - 1], offsets[:-1])))
        keep: Mask = (offsets > before) & (offsets < self._stop)
        return keep

    def _column(
        self, name: str, fields: Fields, offsets: Ints, times: Ints | None, bases: "_Bases", keep: Mask | None
    ) -> pa.Array:
        count = len(offsets)
        if name in ("key", "value"):
            span = fields.keys if name == "key" else fields.values
            return binary(fields.source, span if keep is None else span.kept(keep))
        if name == "headers":
            return headers_of(fields, keep)
        if name == "timestamp":
            assert times is not None
            return microseconds(times if keep is None else times[keep])
        if name == "timestampType":
            return self._timestamp_types(bases.is_append_time, count, keep)
        return numbers(offsets) if name == "offset" else self._constants[name].rows(count)

    def _timestamp_types(self, is_append_time: Mask, count: int, keep: Mask | None) -> pa.Array:
        kinds = is_append_time if keep is None else is_append_time[keep]
        if kinds.all() or not kinds.any():
            return self._types[bool(kinds[0])].rows(count)
        return fixed(kinds.astype(np.int32), ARROW_TYPES["timestampType"])


class _Bases:
    """Base offsets and timestamps, of each batch or each record."""

    def __init__(self, offsets: Ints, timestamps: Ints, is_append_time: Mask, lasts: Ints) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.is_append_time = is_append_time
        self._lasts = lasts

    def of(self, first: int, last: int) -> "_Bases":
        """The bases of these records."""
        batches = slice(
            int(np.searchsorted(self._lasts, first, side="right")),
            int(np.searchsorted(self._lasts, last, side="left")) + 1,
        )
        counts = np.diff(np.minimum(self._lasts[batches], last), prepend=first)
        return _Bases(
            np.repeat(self.offsets[batches], counts),
            np.repeat(self.timestamps[batches], counts),
            np.repeat(self.is_append_time[batches], counts),
            self._lasts,
        )
