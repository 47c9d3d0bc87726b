"""Converts between Arrow arrays, numpy arrays and spans of a buffer.

Arrays are made from buffers, because `pa.array` and `pa.scalar` import pandas to check their argument, which costs
half a second in a worker's first task.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.varints import WORD_BYTES, Bytes, Ints


def fixed(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """An array of fixed-width values, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def as_binary(array: pa.Array) -> pa.Array:
    """Convert text or binary of any offset width to Arrow's `binary`, which has 32-bit offsets."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == pa.binary() else array.cast(pa.binary())


def binary_spans(array: pa.Array) -> tuple[Ints, Ints]:
    """Start of each element in `bytes_of`, and its size; -1 for null."""
    count = len(array)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = offsets_of(array)
    begins = edges[:-1].astype(np.int64)
    sizes = edges[1:] - begins
    if array.null_count:
        sizes[nulls_of(array)] = -1
    return begins, sizes


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of an array of lists or bytes, one more than it has elements."""
    buffer = array.buffers()[1]
    edges: npt.NDArray[np.int32] = np.frombuffer(buffer, np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    return edges


def nulls_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def bytes_of(array: pa.Array) -> Bytes:
    """All bytes of the array, padded to at least one word."""
    buffer = array.buffers()[2]
    found = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    if len(found) < WORD_BYTES:
        found = np.concatenate((found, np.zeros(WORD_BYTES, np.uint8)))
    return found


def gather(buffer: pa.Buffer, begins: Ints, ends: Ints) -> pa.Array:
    """Copy one or more consecutive spans of a buffer.

    An array over the buffer alternates between spans and the gaps after them; Arrow's `take` copies every second
    element, ten times as fast as numpy can select bytes.
    """
    count = len(begins)
    first, last = int(begins[0]), int(ends[-1])
    edges = pa.allocate_buffer(2 * 4 * count)
    pairs = np.frombuffer(edges, np.int32)
    np.subtract(begins, first, out=pairs[0::2], casting="same_kind")
    np.subtract(ends, first, out=pairs[1::2], casting="same_kind")
    in_turn = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, edges, buffer.slice(first, last - first)]
    )
    return in_turn.take(_every_second(count))


def _every_second(count: int) -> pa.Array:
    size = 1 << (count - 1).bit_length()
    return _indices(size).slice(0, count)


@lru_cache(4)  # batches have few different sizes
def _indices(size: int) -> pa.Array:
    return fixed(np.arange(0, 2 * size, 2, dtype=np.int32), pa.int32())
