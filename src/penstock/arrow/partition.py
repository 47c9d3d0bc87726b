"""Computes the partitions of a column of keys at once.

The hash is murmur2, as in Kafka's default partitioner. It processes four bytes at a time, in one step for all keys
that are long enough. Keys are sorted by length, the longest first, so that the remaining keys are always the front
part of the arrays. A few very long keys are finished one by one.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.arrays import as_binary, binary_spans, bytes_of
from penstock.base.hashing import MURMUR2_SEED, partition_of_key

NO_KEY: Final = -1

_FEW: Final = 16
"""With fewer keys a numpy step costs more than hashing them one by one."""
_M = np.uint32(0x5BD1E995)

_Hashes = npt.NDArray[np.uint32]


def partitions_of(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key by Kafka's hash; -1 for null keys, which may go to any partition."""
    if partition_count < 1:
        raise ValueError(f"a topic has {partition_count} partitions, expected at least 1")
    keys = as_binary(keys)
    begins, sizes = binary_spans(keys)
    partitions = np.full(len(sizes), NO_KEY, np.int32)
    order = np.argsort(-sizes, kind="stable")
    order = order[: len(order) - int(np.count_nonzero(sizes < 0))]
    if not len(order):
        return partitions
    data = bytes_of(keys)
    begins, sizes = begins[order], sizes[order]
    blocks = sizes >> 2
    few = int(blocks[_FEW]) if len(blocks) > _FEW else 0
    """Hash steps with enough keys for numpy."""
    alone = int(np.searchsorted(-blocks, -few, side="left"))
    found = np.empty(len(order), np.int64)
    for index in range(alone):
        begin = int(begins[index])
        found[index] = partition_of_key(data[begin : begin + int(sizes[index])].tobytes(), partition_count)
    hashes = _murmur2(data, begins[alone:], sizes[alone:])
    found[alone:] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partition_count)
    partitions[order] = found
    return partitions


def _murmur2(
    data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> _Hashes:
    """Hash spans, sorted by size, the longest first."""
    hashes: _Hashes = np.uint32(MURMUR2_SEED) ^ sizes.astype(np.uint32)
    blocks = sizes >> 2
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    steps = np.arange(int(blocks[0]) if len(blocks) else 0)
    for step, alive in enumerate(np.searchsorted(-blocks, -steps, side="left").tolist()):
        block = words[begins[:alive] + 4 * step] * _M
        block ^= block >> np.uint32(24)
        block *= _M
        hashes[:alive] *= _M
        hashes[:alive] ^= block
    rest = sizes & 3
    for byte in range(3):
        has = np.flatnonzero(rest > byte)
        tail = data[begins[has] + (blocks[has] << 2) + byte].astype(np.uint32)
        hashes[has] ^= tail << np.uint32(8 * byte)
    hashes[rest > 0] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
