"""The latest offset of each key in the dirty part of a log, as Kafka's OffsetMap.

Memory is bounded. Keys of 16 bytes or more are replaced by a 128-bit digest, as in Kafka's cleaner, so the cost of an
entry hardly depends on the keys. When the map is full, the round ends at that offset, and the next one continues
there.
"""

from hashlib import md5

from penstock.base.ids import Offset
from penstock.records.varint import decode_varint

ENTRY_BYTES = 200
"""Measured memory of a dictionary entry: a small bytes object and an integer (33 + 15 and 32 bytes,
rounded up by the allocator), a slot, and the copy of all slots while the dictionary grows."""

DIGEST_BYTES = 16


class OffsetMap:
    """Key to latest offset, up to a number of keys."""

    def __init__(self, memory_bytes_max: int) -> None:
        self.by_key: dict[bytes, Offset] = {}
        self.keys_max = max(memory_bytes_max // ENTRY_BYTES, 1)
        self.mapped_to: Offset = -1
        """Every record below this offset is in the map."""

    def has_room(self, records: int) -> bool:
        """Whether a batch of this many records certainly fits; the first one always does."""
        return not self.by_key or len(self.by_key) + records <= self.keys_max

    def add(self, data: bytes, count: int, base_offset: Offset, from_offset: Offset) -> None:
        """Add the keys of a batch's uncompressed records, from an offset on.

        One-byte varints are inlined: compaction spends its time in this loop and the one in `cleaner`. A malformed
        batch raises IndexError, or adds keys that no record has.
        """
        by_key = self.by_key
        position = 0
        for _ in range(count):
            size = data[position]
            if size < 0x80:
                position += 1
                end = position + (size >> 1)
            else:
                size, position = decode_varint(data, position)
                end = position + size
            if end <= position:
                raise IndexError("a record without a length")  # otherwise the loop would not end
            position += 1
            while data[position] >= 0x80:  # the timestamp
                position += 1
            position += 1
            delta = data[position]
            if delta < 0x80:
                position += 1
                delta >>= 1
            else:
                delta, position = decode_varint(data, position)
            size = data[position]
            if size < 0x80:
                position += 1
                size = (size >> 1) ^ -(size & 1)
            else:
                size, position = decode_varint(data, position)
            if size >= 0 and base_offset + delta >= from_offset:
                key = data[position : position + size]
                by_key[key if size < DIGEST_BYTES else md5(key, usedforsecurity=False).digest()] = (
                    base_offset + delta
                )
            position = end
