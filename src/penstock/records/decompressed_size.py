"""Bounds on what a compressed batch unpacks to, found without unpacking it.

A broker that appends a batch as it comes must still know that every reader can unpack it. For most batches the
codec's greatest ratio answers that. For larger ones the headers of the blocks in the data do: they say how much each
block may hold, and a batch of a megabyte has a few dozen of them.

    codec    ratio at most   known from        a batch always fits into 128 MiB below
    snappy          22       (ratio alone)     6 MB
    lz4            255       block headers     526 KB
    gzip          1032       (ratio alone)     130 KB
    zstd         32768       block headers     4 KB

What cannot be bounded this way has to be unpacked, which may take long: see `storage.inspection`.
"""

from struct import Struct
from typing import Final

from .compression import SNAPPY_RATIO_MAX, Codec

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, lengths of key and value, count of headers: a byte each."""

BLOCKS_MAX: Final = 2048
"""Block headers that are looked at: some 0.5 ms. 128 MiB of zstd, fully packed, have 1,024."""

RATIO_MAX: Final = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: SNAPPY_RATIO_MAX,
    Codec.LZ4: 255,
    Codec.ZSTD: 32768,
}
"""Bytes that one byte of compressed data can stand for. zstd: 4 bytes may repeat a byte 128 KiB times."""

_RATIOS: Final = tuple(RATIO_MAX[codec] for codec in Codec)

_UINT32 = Struct("<I").unpack_from

_ZSTD_MAGIC, _LZ4_MAGIC = 0xFD2FB528, 0x184D2204
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_RLE = 1
_LZ4_STORED = 1 << 31


def surely_fits(codec: int, payload: memoryview, limit: int) -> bool:
    """Whether payload unpacks to limit bytes at most. False where that is not known, also for damaged data."""
    if len(payload) * _RATIOS[codec] <= limit:
        return True
    bound = None
    if codec == Codec.ZSTD:
        bound = _zstd_bound(payload, limit)
    elif codec == Codec.LZ4:
        bound = _lz4_bound(payload, limit)
    return bound is not None and bound <= limit


def _zstd_bound(data: memoryview, limit: int) -> int | None:
    """RFC 8878 3.1: frames of blocks, each with a header of three bytes."""
    total = blocks = position = 0
    end = len(data)
    while position < end:
        if end - position < 8:
            return None
        (magic,) = _UINT32(data, position)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            blocks += 1
            position += 8 + _UINT32(data, position + 4)[0]
            if blocks > BLOCKS_MAX:
                return None
            continue
        if magic != _ZSTD_MAGIC:
            return None
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
        position += (single_segment, 2, 4, 8)[descriptor >> 6]
        is_last = 0
        while not is_last:
            blocks += 1
            if end - position < 3 or blocks > BLOCKS_MAX or total > limit:
                return None
            header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            if kind == 2:
                total += _ZSTD_BLOCK_BYTES_MAX
            else:
                total += size
            position += 4 if kind == _ZSTD_RLE else 3 + size
        position += 4 if descriptor & 4 else 0
    return total


def _lz4_bound(data: memoryview, limit: int) -> int | None:
    """LZ4's frame format 1.6: blocks with their size before them."""
    total = blocks = position = 0
    end = len(data)
    while position < end:
        if end - position < 8:
            return None
        (magic,) = _UINT32(data, position)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE:
            blocks += 1
            position += 8 + _UINT32(data, position + 4)[0]
            if blocks > BLOCKS_MAX:
                return None
            continue
        if magic != _LZ4_MAGIC:
            return None
        flags = data[position + 4]
        block_bytes_max = 1 << (2 * (data[position + 5] >> 4 & 7) + 8)
        position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            blocks += 1
            if end - position < 4 or blocks > BLOCKS_MAX or total > limit:
                return None
            (size,) = _UINT32(data, position)
            position += 4
            if not size:
                break
            packed = size & ~_LZ4_STORED
            total += packed if size & _LZ4_STORED else min(block_bytes_max, packed * 255)
            position += packed + (4 if flags & 0x10 else 0)
        position += 4 if flags & 0x04 else 0
    return total
