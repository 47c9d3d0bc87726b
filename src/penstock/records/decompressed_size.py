"""Upper bounds of a batch's decompressed size, found without decompressing it.

A broker that appends a batch unchanged must know that every consumer can decompress it. For most batches the codec's
highest compression ratio is enough. For larger ones the block headers give the bound: a batch of 1 MB has a few dozen.

    codec    ratio at most   known from        a batch always fits into 128 MiB below
    snappy          22       (ratio alone)     6 MB
    lz4            255       block headers     526 KB
    gzip          1032       (ratio alone)     130 KB
    zstd         32768       block headers     4 KB

Other batches must be decompressed, which may take long: see `storage.inspection`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from .compression import SNAPPY_RATIO_MAX, Codec

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, lengths of key and value, count of headers: a byte each."""

BLOCKS_MAX: Final = 2048
"""Block headers read at most, in about 0.5 ms. 128 MiB of zstd in full blocks have 1,024."""

RATIO_MAX: Final = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: SNAPPY_RATIO_MAX,
    Codec.LZ4: 255,
    Codec.ZSTD: 32768,
}
"""Most bytes that one compressed byte can decompress to. zstd: 4 bytes may repeat a byte 128 KiB times."""

_RATIOS: Final = tuple(RATIO_MAX[codec] for codec in Codec)

_UINT32 = Struct("<I").unpack_from

_ZSTD_MAGIC, _LZ4_MAGIC = 0xFD2FB528, 0x184D2204
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_RLE, _ZSTD_COMPRESSED = 1, 2
_LZ4_STORED = 1 << 31


def surely_fits(codec: int, payload: memoryview, limit: int) -> bool:
    """Whether payload decompresses to at most limit bytes. False if unknown, also for damaged data."""
    if len(payload) * _RATIOS[codec] <= limit:
        return True
    if codec == Codec.ZSTD:
        return _frames_fit(payload, limit, _ZSTD_MAGIC, _zstd_frame)
    if codec == Codec.LZ4:
        return _frames_fit(payload, limit, _LZ4_MAGIC, _lz4_frame)
    return False


class _Frame(NamedTuple):
    end: int
    """Position after the frame."""
    bytes_max: int
    """Upper bound of its decompressed size."""
    blocks: int


def _frames_fit(
    data: memoryview, limit: int, magic: int, read_frame: Callable[[memoryview, int, int, int], _Frame | None]
) -> bool:
    """Whether the frames of zstd or lz4 data, which may have skippable frames between them, fit into limit bytes."""
    total = blocks = position = 0
    end = len(data)
    while position < end:
        if end - position < 8 or blocks > BLOCKS_MAX:
            return False
        (found,) = _UINT32(data, position)
        if found & _SKIPPABLE_MASK == _SKIPPABLE:
            blocks += 1
            position += 8 + _UINT32(data, position + 4)[0]
            continue
        frame = read_frame(data, position, limit - total, BLOCKS_MAX - blocks) if found == magic else None
        if frame is None:
            return False
        position = frame.end
        total += frame.bytes_max
        blocks += frame.blocks
    return total <= limit and blocks <= BLOCKS_MAX


def _zstd_frame(data: memoryview, position: int, limit: int, blocks_max: int) -> _Frame | None:
    """RFC 8878 3.1: blocks with a header of three bytes. None if they exceed a limit or are cut short."""
    total = blocks = 0
    end = len(data)
    descriptor = data[position + 4]
    single_segment = descriptor >> 5 & 1
    position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    position += (single_segment, 2, 4, 8)[descriptor >> 6]
    is_last = 0
    while not is_last:
        blocks += 1
        if end - position < 3 or blocks > blocks_max or total > limit:
            return None
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        total += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else size
        position += 4 if kind == _ZSTD_RLE else 3 + size
    return _Frame(position + (4 if descriptor & 4 else 0), total, blocks)


def _lz4_frame(data: memoryview, position: int, limit: int, blocks_max: int) -> _Frame | None:
    """LZ4 frame format 1.6: each block is preceded by its size. None if they exceed a limit or are cut short."""
    total = blocks = 0
    end = len(data)
    flags = data[position + 4]
    block_bytes_max = 1 << (2 * (data[position + 5] >> 4 & 7) + 8)
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while True:
        blocks += 1
        if end - position < 4 or blocks > blocks_max or total > limit:
            return None
        (size,) = _UINT32(data, position)
        position += 4
        if not size:
            break
        packed = size & ~_LZ4_STORED
        total += packed if size & _LZ4_STORED else min(block_bytes_max, packed * 255)
        position += packed + (4 if flags & 0x10 else 0)
    return _Frame(position + (4 if flags & 0x04 else 0), total, blocks)
