"""Decodes the records of a block to Arrow columns, field by field.

The fields of a record, most of them varints:

    length  attributes  timestamp delta  offset delta  key length  key  value length  value  header count  headers

All records are decoded together: the first field of each, then the second of each, up to the last requested field.
Keys and values are only copied, from the positions given by their lengths.

Every field is checked: a length may not exceed its record, and the fields must end where the record does. `Malformed`
names the first invalid record; the caller adds topic, partition and offset.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.arrays import fixed, gather
from penstock.arrow.schema import ARROW_TYPES
from penstock.arrow.varints import MALFORMED, Cursor, Ints, Source

TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""Spark's timestamps are microseconds in 64 bits."""

_CALM_MS: Final = 1 << 52
"""140,000 years: the sum of two such times does not overflow."""

STRIDE: Final = 8192
"""Records decoded at a time. Arrays of more than 64 KB would be new memory from the kernel at every step."""

NULL_SIZE: Final = -1

Mask = npt.NDArray[np.bool_]


class Malformed(Exception):
    """The record with this index in its block is invalid."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index
        self.why = why


def check(good: Mask, why: str, first: int = 0) -> None:
    """Raise Malformed for the first record for which the condition is false."""
    if not good.all():
        raise Malformed(first + int(np.argmin(good)), why)


class FieldSpan:
    """Position and size of a field in each record; size -1 for null."""

    def __init__(self, begins: Ints, sizes: Ints) -> None:
        self.begins = begins
        self.sizes = sizes

    def kept(self, keep: Mask) -> "FieldSpan":
        return FieldSpan(self.begins[keep], self.sizes[keep])


class Fields:
    """The fields of records that the columns need. Raises Malformed."""

    def __init__(self, source: Source, starts: Ints, ends: Ints, columns: frozenset[str]) -> None:
        count = len(starts)
        self.source = source
        self.record_ends = ends
        self.timestamp_deltas = np.empty(count, np.int64)
        self.offset_deltas = np.empty(count, np.int64)
        self._wants_values = bool(columns & {"value", "headers"})
        self._wants_keys = self._wants_values or "key" in columns
        self.keys = FieldSpan(*np.empty((2, count if self._wants_keys else 0), np.int64))
        self.values = FieldSpan(*np.empty((2, count if self._wants_values else 0), np.int64))
        self.header_counts = np.zeros(count if "headers" in columns else 0, np.int64)
        self.headers_at = np.zeros_like(self.header_counts)
        for first in range(0, count, STRIDE):
            try:
                self._read(starts, slice(first, first + STRIDE))
            except Malformed as error:
                raise Malformed(first + error.index, error.why) from None

    def _read(self, starts: Ints, these: slice) -> None:
        ends = self.record_ends[these]
        cursor = Cursor(self.source, starts[these])
        cursor.skip_varint(extra=1)  # the length, which `walk` has used, and the attributes, which are unused
        deltas = self.timestamp_deltas[these] = cursor.varlongs()
        _check_least(deltas, MALFORMED + 1, "its timestamp is not a 64-bit number")
        deltas = self.offset_deltas[these] = cursor.varints()
        _check_least(deltas, MALFORMED + 1, "its offset is not a 32-bit number")
        # Positions only increase, so it is enough that the last one is inside the record.
        if self._wants_keys:
            _read_span(cursor, self.keys, these, "key")
            if not self._wants_values:
                check(cursor.at < ends, "its key is longer than the record")
        if self._wants_values:
            _read_span(cursor, self.values, these, "value")
            check(cursor.at < ends, "its value is longer than the record")
            self._read_headers(cursor, ends, these)
        elif not self._wants_keys:
            check(cursor.at <= ends, "its offset is truncated")

    def _read_headers(self, cursor: Cursor, ends: Ints, these: slice) -> None:
        if not self.source.bytes.take(cursor.at).any():
            check(cursor.at + 1 == ends, "bytes follow its last field")
            return
        counts = cursor.varints()
        left = ends - cursor.at
        # Each header has at least the lengths of its key and value.
        check((counts >= 0) & (counts * 2 <= left), "its headers are longer than the record")
        check((left == 0) | (counts > 0), "bytes follow its last field")
        if self.header_counts.size:
            self.header_counts[these] = counts
            self.headers_at[these] = cursor.at


def _read_span(cursor: Cursor, span: FieldSpan, these: slice, name: str) -> None:
    sizes = span.sizes[these] = cursor.varints()
    span.begins[these] = cursor.at
    _check_least(sizes, NULL_SIZE, f"its {name} has an invalid length")
    if sizes.max() > 0:  # otherwise there is nothing to skip, and the cursor's words stay valid
        cursor.skip(np.maximum(sizes, 0))


def _check_least(numbers: Ints, least: int, why: str) -> None:
    if numbers.min() < least:
        check(numbers >= least, why)


def timestamps_of(fields: Fields, bases: Ints, is_append_time: Mask) -> Ints:
    """Milliseconds. All records of a batch with append time have the base timestamp."""
    deltas = fields.timestamp_deltas
    if is_append_time.any():
        deltas = np.where(is_append_time, 0, deltas)
    calm = deltas.min() >= -_CALM_MS and deltas.max() <= _CALM_MS and abs(bases).max() <= _CALM_MS
    times: Ints = bases + deltas
    if not calm:
        why = "its timestamp does not fit Spark's microseconds"
        check((deltas != MALFORMED) & (times - bases == deltas) & ((deltas >= 0) == (times >= bases)), why)
        check((times <= TIMESTAMP_MS_MAX) & (times >= -TIMESTAMP_MS_MAX), why)
    return times


def microseconds(times_ms: Ints) -> pa.Array:
    return fixed(times_ms * 1000, ARROW_TYPES["timestamp"])


def numbers(values: Ints) -> pa.Array:
    return fixed(values, pa.int64())


def binary(source: Source, span: FieldSpan) -> pa.Array:
    """Copy the bytes of a span."""
    begins, sizes = span.begins, span.sizes
    if not len(begins):
        return pa.nulls(0, pa.binary())
    if sizes.max() < 0:
        return pa.nulls(len(sizes), pa.binary())
    if sizes.min() >= 0:
        return gather(source.buffer, begins, begins + sizes)
    taken = gather(source.buffer, begins, begins + np.maximum(sizes, 0))
    validity = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(taken), [validity, *taken.buffers()[1:]])


class Constant:
    """A column with the same value in every row: built once, returned as slices."""

    def __init__(self, value: str | int, kind: pa.DataType) -> None:
        self._value = value
        self._kind = kind
        self._made = pa.nulls(0, kind)

    def rows(self, count: int) -> pa.Array:
        if len(self._made) < count:
            self._made = self._repeated(count + count // 4)
        return self._made.slice(0, count)

    def _repeated(self, count: int) -> pa.Array:
        if isinstance(self._value, int):
            return fixed(np.full(count, self._value, np.int32), self._kind)
        text = self._value.encode()
        edges = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
        return pa.Array.from_buffers(
            self._kind, count, [None, pa.py_buffer(edges), pa.py_buffer(text * count)]
        )
