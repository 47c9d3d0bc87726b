"""Which partition a record goes to: Kafka's default, so that keys stay where its own producers put them.

A key goes by its hash, murmur2 as Kafka has it, over all partitions of the topic. Without a key records stick to
one partition until it has had a batch's worth of bytes, then move on to another by chance (KIP-480, KIP-794):
that fills batches, where taking turns would make many small ones.
"""

import random
from collections.abc import Callable, Sequence

SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    length = len(data)
    h = (SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Where the next record without a key goes, for one topic."""

    def __init__(self, rng: random.Random, switch_bytes: int) -> None:
        self._rng = rng
        self._switch_bytes = switch_bytes
        self._chosen: int | None = None
        self._given_bytes = 0

    def choose(self, available: Callable[[], Sequence[int]], record_bytes: int) -> int:
        """A partition; the list of those that can take records now is asked for only when it is time to move."""
        chosen = self._chosen
        if chosen is None or self._given_bytes >= self._switch_bytes:
            candidates = available()
            others = [each for each in candidates if each != chosen]
            chosen = self._chosen = self._rng.choice(others or candidates)
            self._given_bytes = 0
        self._given_bytes += record_bytes
        return chosen
