"""Kafka's hashes: which partition a record's key goes to, and which partition of an internal topic keeps a group.

Keys are hashed with murmur2, over all partitions of the topic, as Kafka's own producers do it. The names of groups and
transactional ids are hashed as Java does. Every broker and every tool must come to the same partition, so the hash is
part of the format of `__consumer_offsets` and `__transaction_state`.
"""

from functools import lru_cache

MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_BITS_32 = 0xFFFFFFFF
_INT32_MIN = -(2**31)


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, in 32 bits, signed."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & _BITS_32
    return value - 2**32 if value >= 2**31 else value


@lru_cache(4096)  # a member sends its group's name with every heartbeat
def partition_for(name: str, count: int) -> int:
    """Return the partition of a name, as Java does: the smallest integer, which has no absolute value, counts as 0."""
    value = java_string_hash(name)
    return 0 if value == _INT32_MIN else abs(value) % count


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    length = len(data)
    h = (MURMUR2_SEED ^ length) & _BITS_32
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MURMUR2_M & _BITS_32
        k = (k ^ k >> 24) * _MURMUR2_M & _BITS_32
        h = (h * _MURMUR2_M & _BITS_32) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MURMUR2_M & _BITS_32
    h = (h ^ h >> 13) * _MURMUR2_M & _BITS_32
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
