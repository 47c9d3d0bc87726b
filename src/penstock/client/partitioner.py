"""Chooses the partition of a record without a key, as Kafka does by default.

Such records go to one partition until it has got the bytes of a batch, then to another at random (KIP-480, KIP-794):
that fills batches, where round robin would make many small ones. For records with a key see `base.hashing`.
"""

import random
from collections.abc import Callable, Sequence

from .topology import TopicInfo


class StickyPartitioner:
    """Chooses the partitions of one topic's records without a key."""

    def __init__(self, rng: random.Random, switch_bytes: int) -> None:
        self._rng = rng
        self._switch_bytes = switch_bytes
        self._chosen: int | None = None
        self._given_bytes = 0

    def choose(self, available: Callable[[], Sequence[int]], record_bytes: int) -> int:
        """The next record's partition. `available` is called only to choose another partition."""
        chosen = self._chosen
        if chosen is None or self._given_bytes >= self._switch_bytes:
            candidates = available()
            others = [each for each in candidates if each != chosen]
            chosen = self._chosen = self._rng.choice(others or candidates)
            self._given_bytes = 0
        self._given_bytes += record_bytes
        return chosen


def available_partitions(topic: TopicInfo) -> list[int]:
    """Partitions that have a leader; all partitions if none has."""
    led = [each.partition for each in topic.partitions.values() if each.leader >= 0]
    return led or list(topic.partitions)
