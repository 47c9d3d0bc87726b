"""Decodes record headers to Arrow lists of structs.

Most records have no headers or a few. Headers are decoded together too: the first of every record that has one, then
the second of every record that has two. When few records are left, they are finished one by one, because a record may
have a million headers.
"""

import numpy as np
import pyarrow as pa

from penstock.arrow.columns import Fields, FieldSpan, Malformed, Mask, binary
from penstock.arrow.schema import ARROW_TYPES
from penstock.arrow.varints import Cursor, Ints, Source
from penstock.records import CorruptBatch
from penstock.records.varint import decode_varint

_FEW = 32
"""With fewer records a numpy step costs more than decoding the headers one by one."""
_WHY = "its headers are longer than the record"


def headers_of(fields: Fields, keep: Mask | None) -> pa.Array:
    """The headers column; null for a record without headers, as in Spark's Kafka source."""
    kind = ARROW_TYPES["headers"]
    counts, at, ends = fields.header_counts, fields.headers_at, fields.record_ends
    kept = np.arange(len(ends)) if keep is None else np.flatnonzero(keep)
    if not counts.any():
        return pa.nulls(len(kept), kind)
    counts, at, ends = counts[kept], at[kept], ends[kept]
    firsts = np.concatenate(([0], np.cumsum(counts)))
    try:
        table = _read(fields.source, counts, at, ends, firsts)
    except Malformed as error:
        raise Malformed(int(kept[error.index]), error.why) from None
    keys = _strings(binary(fields.source, FieldSpan(table[0], table[1])))
    values = binary(fields.source, FieldSpan(table[2], table[3]))
    entries = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    offsets = pa.py_buffer(firsts.astype(np.int32))
    return pa.Array.from_buffers(kind, len(counts), [validity, offsets], children=[entries])


def _read(source: Source, counts: Ints, at: Ints, ends: Ints, firsts: Ints) -> Ints:
    """Key start, key size, value start, value size of each header."""
    table = np.zeros((4, int(firsts[-1])), np.int64)
    records = np.flatnonzero(counts)
    at = at[records]
    step = 0
    while len(records) >= _FEW:
        limits = ends[records]
        cursor = Cursor(source, at)
        key_sizes, key_begins = cursor.varints(), cursor.at
        cursor.skip(np.maximum(key_sizes, 0))
        _check((key_sizes >= 0) & (cursor.at < limits), records)
        value_sizes, value_begins = cursor.varints(), cursor.at
        cursor.skip(np.maximum(value_sizes, 0))
        step += 1
        goes_on = counts[records] > step
        _check((value_sizes >= -1) & (cursor.at <= limits) & (goes_on | (cursor.at == limits)), records)
        table[:, firsts[records] + (step - 1)] = key_begins, key_sizes, value_begins, value_sizes
        records, at = records[goes_on], cursor.at[goes_on]
    for record, begin in zip(records.tolist(), at.tolist(), strict=True):
        rest = table[:, int(firsts[record]) + step : int(firsts[record + 1])]
        if not _read_one(source, begin, int(ends[record]), rest):
            raise Malformed(record, _WHY)
    return table


def _check(good: Mask, records: Ints) -> None:
    if not good.all():
        raise Malformed(int(records[np.argmin(good)]), _WHY)


def _read_one(source: Source, at: int, end: int, rest: Ints) -> bool:
    """Decode the remaining headers of one record; return whether they are valid."""
    data = bytes(memoryview(source.data)[at:end])
    found = []
    here = 0
    try:
        for _ in range(rest.shape[1]):
            key_size, key_begin = decode_varint(data, here)
            key_end = key_begin + key_size
            if not key_begin <= key_end < len(data):
                return False
            value_size, value_begin = decode_varint(data, key_end)
            here = value_begin + max(value_size, 0)
            if value_size < -1 or here > len(data):
                return False
            found.append((at + key_begin, key_size, at + value_begin, value_size))
    except CorruptBatch:
        return False
    rest[:] = np.array(found, np.int64).reshape(-1, 4).T
    return here == len(data)


def _strings(keys: pa.Array) -> pa.Array:
    """Decode UTF-8; invalid bytes are replaced, as Java does."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode("utf-8", "replace") for each in keys.to_pylist()], pa.string())
