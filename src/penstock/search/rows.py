"""Rows of an Arrow batch as Python values."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.arrays import offsets_of

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


def timestamps_ms(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    column = rows.column("timestamp")
    times = np.frombuffer(column.buffers()[1], np.int64)
    return times[column.offset : column.offset + len(column)] // 1000


def headers_lists(column: pa.Array) -> Sequence[Headers]:
    """The headers of each row, without an Arrow scalar for each."""
    if column.null_count == len(column):
        return [()] * len(column)
    entries, edges = column.values, offsets_of(column).tolist()
    first = edges[0]
    used = entries.slice(first, edges[-1] - first)
    pairs = list(zip(used.field(0).to_pylist(), used.field(1).to_pylist(), strict=True))
    return [tuple(pairs[edges[i] - first : edges[i + 1] - first]) for i in range(len(column))]


def row_of(
    rows: pa.RecordBatch, index: int, bytes_max: int
) -> tuple[int, int, "CutBytes | None", "CutBytes | None", Headers]:
    """Offset, timestamp in milliseconds, key, value and headers of one row; of key and value, the first bytes."""
    return (
        rows.column("offset")[index].as_py(),
        rows.column("timestamp")[index].value // 1000,
        _cut(rows.column("key"), index, bytes_max),
        _cut(rows.column("value"), index, bytes_max),
        headers_lists(rows.column("headers").slice(index, 1))[0],
    )


class CutBytes(NamedTuple):
    data: bytes
    """The first bytes."""
    size: int
    """How many there are."""


def _cut(column: pa.Array, index: int, bytes_max: int) -> CutBytes | None:
    """Without a copy of the rest, which may be 128 MiB."""
    if not column[index].is_valid:
        return None
    first, last = offsets_of(column)[index : index + 2].tolist()
    data = column.buffers()[2]
    return CutBytes(b"" if data is None else bytes(data[first : min(last, first + bytes_max)]), last - first)
