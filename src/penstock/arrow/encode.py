"""Encodes rows of Arrow columns to record batches, ready for a Produce request.

The bytes are identical to those of Kafka's Java client. No row becomes a Python object: the numbers of all records are
written at once, each record's into its own slot, and Arrow joins slot, key, value and headers of each row to the
contents of the batches:

    slot                                              key  slot          value  tail
    length attributes timestamp offset key-length     ...  value-length  ...    header count and headers

The first row of each batch is chosen before, from the maximum sizes of records, because offsets and timestamps are
relative to the first record of their batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.arrays import as_binary, binary_spans, nulls_of, offsets_of
from penstock.arrow.slots import Slots
from penstock.arrow.varints import Ints, varint_widths
from penstock.base.ids import NO_LEADER_EPOCH, NO_TIMESTAMP
from penstock.records import HEADER, HEADER_BYTES, LOG_OVERHEAD, Codec, compress
from penstock.records.batch import ATTRIBUTES_AT, MAGIC, SEQUENCE_MASK, TRANSACTIONAL_MASK
from penstock.records.checksum import crc32c
from penstock.records.varint import Readable

BATCH_BYTES_MAX: Final = 1 << 20
"""Kafka's default for max.message.bytes is this plus twelve bytes."""

_JOINED_BYTES_MAX: Final = 1 << 30
"""Arrow's offsets have 32 bits: rows with more bytes than this are encoded in two halves."""

_NUMBERS_BYTES_MAX: Final = 5 + 1 + 5 + 5
"""Maximum bytes of the length, the attributes, and the lengths of key and value."""

_NO_HEADERS = pa.scalar(b"\x00", pa.binary())
_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    data: bytes
    """A complete batch with base offset 0."""
    count: int
    """Number of records."""


def encode(
    rows: pa.RecordBatch,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    batch_bytes_max: int = BATCH_BYTES_MAX,
) -> list[EncodedBatch]:
    """Encode batches of at most batch_bytes_max before compression; a larger record gets its own batch.

    Columns are `value` and optionally `key`, `headers` and `timestamp` (an Arrow timestamp, or milliseconds
    as a number). timestamp_ms is used for rows without one. Rows keep their order.
    """
    sealer = _Sealer(codec, level, is_transactional, producer_id, producer_epoch, base_sequence)
    return [sealer.seal(*part) for part in _parts(rows, timestamp_ms, batch_bytes_max)]


class _Part(NamedTuple):
    """The rows of one batch."""

    payload: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


class _Sealer:
    """Adds batch headers, with consecutive sequence numbers."""

    def __init__(
        self,
        codec: Codec,
        level: int | None,
        is_transactional: bool,
        producer_id: int,
        epoch: int,
        sequence: int,
    ) -> None:
        self._codec = codec
        self._level = level
        self._attributes = codec | (TRANSACTIONAL_MASK if is_transactional else 0)
        self._producer_id = producer_id
        self._epoch = epoch
        self._sequence = sequence

    def seal(self, payload: Readable, count: int, base_timestamp: int, max_timestamp: int) -> EncodedBatch:
        if self._codec != Codec.NONE:
            payload = compress(self._codec, payload, self._level)
        prefix = (0, HEADER_BYTES - LOG_OVERHEAD + len(payload), NO_LEADER_EPOCH, MAGIC)
        fields = (
            self._attributes,
            count - 1,
            base_timestamp,
            max_timestamp,
            self._producer_id,
            self._epoch,
            self._sequence,
            count,
        )
        covered = memoryview(HEADER.pack(*prefix, 0, *fields))[ATTRIBUTES_AT:]
        header = HEADER.pack(*prefix, crc32c(payload, crc32c(covered)), *fields)
        if self._sequence >= 0:
            self._sequence = (self._sequence + count) & SEQUENCE_MASK
        return EncodedBatch(b"".join((header, payload)), count)


def _parts(rows: pa.RecordBatch, timestamp_ms: int, batch_bytes_max: int) -> Iterator[_Part]:
    count = len(rows)
    if not count:
        return
    names = rows.schema.names
    values = as_binary(rows.column("value"))
    keys = as_binary(rows.column("key")) if "key" in names else pa.nulls(count, pa.binary())
    tails = header_tails(rows.column("headers")) if "headers" in names else None
    times = _times_ms(rows.column("timestamp") if "timestamp" in names else None, count, timestamp_ms)
    _, key_sizes = binary_spans(keys)
    _, value_sizes = binary_spans(values)
    tail_sizes = np.ones(count, np.int64) if tails is None else binary_spans(tails)[1]
    content = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes
    if int(content.sum()) > _JOINED_BYTES_MAX and count > 1:
        half = count // 2
        yield from _parts(rows.slice(0, half), timestamp_ms, batch_bytes_max)
        yield from _parts(rows.slice(half), timestamp_ms, batch_bytes_max)
        return

    firsts = _firsts(content + _numbers_bytes(times, count), batch_bytes_max - HEADER_BYTES)
    counts = np.diff(np.append(firsts, count))
    offset_deltas = np.arange(count) - np.repeat(firsts, counts)
    time_deltas = times - np.repeat(times[firsts], counts)

    widths = [varint_widths(each) for each in (time_deltas, offset_deltas, key_sizes, value_sizes)]
    lengths = 1 + content + sum(widths)
    heads = Slots(count)
    heads.varints(lengths)
    heads.zero_byte()  # attributes
    for deltas in (time_deltas, offset_deltas, key_sizes):
        heads.varints(deltas)
    if key_sizes.max() <= 0:  # no key in between
        heads.varints(value_sizes)
        pieces = [heads.array(), values]
    else:
        middles = Slots(count)
        middles.varints(value_sizes)
        pieces = [heads.array(), keys, middles.array(), values]
    joined = pc.binary_join_element_wise(
        *pieces, _NO_HEADERS if tails is None else tails, _EMPTY, null_handling="replace", null_replacement=""
    )
    edges = offsets_of(joined)[np.append(firsts, count)].tolist()
    data = memoryview(joined.buffers()[2])
    max_times = np.maximum.reduceat(times, firsts).tolist()
    for index, first in enumerate(firsts.tolist()):
        payload = data[edges[index] : edges[index + 1]]
        yield _Part(payload, int(counts[index]), int(times[first]), max_times[index])


def _numbers_bytes(times: Ints, count: int) -> int:
    """Maximum bytes of a record's numbers, for any start of its batch."""
    spread = np.array([int(times.max() - times.min()), count])
    return _NUMBERS_BYTES_MAX + int(varint_widths(spread).sum())


def _firsts(costs: Ints, bytes_max: int) -> Ints:
    """The first row of each batch."""
    ends = np.cumsum(costs)
    firsts = []
    first = 0
    while first < len(costs):
        firsts.append(first)
        before = int(ends[first] - costs[first])
        first = max(int(np.searchsorted(ends, before + bytes_max, side="right")), first + 1)
    return np.array(firsts)


def _times_ms(column: pa.Array | None, count: int, otherwise: int) -> Ints:
    if column is None:
        return np.full(count, otherwise, np.int64)
    kind = column.type
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times: Ints = ticks.copy()
    if pa.types.is_timestamp(kind):
        per_ms = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
        times = ticks * 1000 if per_ms is None else ticks // per_ms
    if column.null_count:
        times[nulls_of(column)] = otherwise
    if times.min() < NO_TIMESTAMP:
        row = int(np.argmin(times))
        raise ValueError(
            f"row {row} has timestamp {int(times[row])} ms, expected one from 1970 on, or {NO_TIMESTAMP} for none"
        )
    return times


def header_tails(headers: pa.Array) -> pa.Array:
    """The end of each record: header count and headers."""
    if headers.null_count:  # a null may hide elements
        headers = pc.fill_null(headers, pa.scalar([], headers.type))
    edges = offsets_of(headers).astype(np.int64)
    counts = np.diff(edges)
    numbers = Slots(len(counts))
    numbers.varints(counts)
    first, last = int(edges[0]), int(edges[-1])
    entries = headers.values.slice(first, last - first)
    if not len(entries):
        return numbers.array()
    keys, values = (as_binary(each) for each in entries.flatten())
    if keys.null_count or entries.null_count:
        raise ValueError("a header has no key; only its value may be null")
    sizes = Slots(len(keys)), Slots(len(values))
    sizes[0].varints(binary_spans(keys)[1])
    sizes[1].varints(binary_spans(values)[1])
    encoded = pc.binary_join_element_wise(
        sizes[0].array(), keys, sizes[1].array(), values, _EMPTY, null_handling="replace", null_replacement=""
    )
    # The headers of a record are contiguous: one element from the start of the first to the end of the last.
    record_edges = offsets_of(encoded)[edges - first]
    together = pa.Array.from_buffers(
        pa.binary(),
        len(counts),
        [None, pa.py_buffer(np.ascontiguousarray(record_edges)), encoded.buffers()[2]],
    )
    return pc.binary_join_element_wise(numbers.array(), together, _EMPTY)
