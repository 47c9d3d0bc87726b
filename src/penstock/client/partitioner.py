"""Which partition a record without a key goes to: Kafka's default.

Such records stick to one partition until it has had a batch's worth of bytes, then move on to another by chance
(KIP-480, KIP-794): that fills batches, where taking turns would make many small ones. Records
with a key go by `base.hashing`.
"""

import random
from collections.abc import Callable, Sequence

from .topology import TopicInfo


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


def available_partitions(topic: TopicInfo) -> list[int]:
    """Partitions that have a leader; all partitions if none has."""
    led = [each.partition for each in topic.partitions.values() if each.leader >= 0]
    return led or list(topic.partitions)
