"""Which partition of an internal topic keeps a group or a transactional id.

Kafka hashes the name as Java does. Every broker and every tool must come to the same partition, so the hash is
part of the format of `__consumer_offsets` and `__transaction_state`.
"""

from functools import lru_cache

_BITS_32 = 0xFFFFFFFF
_INT32_MIN = -(2**31)


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, in 32 bits, signed."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & _BITS_32
    return value - 2**32 if value >= 2**31 else value


@lru_cache(4096)  # a member says the name of its group with every heartbeat
def partition_for(name: str, count: int) -> int:
    """The partition, of so many, that has this name. The smallest number has no absolute value in Java: it is 0."""
    value = java_string_hash(name)
    return 0 if value == _INT32_MIN else abs(value) % count
