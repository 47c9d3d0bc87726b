"""The five codecs of a batch, with bounded decompression.

A batch of a few kilobytes may decompress to gigabytes, so the output buffer is limited. Snappy declares the length of
each block; the sum is trusted up to the highest ratio of the format. The other codecs decompress into a buffer that
starts near the size in their header and grows fourfold, up to the limit, if it is too small: a second pass over the
input costs less than unused memory.

Output is what Kafka's Java client accepts: snappy in xerial's framing, LZ4 frames with independent blocks (it refuses
linked ones), plain gzip and zstd.
"""

from collections.abc import Iterator
from enum import IntEnum

import cramjam

from .errors import CorruptBatch, DecompressedTooLarge
from .varint import Readable


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_LEVEL_DEFAULT = 6
"""zlib's default, which level -1 means too."""

LZ4_LEVEL_KAFKA_DEFAULT = 9
"""Default of `compression.lz4.level`, with which Kafka uses the fast compressor, not level 9."""

ZSTD_LEVEL_DEFAULT = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
"""Magic, version, oldest version that can read it: SnappyCodec in snappy-java."""

XERIAL_BLOCK_BYTES = 32 * 1024
SNAPPY_RATIO_MAX = 22
"""The densest element is a copy of 64 bytes in 3; a block that claims more has a false length."""

_FIRST_GUESS_BYTES = 64 * 1024
_GUESS_RATIO_MAX = 64
_OUTPUT_FULL = "failed to write whole buffer"
"""cramjam's message for an output buffer that is too small (Rust's io::ErrorKind::WriteZero)."""


def compress(codec: Codec, data: Readable, level: int | None = None) -> bytes:
    """Levels: gzip -1..9, lz4 1..17 (from 12 on they are the same), zstd -131072..22; snappy has none."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.GZIP:
        level = _checked(level, -1, 9, "gzip")
        return bytes(cramjam.gzip.compress(data, GZIP_LEVEL_DEFAULT if level in (None, -1) else level))
    if codec == Codec.LZ4:
        level = _checked(level, 1, 17, "lz4")
        if level is None or level == LZ4_LEVEL_KAFKA_DEFAULT:
            level = 1
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))  # it accepts nothing else; bytes are not copied
        return bytes(frame.finish())
    level = _checked(level, -131072, 22, "zstd")
    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL_DEFAULT if level is None else level))


def decompress(codec: Codec, data: Readable, max_bytes: int) -> memoryview:
    """Decompress data to at most max_bytes (plus a codec's window, which is no larger).

    Raises DecompressedTooLarge if there is more, CorruptBatch if data is not valid for the codec.
    """
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(codec, max_bytes)
        return memoryview(data)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    return _decompress_stream(codec, data, max_bytes)


def _checked(level: int | None, lowest: int, highest: int, name: str) -> int | None:
    if level is not None and not lowest <= level <= highest:
        raise ValueError(f"{name} has levels {lowest} to {highest}, not {level}")
    return level


def _too_large(codec: Codec, max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(
        f"{codec.name.lower()} data unpacks to more than the {max_bytes} bytes allowed"
    )


def _garbage(codec: Codec, what: object, position: int = 0) -> CorruptBatch:
    return CorruptBatch(f"not {codec.name.lower()} data: {what}", position)


# gzip, lz4, zstd: streams of unknown length


def _decompress_stream(codec: Codec, data: Readable, max_bytes: int) -> memoryview:
    decompress_into = _INTO[codec]
    capacity = _first_capacity(codec, data, max_bytes)
    while True:
        output = bytearray(capacity)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _garbage(codec, error) from None
        if capacity >= max_bytes:
            raise _too_large(codec, max_bytes)
        del output  # otherwise both buffers would exist at once
        capacity = min(4 * capacity, max_bytes)


_INTO = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _first_capacity(codec: Codec, data: Readable, max_bytes: int) -> int:
    hint = _size_hint(codec, data)
    if hint is None:
        hint = 4 * len(data)
    guess = max(_FIRST_GUESS_BYTES, min(hint, _GUESS_RATIO_MAX * len(data)))
    return max(0, min(guess, max_bytes))


def _size_hint(codec: Codec, data: Readable) -> int | None:
    """The decompressed size that the data declares, if any: a hint, since a client may write anything there."""
    if codec == Codec.GZIP and len(data) >= 18:
        return int.from_bytes(data[-4:], "little")
    if codec == Codec.LZ4 and len(data) >= 15 and data[4] & 0x08:
        return int.from_bytes(data[6:14], "little")
    if codec == Codec.ZSTD and len(data) >= 5:
        return _zstd_content_size(data)
    return None


def _zstd_content_size(data: Readable) -> int | None:
    """Frame_Content_Size of RFC 8878 3.1.1.1, from the first frame."""
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if not width:
        return None
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size


# snappy: blocks of declared length


def _compress_xerial(data: Readable) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> memoryview:
    # Two passes over the blocks, since there may be millions: one to add up their sizes, one to decompress.
    total = 0
    for position, block in _snappy_blocks(data):
        total += _snappy_length(block, position)
        if total > max_bytes:
            raise _too_large(Codec.SNAPPY, max_bytes)
    output = memoryview(bytearray(total))
    end = 0
    for position, block in _snappy_blocks(data):
        start, end = end, end + _snappy_length(block, position)
        try:
            written = cramjam.snappy.decompress_raw_into(block, output[start:end])
        except cramjam.DecompressionError as error:
            raise _garbage(Codec.SNAPPY, error, position) from None
        if written != end - start:
            raise _garbage(Codec.SNAPPY, f"a block declares {end - start} bytes, holds {written}", position)
    return output


def _snappy_blocks(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Each block and its position. Several framed streams may follow each other, each with a header."""
    if data[:8] != XERIAL_MAGIC:
        yield 0, data
        return
    position = 0
    while position < len(data):
        if data[position : position + 8] == XERIAL_MAGIC:
            if len(data) - position < len(XERIAL_HEADER):
                raise _garbage(Codec.SNAPPY, "the xerial header is cut short", position)
            position += len(XERIAL_HEADER)
            continue
        start = position + 4
        size = int.from_bytes(data[position:start], "big")
        if start + size > len(data):
            found = len(data) - start
            raise _garbage(Codec.SNAPPY, f"a block of {size} bytes is cut short at {found}", position)
        yield start, data[start : start + size]
        position = start + size


def _snappy_length(block: memoryview, position: int) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _garbage(Codec.SNAPPY, error, position) from None
    if size > SNAPPY_RATIO_MAX * len(block):
        raise _garbage(
            Codec.SNAPPY, f"{len(block)} bytes declare {size}, beyond what they can hold", position
        )
    return size
