"""The latest offset of each key: what the cleaner knows of the dirty part of a log.

Memory is bounded. Keys of 16 bytes or more are represented by a 128-bit digest, as in Kafka's cleaner, so an
entry costs about the same whatever the keys are; when the map is full, the round ends at that point of the
log, and the next one goes on from there.
"""

from hashlib import md5

from penstock.base.ids import Offset
from penstock.records.varint import decode_varint

ENTRY_BYTES = 200
"""What an entry takes in a dictionary, measured: a small bytes object and an integer (33 + 15 and 32 bytes,
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
        """Whether a batch of so many records fits for certain; the first one always does."""
        return not self.by_key or len(self.by_key) + records <= self.keys_max

    def add(self, data: bytes, count: int, base_offset: Offset, from_offset: Offset) -> None:
        """Note the keys of a batch's records, given uncompressed, from an offset on.

        The one-byte varints are written out: this loop and the one in `cleaner` are where cleaning spends
        its time. A malformed batch ends in IndexError, or in keys that no record has.
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
                raise IndexError("a record without a length")  # or the walk would go in circles
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
