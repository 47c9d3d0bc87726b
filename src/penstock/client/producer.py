"""Produce: records in, batches out, none lost, none twice, none out of order.

Records gather in batches by partition. A batch leaves when it is full, when it has lingered, or at a flush; each
broker has one request at a time, with what is ready for all the partitions it leads. While it is on its way the
next one fills, so a busy producer does not wait. A batch that failed with a retriable error (a leader
moved, a connection broke) is sent again, to the current leader, until its delivery timeout; nothing of
its partition overtakes it. An idempotent producer has an id from the cluster and numbers its records, so that a
broker tells a repetition from a new batch. A batch that a broker refuses for good ends the producer: what came
after it would otherwise be in a log that lacks it.

Nothing runs in the background: `send`, `poll` and `flush` move things on, and raise what went wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_of_key
from penstock.base.ids import Offset, TopicPartition
from penstock.records import Codec
from penstock.wire import NodeEndpoint, ProduceResult
from penstock.wire.produce_client import ProduceResponse

from .batches import Batch, Headers, PartitionQueue, ProducedRecord, ProducerIdentity
from .cluster import Cluster
from .connection import Call
from .errors import NETWORK_ERRORS, RETRIABLE, ClientError, TimedOut, no_partition, refused
from .identity import init_producer_id
from .network import Link
from .partitioner import StickyPartitioner
from .produce_requests import (
    ACKS_ALL,
    REFRESH_MS,
    error_of,
    learn_leader,
    produce_request,
    read_replies,
    retry_time_ms,
)
from .topology import TopicInfo

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
    """A broker drops a connection, without a word, for a request of more than 100 MB."""
    delivery_timeout_ms: float = 120_000
    create_topics: bool = True
    """Let the broker create a topic that is not there, if it is set to."""

    def __post_init__(self) -> None:
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=all, acks={self.acks} was given")


class Delivery(NamedTuple):
    """A batch that is in the log, as far as `acks` can tell."""

    partition: TopicPartition
    base_offset: Offset
    """-1 where the broker does not tell: with acks=0, and for a repetition it no longer remembers well."""
    records: int
    record_bytes: int


class _Flight(NamedTuple):
    link: Link
    call: Call[ProduceResponse]
    queues: dict[TopicPartition, PartitionQueue]
    started_ms: float


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        on_delivery: Callable[[Delivery], None] = lambda _: None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self.buffered_bytes = 0
        self._cluster = cluster
        self._on_delivery = on_delivery
        self._identity: ProducerIdentity | None = None if self.settings.is_idempotent else ProducerIdentity()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[TopicPartition, PartitionQueue] = {}
        """Those with a batch in them."""
        self._flights: dict[int, _Flight] = {}
        self._sticky: dict[str, StickyPartitioner] = {}
        self._stale: set[str] = set()
        """Topics whose leaders are to be looked up again."""
        self._failure: ClientError | None = None
        self._is_flushing = False
        self._due_ms = float("inf")
        """When a batch that lingers has to leave."""

    # -- for callers ----------------------------------------------------------------------------------

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
        self._raise_failure()
        clock = self._cluster.clock
        record = ProducedRecord(key, value, clock.wall_ms() if timestamp is None else timestamp, headers)
        size = record.bytes_max
        if size > self.settings.record_bytes_max:
            raise ClientError(
                f"a record of {size} bytes is too large, expected at most {self.settings.record_bytes_max}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        where = TopicPartition(topic, self._choose(topic, key, partition, size))
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = PartitionQueue(where)
        now_ms = clock.now_ms()
        is_ready = queue.append(
            record, now_ms, self.settings.batch_bytes_max, self.settings.delivery_timeout_ms
        )
        self._waiting[where] = queue
        self.buffered_bytes += size
        self._due_ms = min(self._due_ms, now_ms + self.settings.linger_ms)
        if is_ready or now_ms >= self._due_ms:
            self.poll()
        while self.buffered_bytes > self.settings.buffer_bytes_max:
            self.poll(self._cluster.settings.retry_backoff_ms_max)
        return where

    def poll(self, wait_ms: float = 0) -> None:
        """Send what is ready and take what was answered; wait for an answer, or for the next batch to be ready."""
        self._raise_failure()
        self._dispatch()
        self._collect(min(wait_ms, max(0.0, self._due_ms - self._cluster.clock.now_ms())))
        self._dispatch()
        self._raise_failure()

    def flush(self) -> None:
        """Return when every record is delivered; raise when one cannot be."""
        self._is_flushing = True
        try:
            while self._waiting:
                self.poll(self._cluster.settings.retry_backoff_ms_max)
        finally:
            self._is_flushing = False

    def work(self, duration_ms: float) -> None:
        """Spend some time, on what is under way if anything is."""
        clock = self._cluster.clock
        deadline_ms = clock.now_ms() + duration_ms
        while (left_ms := deadline_ms - clock.now_ms()) > 0:
            if self._waiting:
                self.poll(left_ms)
            else:
                clock.sleep_ms(left_ms)

    @property
    def due_ms(self) -> float:
        """How long the producer may be left alone; infinite where nothing waits."""
        if self._flights:
            return 0.0
        return max(0.0, self._due_ms - self._cluster.clock.now_ms())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- choosing -------------------------------------------------------------------------------------

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
        return sticky.choose(lambda: _available(info), size)

    # -- sending --------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Start a request at each broker that is free and has something to get."""
        now_ms = self._cluster.clock.now_ms()
        linger_ms = 0.0 if self._is_flushing else self.settings.linger_ms
        by_leader: dict[int, list[PartitionQueue]] = {}
        self._due_ms = float("inf")
        for queue in self._waiting.values():
            ready_ms = queue.ready_ms(linger_ms, self.settings.batch_bytes_max)
            if ready_ms is None:
                continue
            if ready_ms > now_ms:
                self._due_ms = min(self._due_ms, ready_ms)
                continue
            leader = self._cluster.leader(queue.partition)
            if leader is not None and leader.leader not in self._flights:
                by_leader.setdefault(leader.leader, []).append(queue)
            elif leader is None:
                self._stale.add(queue.partition.topic)
                self._retry(queue, refused(f"partition {queue.partition}", ErrorCode.LEADER_NOT_AVAILABLE))
        if self._stale:
            self._refresh()
        for node_id, queues in by_leader.items():
            self._start(node_id, queues, now_ms)

    def _refresh(self) -> None:
        try:
            self._cluster.refresh(self._stale, timeout_ms=REFRESH_MS)
        except NETWORK_ERRORS:
            return  # the batches have deadlines, and will come back here
        self._stale.clear()

    def _start(self, node_id: int, queues: list[PartitionQueue], now_ms: float) -> None:
        taken: dict[TopicPartition, PartitionQueue] = {}
        contents: dict[TopicPartition, bytes] = {}
        size = 0
        try:
            link = self._cluster.link(node_id)
            if self._identity is None:
                self._identity = init_producer_id(self._cluster)
            for queue in queues:
                if taken and size + queue.batches[0].bytes_max > self.settings.request_bytes_max:
                    break  # the rest goes with the next one
                batch = queue.take(self.settings.is_idempotent)
                taken[queue.partition] = queue
                encoded = batch.encode(self._identity, self.settings.codec, self.settings.level)
                contents[queue.partition] = encoded
                size += len(encoded)
            self._flights[node_id] = _Flight(
                link,
                link.start(produce_request(self._cluster, contents, acks=self.settings.acks)),
                taken,
                now_ms,
            )
        except NETWORK_ERRORS as error:
            for queue in taken.values() or queues:
                self._stale.add(queue.partition.topic)
                self._retry(queue, error)

    # -- answers --------------------------------------------------------------------------------------

    def _collect(self, wait_ms: float) -> None:
        clock = self._cluster.clock
        if not any(each.call.is_done for each in self._flights.values()):
            if self._flights:
                read_replies(self._cluster, self._flights.values(), wait_ms)
            elif self._waiting and wait_ms > 0:
                clock.sleep_ms(wait_ms)
        for node_id, flight in list(self._flights.items()):
            if flight.call.is_done:
                del self._flights[node_id]
                self._land(flight)

    def _land(self, flight: _Flight) -> None:
        queues = dict(flight.queues)
        error: ClientError | None = None
        try:
            response = flight.call.result()
        except NETWORK_ERRORS as lost:
            error = lost
        except ClientError as wrong:
            self._failure = wrong
            return
        else:
            if not flight.call.request.is_settled:
                for queue in queues.values():
                    self._deliver(queue, -1)
                return
            self._settle_all(response, queues)
            error = refused(
                "Produce", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left a partition out of its reply"
            )
        for queue in queues.values():
            self._stale.add(queue.partition.topic)
            self._retry(queue, error)

    def _settle_all(self, response: ProduceResponse, queues: dict[TopicPartition, PartitionQueue]) -> None:
        """Settle the partitions that a response names, and take them out of the queues."""
        for topic, results in response.topics:
            for result in results:
                queue = queues.pop(TopicPartition(str(topic), result.partition), None)
                if queue is not None:
                    self._settle(queue, result, response.node_endpoints)

    def _settle(
        self, queue: PartitionQueue, result: ProduceResult, endpoints: Sequence[NodeEndpoint]
    ) -> None:
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._deliver(queue, -1 if code else result.base_offset)
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(queue.batches[0].records) > 1:
            queue.replace_head(queue.batches[0].split())
            return
        problem = error_of(queue.partition, result)
        if code not in RETRIABLE:
            self._failure = problem
            return
        if not learn_leader(self._cluster, queue.partition, result, endpoints):
            self._stale.add(queue.partition.topic)
        self._retry(queue, problem)

    def _deliver(self, queue: PartitionQueue, base_offset: Offset) -> None:
        batch = queue.done()
        if not queue.batches:
            self._waiting.pop(queue.partition, None)
        self.buffered_bytes -= sum(each.bytes_max for each in batch.records)
        record_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in batch.records)
        self._on_delivery(Delivery(queue.partition, base_offset, len(batch.records), record_bytes))

    def _retry(self, queue: PartitionQueue, error: ClientError) -> None:
        batch: Batch = queue.batches[0]
        queue.is_in_flight = False
        batch.retry_ms = retry_time_ms(self._cluster, batch.attempts)
        self._due_ms = min(self._due_ms, batch.retry_ms)
        if self._cluster.clock.now_ms() >= batch.deadline_ms:
            seconds = self.settings.delivery_timeout_ms / 1000
            self._failure = TimedOut(
                f"{len(batch.records)} records for {queue.partition} were not delivered within {seconds:g} s: {error}"
            )
        else:
            self._cluster.on_retry(error)


def _available(topic: TopicInfo) -> list[int]:
    """Partitions that can take records now; all of them, where none can."""
    led = [each.partition for each in topic.partitions.values() if each.leader >= 0]
    return led or list(topic.partitions)
