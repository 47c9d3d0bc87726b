"""The names of things: offsets, epochs, producers, partitions."""

from typing import NamedTuple, TypeAlias

Offset: TypeAlias = int
"""A record's place in its partition; 64 bits."""

LeaderEpoch: TypeAlias = int
"""Counts the leaders of a partition; 32 bits, -1 where none is known."""

ProducerId: TypeAlias = int
"""A producer's number; 64 bits, -1 for a producer that is not idempotent."""

TimestampMs: TypeAlias = int
"""Milliseconds since 1970; -1 for a record without a timestamp."""

NO_TIMESTAMP: TimestampMs = -1
NO_PRODUCER_ID: ProducerId = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH: LeaderEpoch = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
