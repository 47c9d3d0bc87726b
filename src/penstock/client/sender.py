"""Sends record batches to the leaders of their partitions: none lost, none twice, none out of order.

This is the engine of every producer: `client/producer.py` makes batches of records, Spark's sink of Arrow columns. A
producer adds its batches to the queues of their partitions, then calls `dispatch`, which starts requests, and
`collect`, which reads replies. Nothing runs in the background.

A queue sends from its head, up to `batches_in_flight_max` batches at a time. A broker accepts an idempotent
producer's batches by their sequence numbers, so a batch that arrives too early is refused, not misplaced. After a
retriable error (a leader moved, a connection broke) the queue pauses until all its batches in flight are
answered. Then all that were not acknowledged are sent again, in order, with the same sequence numbers, to the current
leader, until the delivery timeout of the first. A batch that is too large for its topic is split.

Any other error is final: the sender raises it from then on, since a later batch must not follow a missing one.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, Self, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_PRODUCER_ID, NO_SEQUENCE, Offset, TopicPartition
from penstock.records.batch import SEQUENCE_MASK
from penstock.wire import Api, NodeEndpoint, ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce import TOPIC_IDS, VERSION_MAX, VERSION_MIN
from penstock.wire.produce_client import ProduceResponse, produce_body, read_produce_response
from penstock.wire.request import Request

from .cluster import Cluster
from .connection import Call
from .errors import NETWORK_ERRORS, RETRIABLE, ClientError, TimedOut, refused
from .identity import ProducerIdentity, init_producer_id
from .network import Link
from .topology import TopicKeys

ACKS_ALL = -1
NO_OFFSET: Offset = -1
REFRESH_MS = 5_000
"""Time limit of one metadata refresh; another follows."""

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ProducerBatch(ABC):
    """Records of one partition that are sent, and retried, together. Subclasses hold the records."""

    bytes_max: int
    """Size before compression, at most. Does not change once the batch is in a queue."""

    def __init__(self, created_ms: float, base_sequence: int = NO_SEQUENCE) -> None:
        self.created_ms = created_ms
        self.base_sequence = base_sequence
        self.base_offset = NO_OFFSET
        self.is_sent = False
        self.is_acknowledged = False

    @property
    @abstractmethod
    def record_count(self) -> int: ...

    @abstractmethod
    def encode(self, identity: ProducerIdentity) -> bytes:
        """The batch on the wire; the same bytes each time."""

    @abstractmethod
    def split(self) -> Sequence[Self]:
        """Smaller batches of the same records, with the same sequence numbers."""


B = TypeVar("B", bound=ProducerBatch)


@dataclass(frozen=True)
class SenderSettings:
    acks: int = ACKS_ALL
    batches_in_flight_max: int = 1
    """Of one partition; more than 1 for idempotent producers only. Brokers remember the last five."""
    requests_in_flight_max: int = 1
    """At one broker."""
    request_bytes_max: int = 2**20
    """Kafka's max.request.size: a request takes another batch while it stays below. One batch always goes."""
    delivery_timeout_ms: float = 120_000
    transactional_id: str | None = None
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX


@dataclass(slots=True, eq=False)
class _PartitionQueue(Generic[B]):
    partition: TopicPartition
    batches: deque[B] = field(default_factory=deque)
    """In order. Acknowledged batches leave from the front."""
    next_sequence: int = 0
    in_flight: int = 0
    is_paused: bool = False
    """A batch failed: nothing is sent before retry_ms, nor while a batch is in flight."""
    retry_ms: float = 0.0
    attempts: int = 0
    """Failures since the last acknowledgement."""
    has_begun: bool = False
    """The broker has acknowledged a batch. It accepts any sequence number as a producer's first, so the first batch
    is sent alone."""
    is_joined: bool = False
    """The partition belongs to the transaction."""


class _Flight(NamedTuple, Generic[B]):
    """A request on its way."""

    node_id: int
    link: Link
    call: Call[ProduceResponse]
    batches: dict[TopicPartition, B]
    started_ms: float


class Sender(Generic[B]):
    def __init__(
        self,
        cluster: Cluster,
        settings: SenderSettings,
        identity: ProducerIdentity | None,
        on_acknowledged: Callable[[TopicPartition, B], None],
        join: Callable[[Sequence[TopicPartition]], None] | None = None,
    ) -> None:
        """Without an identity, the sender gets one for an idempotent producer when the first batch is sent.

        `join` adds partitions to the transaction; it is called before the first batch of a partition is sent.
        """
        self.buffered_bytes = 0
        self._cluster = cluster
        self._settings = settings
        self._identity = identity
        self._is_idempotent = identity is None or identity.producer_id != NO_PRODUCER_ID
        self._on_acknowledged = on_acknowledged
        self._join = join
        self._queues: dict[TopicPartition, _PartitionQueue[B]] = {}
        self._active: dict[TopicPartition, _PartitionQueue[B]] = {}
        """The queues with batches, the one that was served last at the end."""
        self._flights: list[_Flight[B]] = []
        self._stale: set[str] = set()
        """Topics whose metadata must be refreshed."""
        self._failure: ClientError | None = None

    @property
    def is_empty(self) -> bool:
        return not self._active

    @property
    def wake_ms(self) -> float:
        """When `dispatch` has something to do, unless a reply arrives before; infinite if only replies matter."""
        paused = (each.retry_ms for each in self._active.values() if each.is_paused and not each.in_flight)
        return min(paused, default=float("inf"))

    @property
    def has_flights(self) -> bool:
        return bool(self._flights)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- batches --------------------------------------------------------------------------------------

    def reserve_sequence(self, partition: TopicPartition, count: int) -> int:
        """The sequence number of the first of the next `count` records."""
        if not self._is_idempotent:
            return NO_SEQUENCE
        queue = self._queue(partition)
        first = queue.next_sequence
        queue.next_sequence = (first + count) & SEQUENCE_MASK
        return first

    def add(self, partition: TopicPartition, batches: Iterable[B]) -> None:
        """Queue batches, in the order in which their sequence numbers were reserved."""
        queue = self._active[partition] = self._queue(partition)
        for batch in batches:
            queue.batches.append(batch)
            self.buffered_bytes += batch.bytes_max

    def is_ready(self, partition: TopicPartition) -> bool:
        """Whether a batch that is added now is sent at once."""
        queue = self._queues.get(partition)
        if queue is not None and len(queue.batches) >= self._settings.batches_in_flight_max:
            return False
        leader = self._cluster.leader(partition)
        return leader is None or not self._is_busy(leader.leader)

    def _queue(self, partition: TopicPartition) -> _PartitionQueue[B]:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _PartitionQueue(partition)
        return queue

    # -- sending --------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Start requests at every broker that may get another one and for which batches are ready."""
        self.raise_failure()
        if self._stale:
            # If no broker answers, the batches are tried again until their deadlines.
            with suppress(*NETWORK_ERRORS):
                self._cluster.refresh(self._stale, timeout_ms=REFRESH_MS)
                self._stale.clear()
        while self._failure is None and (ready := self._ready_by_leader()):
            self._join_transaction([partition for batches in ready.values() for partition in batches])
            for node_id, batches in ready.items():
                self._start(node_id, batches)
        self.raise_failure()

    def _ready_by_leader(self) -> dict[int, dict[TopicPartition, B]]:
        now_ms = self._cluster.clock.now_ms()
        ready: dict[int, dict[TopicPartition, B]] = {}
        for partition, queue in self._active.items():
            batch = self._next(queue, now_ms)
            if batch is None:
                continue
            leader = self._cluster.leader(partition)
            if leader is None:
                self._stale.add(partition.topic)
                self._retry(queue, refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE))
            elif not self._is_busy(leader.leader):
                ready.setdefault(leader.leader, {})[partition] = batch
        return ready

    def _is_busy(self, node_id: int) -> bool:
        return sum(each.node_id == node_id for each in self._flights) >= self._settings.requests_in_flight_max

    def _next(self, queue: _PartitionQueue[B], now_ms: float) -> B | None:
        if queue.is_paused:
            if queue.in_flight or queue.retry_ms > now_ms:
                return None
            queue.is_paused = False
            for batch in queue.batches:
                batch.is_sent = False
        # The window starts at the first batch that is not acknowledged: the broker must still remember it when it
        # is sent again, however many later batches were acknowledged meanwhile.
        window = islice(queue.batches, self._settings.batches_in_flight_max if queue.has_begun else 1)
        return next((batch for batch in window if not batch.is_sent and not batch.is_acknowledged), None)

    def _join_transaction(self, partitions: Sequence[TopicPartition]) -> None:
        if self._join is None:
            return
        new = [each for each in partitions if not self._queues[each].is_joined]
        if new:
            self._join(new)
            for partition in new:
                self._queues[partition].is_joined = True

    def _start(self, node_id: int, ready: dict[TopicPartition, B]) -> None:
        taken: dict[TopicPartition, B] = {}
        contents: dict[TopicPartition, bytes] = {}
        size = 0
        try:
            link = self._cluster.link(node_id)
            if self._identity is None:
                self._identity = init_producer_id(self._cluster)
            for partition, batch in ready.items():
                if taken and size + batch.bytes_max > self._settings.request_bytes_max:
                    break  # the rest is sent with the next request
                contents[partition] = batch.encode(self._identity)
                taken[partition] = batch
                size += len(contents[partition])
            call = link.start(produce_request(self._cluster, contents, self._settings))
        except NETWORK_ERRORS as error:
            self._lost(taken or ready, error)
            return
        for partition, batch in taken.items():
            batch.is_sent = True
            self._queues[partition].in_flight += 1
        self._flights.append(_Flight(node_id, link, call, taken, self._cluster.clock.now_ms()))

    # -- replies --------------------------------------------------------------------------------------

    def collect(self, wait_ms: float) -> None:
        """Process replies; wait for one, or until a batch is to be sent again, or for wait_ms."""
        clock = self._cluster.clock
        if not any(each.call.is_done for each in self._flights):
            wait_ms = max(0.0, min(wait_ms, self.wake_ms - clock.now_ms()))
            if self._flights:
                self._read(wait_ms)
            elif wait_ms > 0:
                clock.sleep_ms(wait_ms)
        done = [each for each in self._flights if each.call.is_done]
        self._flights = [each for each in self._flights if not each.call.is_done]
        for flight in done:
            self._land(flight)
        self.raise_failure()

    def _read(self, wait_ms: float) -> None:
        """Wait for a reply; close the connection of a request that is overdue."""
        cluster = self._cluster
        links = {id(each.link): each.link for each in self._flights if each.link.is_open}
        for link in cluster.network.wait(list(links.values()), wait_ms):
            with suppress(*NETWORK_ERRORS):  # its calls carry the error
                link.read()
        # The broker waits up to the request timeout for its followers, so its reply gets a little more time.
        started_ms_min = cluster.clock.now_ms() - cluster.settings.request_timeout_ms * 1.5
        for flight in self._flights:
            if not flight.call.is_done and flight.started_ms < started_ms_min:
                flight.link.close()

    def _land(self, flight: _Flight[B]) -> None:
        left = dict(flight.batches)
        for partition in left:
            self._queues[partition].in_flight -= 1
        try:
            response = flight.call.result()
        except NETWORK_ERRORS as error:
            self._lost(left, error)
            return
        except ClientError as error:
            self._failure = error
            return
        if not flight.call.request.has_response:
            for partition, batch in left.items():
                self._acknowledge(self._queues[partition], batch, NO_OFFSET)
            return
        for topic, results in response.topics:
            for result in results:
                partition = TopicPartition(str(topic), result.partition)
                answered = left.pop(partition, None)
                if answered is not None:
                    self._settle(self._queues[partition], answered, result, response.node_endpoints)
        if left:
            problem = "the broker left a partition out of its reply"
            self._lost(left, refused("Produce", ErrorCode.UNKNOWN_SERVER_ERROR, problem))

    def _lost(self, batches: Mapping[TopicPartition, B], error: ClientError) -> None:
        for partition in batches:
            self._stale.add(partition.topic)
            self._retry(self._queues[partition], error)

    def _settle(
        self,
        queue: _PartitionQueue[B],
        batch: B,
        result: ProduceResult,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(queue, batch, NO_OFFSET if code else result.base_offset)
            return
        messages = "; ".join(dict.fromkeys(each.message for each in result.record_errors if each.message))
        problem = refused(f"partition {queue.partition}", code, messages or result.error_message)
        is_behind = batch is not queue.batches[0]
        if code in _TOO_LARGE and batch.record_count > 1:
            self._split(queue, batch)
        elif code in _TOO_LARGE:
            what = f"a record of {batch.bytes_max} bytes"
            words = f"is too large for topic {queue.partition.topic}, see its max.message.bytes"
            self._failure = refused(what, code, f"{what} {words}")
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (is_behind or queue.is_paused):
            self._retry(queue, problem)  # an earlier batch was not appended
        elif code in RETRIABLE:
            leader = result.current_leader
            if leader is None or not self._cluster.learn(queue.partition, leader, endpoints):
                self._stale.add(queue.partition.topic)
            self._retry(queue, problem)
        else:
            self._failure = problem

    def _acknowledge(self, queue: _PartitionQueue[B], batch: B, base_offset: Offset) -> None:
        batch.is_acknowledged = queue.has_begun = True
        batch.base_offset = base_offset
        queue.attempts = 0
        while queue.batches and queue.batches[0].is_acknowledged:
            first = queue.batches.popleft()
            self.buffered_bytes -= first.bytes_max
            self._on_acknowledged(queue.partition, first)
        del self._active[queue.partition]
        if queue.batches:
            self._active[queue.partition] = queue  # at the end: the other partitions are served first

    def _split(self, queue: _PartitionQueue[B], batch: B) -> None:
        at = queue.batches.index(batch)
        parts = batch.split()
        del queue.batches[at]
        for offset, part in enumerate(parts):
            queue.batches.insert(at + offset, part)
        self.buffered_bytes += sum(each.bytes_max for each in parts) - batch.bytes_max
        if not queue.is_paused:
            queue.is_paused, queue.retry_ms = True, 0.0

    def _retry(self, queue: _PartitionQueue[B], error: ClientError) -> None:
        """Pause a queue, with exponential backoff and jitter; fail if its first batch is overdue."""
        clock, client, rng = self._cluster.clock, self._cluster.settings, self._cluster.rng
        now_ms = clock.now_ms()
        if not queue.is_paused:
            pause_ms = min(
                client.retry_backoff_ms * 2 ** min(queue.attempts, 10), client.retry_backoff_ms_max
            )
            queue.retry_ms = now_ms + pause_ms * rng.uniform(0.8, 1.2)
            queue.attempts += 1
            queue.is_paused = True
        head, timeout_ms = queue.batches[0], self._settings.delivery_timeout_ms
        if now_ms >= head.created_ms + timeout_ms:
            self._failure = TimedOut(
                f"{head.record_count} records for {queue.partition} were not delivered within "
                f"{timeout_ms / 1000:g} s: {error}"
            )
        else:
            self._cluster.on_retry(error)


def produce_request(
    cluster: Cluster, contents: Mapping[TopicPartition, bytes], settings: SenderSettings
) -> Request[ProduceResponse]:
    topics: dict[str, list[ProducePartition]] = {}
    for (topic, partition), encoded in contents.items():
        topics.setdefault(topic, []).append(ProducePartition(partition, memoryview(encoded)))
    keys = TopicKeys(cluster.info, topics)
    timeout_ms = cluster.settings.request_timeout_ms

    def write(version: int) -> bytes:
        named = [ProduceTopic(keys.key(name, version >= TOPIC_IDS), topics[name]) for name in topics]
        return produce_body(
            version, ProduceRequest(settings.transactional_id, settings.acks, timeout_ms, named)
        )

    def read(body: memoryview, version: int) -> ProduceResponse:
        response = read_produce_response(body, version)
        return response._replace(topics=[(keys.name(key), inner) for key, inner in response.topics])

    newest = min(keys.newest(VERSION_MAX, TOPIC_IDS), settings.version_max)
    has_response = settings.acks != 0
    return Request(Api.PRODUCE, settings.version_min, newest, write, read, has_response=has_response)
