"""Rows of an Arrow batch as Python values."""

from collections.abc import Sequence
from typing import Any, TypeAlias

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


def row_of(rows: pa.RecordBatch, index: int) -> tuple[int, int, bytes | None, bytes | None, Headers]:
    """Offset, timestamp in milliseconds, key, value and headers of one row."""
    row: dict[str, Any] = {name: rows.column(name)[index] for name in ("offset", "timestamp", "key", "value")}
    return (
        row["offset"].as_py(),
        row["timestamp"].value // 1000,
        row["key"].as_py(),
        row["value"].as_py(),
        headers_lists(rows.column("headers").slice(index, 1))[0],
    )
