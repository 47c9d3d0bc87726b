"""Recompresses a batch in another codec, for `compression.type`.

The records are decompressed and compressed again, but not decoded: their bytes do not change. Of the header only
codec, length and CRC change.

Compressing 1 MB of text takes some 5 ms in snappy, lz4 and zstd, and 80 ms in gzip; decompressing it 2 to 6 ms.
"""

from .batch import ATTRIBUTES_AT, CODEC_MASK, DECOMPRESSED_BYTES_MAX, HEADER_BYTES, RecordBatch, seal
from .compression import Codec, compress


def recompress(
    batch: RecordBatch, codec: Codec, level: int | None = None, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """The same batch in another codec, in a new buffer; `max_bytes` limits the decompressed size.

    Raises DecompressedTooLarge, or CorruptBatch if the records are not valid for the batch's codec.
    """
    packed = compress(codec, batch.decompressed(max_bytes), level)
    made = bytearray(HEADER_BYTES + len(packed))
    made[:HEADER_BYTES] = batch.view[:HEADER_BYTES]
    made[HEADER_BYTES:] = packed
    attributes = batch.attributes & ~CODEC_MASK | codec
    made[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = (attributes & 0xFFFF).to_bytes(2, "big")
    seal(made)
    return made
