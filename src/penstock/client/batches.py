"""Records that wait to be sent: a queue of batches for each partition.

A queue sends from its head, one batch at a time; what is sent again keeps its place and its sequence numbers,
so that order holds and a broker recognises a repetition. A batch takes its sequence numbers when it first
leaves, never before: one that is split keeps those it has.
"""

from collections import deque
from typing import NamedTuple

from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampMs, TopicPartition
from penstock.records import BatchBuilder, Codec
from penstock.records.batch import HEADER_BYTES, SEQUENCE_MASK

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD_BYTES = 21
"""At most, of a record's lengths and deltas."""


class ProducedRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: TimestampMs
    headers: Headers = ()

    @property
    def bytes_max(self) -> int:
        """How many bytes it takes in a batch, at most, before compression."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += 10 + len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
        return size


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class Batch:
    def __init__(self, now_ms: float, delivery_timeout_ms: float) -> None:
        self.records: list[ProducedRecord] = []
        self.bytes_max = HEADER_BYTES
        self.created_ms = now_ms
        self.deadline_ms = now_ms + delivery_timeout_ms
        """When it is given up, whatever the reason it has not been taken so far."""
        self.base_sequence = NO_SEQUENCE
        self.is_closed = False
        """Has been sent: what it holds, and so its sequence numbers, stays as it is."""
        self.attempts = 0
        self.retry_ms = 0.0
        """Not to be sent before."""
        self.error: Exception | None = None
        """Why the last try failed."""
        self._encoded: bytes | None = None

    def append(self, record: ProducedRecord, size: int) -> None:
        self.records.append(record)
        self.bytes_max += size

    def encode(self, identity: ProducerIdentity, codec: Codec, level: int | None) -> bytes:
        """As it goes on the wire; made once, since a repetition must be the same."""
        if self._encoded is None:
            builder = BatchBuilder(
                codec=codec,
                level=level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.base_sequence,
            )
            for record in self.records:
                builder.append(record.key, record.value, record.timestamp, record.headers)
            self._encoded = builder.build()
        return self._encoded

    def split(self) -> "list[Batch]":
        """Two halves in order, for a broker to which the whole was too large."""
        halves = []
        middle = len(self.records) // 2
        for start, stop in ((0, middle), (middle, len(self.records))):
            half = Batch(self.created_ms, 0)
            half.deadline_ms = self.deadline_ms
            half.is_closed = True
            for record in self.records[start:stop]:
                half.append(record, record.bytes_max)
            if self.base_sequence != NO_SEQUENCE:
                half.base_sequence = (self.base_sequence + start) & SEQUENCE_MASK
            halves.append(half)
        return halves


class PartitionQueue:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.next_sequence = 0
        self.is_in_flight = False
        """The head is on its way; nothing else of this partition is."""

    def append(
        self, record: ProducedRecord, now_ms: float, batch_bytes_max: int, delivery_timeout_ms: float
    ) -> bool:
        """Take a record; whether that completed a batch."""
        size = record.bytes_max
        last = self.batches[-1] if self.batches and not self.batches[-1].is_closed else None
        is_full = last is not None and last.bytes_max + size > batch_bytes_max
        if last is None or is_full:
            last = Batch(now_ms, delivery_timeout_ms)
            self.batches.append(last)
        last.append(record, size)
        return is_full or last.bytes_max >= batch_bytes_max

    def ready_ms(self, linger_ms: float, batch_bytes_max: int) -> float | None:
        """When the head may leave; None while it is on its way or there is none."""
        if not self.batches or self.is_in_flight:
            return None
        head = self.batches[0]
        is_complete = len(self.batches) > 1 or head.bytes_max >= batch_bytes_max
        return max(head.retry_ms, head.created_ms + (0 if is_complete else linger_ms))

    def take(self, is_idempotent: bool) -> Batch:
        """The head, to be sent; it stays the head until it is done with."""
        head = self.batches[0]
        if is_idempotent and head.base_sequence == NO_SEQUENCE:
            head.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + len(head.records)) & SEQUENCE_MASK
        head.is_closed = True
        head.attempts += 1
        self.is_in_flight = True
        return head

    def done(self) -> Batch:
        self.is_in_flight = False
        return self.batches.popleft()

    def replace_head(self, halves: list[Batch]) -> None:
        self.done()
        self.batches.extendleft(reversed(halves))
