"""Produces records: partitions them, gathers them in batches, and delivers the batches.

A batch leaves when it is full, when it has lingered, or at a flush. Each broker has one request at a time, with the
batches that are ready for all the partitions it leads; meanwhile the next ones fill, so a busy producer does not wait.
`client/sender.py` does the rest: sequence numbers, retries, leaders and order. An idempotent producer, the default,
writes no record twice. An error that is not retriable ends the producer.

Nothing runs in the background: `send`, `poll` and `flush` move records on, and raise errors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_of_key
from penstock.base.ids import NO_SEQUENCE, Offset, TimestampMs, TopicPartition
from penstock.records import BatchBuilder, Codec
from penstock.records.batch import HEADER_BYTES, SEQUENCE_MASK

from .cluster import Cluster
from .errors import ClientError, no_partition
from .identity import ProducerIdentity
from .partitioner import StickyPartitioner, available_partitions
from .sender import ACKS_ALL, ProducerBatch, Sender, SenderSettings

Headers = tuple[tuple[str, bytes | None], ...]

RECORD_OVERHEAD_BYTES = 21
"""At most, of a record's lengths and deltas."""

UNKNOWN_TOPIC_WAIT_MS = 5_000
"""How long to wait for a topic that the broker creates on the first metadata request."""


@dataclass(frozen=True)
class ProducerSettings:
    acks: int = ACKS_ALL
    is_idempotent: bool = True
    codec: Codec = Codec.NONE
    level: int | None = None
    linger_ms: float = 5
    batch_bytes_max: int = 128 * 1024
    """More than Kafka's 16 KB, since one request is on its way at a time."""
    request_bytes_max: int = 2**20
    """Kafka's max.request.size: a request takes another batch while it stays below. One batch always goes."""
    buffer_bytes_max: int = 32 * 2**20
    record_bytes_max: int = 64 * 2**20
    """A broker closes the connection for a request of more than 100 MB."""
    delivery_timeout_ms: float = 120_000
    create_topics: bool = True
    """Let the broker create a missing topic, if auto.create.topics.enable is set there."""

    def __post_init__(self) -> None:
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=all, acks={self.acks} was given")


class Delivery(NamedTuple):
    """A batch that is acknowledged according to `acks`."""

    partition: TopicPartition
    base_offset: Offset
    """-1 if the broker does not return it: with acks=0, and for some repeated batches."""
    records: int
    record_bytes: int


class ProducedRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: TimestampMs
    headers: Headers = ()

    @property
    def bytes_max(self) -> int:
        """Bytes in a batch before compression, at most."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += 10 + len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
        return size


class _Batch(ProducerBatch):
    """Records in a list, encoded when they are first sent."""

    def __init__(self, created_ms: float, codec: Codec, level: int | None) -> None:
        super().__init__(created_ms)
        self.bytes_max = HEADER_BYTES
        self.records: list[ProducedRecord] = []
        self._codec = codec
        self._level = level
        self._encoded: bytes | None = None

    @property
    def record_count(self) -> int:
        return len(self.records)

    def encode(self, identity: ProducerIdentity) -> bytes:
        if self._encoded is None:
            builder = BatchBuilder(
                codec=self._codec,
                level=self._level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.base_sequence,
            )
            for record in self.records:
                builder.append(record.key, record.value, record.timestamp, record.headers)
            self._encoded = builder.build()
        return self._encoded

    def split(self) -> list[Self]:
        middle = len(self.records) // 2
        halves = []
        for start, stop in ((0, middle), (middle, len(self.records))):
            half = type(self)(self.created_ms, self._codec, self._level)
            half.records = self.records[start:stop]
            half.bytes_max += sum(each.bytes_max for each in half.records)
            if self.base_sequence != NO_SEQUENCE:
                half.base_sequence = (self.base_sequence + start) & SEQUENCE_MASK
            halves.append(half)
        return halves


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        on_delivery: Callable[[Delivery], None] = lambda _: None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self._cluster = cluster
        self._on_delivery = on_delivery
        self._sender: Sender[_Batch] = Sender(
            cluster,
            SenderSettings(
                acks=self.settings.acks,
                request_bytes_max=self.settings.request_bytes_max,
                delivery_timeout_ms=self.settings.delivery_timeout_ms,
            ),
            None if self.settings.is_idempotent else ProducerIdentity(),
            self._delivered,
        )
        self._filling: dict[TopicPartition, _Batch] = {}
        """The batch of each partition to which records are added."""
        self._filling_bytes = 0
        self._sticky: dict[str, StickyPartitioner] = {}
        self._linger_end_ms = float("inf")
        """When the next batch has lingered."""

    @property
    def buffered_bytes(self) -> int:
        return self._filling_bytes + self._sender.buffered_bytes

    @property
    def due_ms(self) -> float:
        """For how long the producer needs no call; infinite if it holds no records."""
        if self._sender.has_flights:
            return 0.0
        next_ms = min(self._linger_end_ms, self._sender.wake_ms)
        return max(0.0, next_ms - self._cluster.clock.now_ms())

    @property
    def _is_idle(self) -> bool:
        return not self._filling and self._sender.is_empty

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> TopicPartition:
        """Take a record, and send what is ready. Blocks only while too much is buffered."""
        self._sender.raise_failure()
        clock, settings = self._cluster.clock, self.settings
        record = ProducedRecord(key, value, clock.wall_ms() if timestamp is None else timestamp, headers)
        size = record.bytes_max
        if size > settings.record_bytes_max:
            raise ClientError(
                f"a record of {size} bytes is too large, expected at most {settings.record_bytes_max}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        where = TopicPartition(topic, self._choose(topic, key, partition, size))
        now_ms = clock.now_ms()
        batch = self._filling.get(where)
        is_ready = batch is not None and batch.bytes_max + size > settings.batch_bytes_max
        if is_ready:
            self._close(where)
        if batch is None or is_ready:
            batch = self._filling[where] = _Batch(now_ms, settings.codec, settings.level)
            self._filling_bytes += batch.bytes_max
        batch.records.append(record)
        batch.bytes_max += size
        self._filling_bytes += size
        if batch.bytes_max >= settings.batch_bytes_max:
            self._close(where)
            is_ready = True
        self._linger_end_ms = min(self._linger_end_ms, now_ms + settings.linger_ms)
        if is_ready or now_ms >= self._linger_end_ms:
            self.poll()
        while self._filling_bytes + self._sender.buffered_bytes > settings.buffer_bytes_max:
            self.poll(self._cluster.settings.retry_backoff_ms_max)
        return where

    def poll(self, wait_ms: float = 0) -> None:
        """Send what is ready and process replies; wait for a reply, or for the next batch to be ready."""
        self._close_lingered()
        self._sender.dispatch()
        left_ms = self._linger_end_ms - self._cluster.clock.now_ms()
        self._sender.collect(0 if self._is_idle else min(wait_ms, left_ms))
        self._close_lingered()
        self._sender.dispatch()

    def flush(self) -> None:
        """Return when every record is delivered; raise when one cannot be."""
        for partition in list(self._filling):
            self._close(partition)
        while not self._sender.is_empty:
            self.poll(self._cluster.settings.retry_backoff_ms_max)

    def work(self, duration_ms: float) -> None:
        """Spend some time: deliver records if there are any, else sleep."""
        clock = self._cluster.clock
        deadline_ms = clock.now_ms() + duration_ms
        while (left_ms := deadline_ms - clock.now_ms()) > 0:
            if self._is_idle:
                clock.sleep_ms(left_ms)
            else:
                self.poll(left_ms)

    def _choose(self, topic: str, key: bytes | None, partition: int | None, size: int) -> int:
        info = self._cluster.topic(topic, create=self.settings.create_topics, wait_ms=UNKNOWN_TOPIC_WAIT_MS)
        if partition is not None:
            if partition not in info.partitions:
                raise no_partition(topic, partition, len(info.partitions))
            return partition
        if key is not None:
            return partition_of_key(key, len(info.partitions))
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartitioner(self._cluster.rng, self.settings.batch_bytes_max)
            self._sticky[topic] = sticky
        return sticky.choose(lambda: available_partitions(info), size)

    def _close_lingered(self) -> None:
        """Hand over the batches that have lingered; while their broker is busy, they fill on."""
        now_ms = self._cluster.clock.now_ms()
        self._linger_end_ms = float("inf")
        for partition, batch in list(self._filling.items()):
            end_ms = batch.created_ms + self.settings.linger_ms
            if end_ms > now_ms:
                self._linger_end_ms = min(self._linger_end_ms, end_ms)
            elif self._sender.is_ready(partition):
                self._close(partition)

    def _close(self, partition: TopicPartition) -> None:
        batch = self._filling.pop(partition)
        self._filling_bytes -= batch.bytes_max
        batch.base_sequence = self._sender.reserve_sequence(partition, len(batch.records))
        self._sender.add(partition, [batch])

    def _delivered(self, partition: TopicPartition, batch: _Batch) -> None:
        record_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in batch.records)
        self._on_delivery(Delivery(partition, batch.base_offset, len(batch.records), record_bytes))
