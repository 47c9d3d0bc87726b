"""Producers: plain ones, which may or may not retry, and idempotent ones, which do.

A producer makes batches at its own pace and has a few requests in flight. Every value is unique: it contains the
producer's name, the partition and a counter.

An idempotent producer follows Kafka's clients: the batches of a partition have sequences; after an error it waits
until nothing of that partition is in flight, and resends unacknowledged batches in order. If the oldest of them is
rejected as out of order, the node has forgotten the producer, which requests a new producer id.
"""

from collections import deque
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.records import BatchOptions, Codec, build_batch
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    GotProducerId,
    ProducedRecord,
    Refused,
    Sent,
    Survives,
)
from penstock.sim.clients import messages
from penstock.sim.clients.client import NOT_THERE, ClientContext, TopicClient, code_name
from penstock.wire.peers import Address

ALL = -1
IN_FLIGHT_MAX = 5
"""Requests in flight of an idempotent producer; a node remembers the sequences of as many batches."""

Identity = tuple[int, int]
"""Producer id and epoch."""

FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
UNKNOWN_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


@dataclass(frozen=True)
class ProducerPlan:
    name: str
    topic: str
    acks: int
    survives: Survives
    """What its acknowledged records must survive."""
    is_idempotent: bool = False
    retries: bool = True
    in_flight_max: int = IN_FLIGHT_MAX
    batch_records_max: int = 5
    value_bytes_max: int = 100
    key_count: int = 0
    """Number of different keys; 0 for records without a key."""
    pace_us: int = 4_000
    timeout_ms: int = 5_000
    codec: Codec = Codec.NONE
    drops_link: float = 0.002
    """Probability per tick that it disconnects, with requests in flight or not."""


@dataclass
class PartitionQueue:
    """Unacknowledged batches of one partition, by number."""

    waiting: deque[Batch] = field(default_factory=deque)
    flying: list[Batch] = field(default_factory=list)
    is_blocked: bool = False
    """A batch failed: nothing is sent until nothing is in flight."""
    is_known: bool = False
    """Whether a batch was acknowledged in the topic's current life; used for renewed topics only."""
    record_count: int = 0
    next_sequence: int = 0

    def oldest(self) -> int:
        return min(batch.number for batch in (*self.waiting, *self.flying))

    def take_back(self, batches: list[Batch]) -> None:
        """Move batches from in flight back to waiting, in order."""
        self.flying = [each for each in self.flying if each not in batches]
        self.waiting = deque(sorted((*self.waiting, *batches), key=lambda each: each.number))


class Producer(TopicClient):
    def __init__(self, plan: ProducerPlan, context: ClientContext) -> None:
        super().__init__(plan.name, context, plan.topic)
        self.plan = plan
        self.batch_count = 0
        self.acked_count = 0
        self._queues: dict[int, PartitionQueue] = {}
        self._requests_open = 0
        self._is_ready = False
        self._identity: Identity | None = None
        """Producer id and epoch; None for a plain producer, and while it is being requested."""
        self._sequences: dict[Batch, int] = {}
        self._sent_to: dict[int, Address] = {}
        """Broker that got the last batch of each partition."""

    @property
    def is_idle(self) -> bool:
        return not any(queue.waiting or queue.flying for queue in self._queues.values())

    def start(self) -> None:
        super().start()
        self.later(self.plan.pace_us, self._tick)

    def topic_ready(self) -> None:
        for partition in self.partitions:
            self._queues.setdefault(partition, PartitionQueue())
        if self.plan.is_idempotent and self._identity is None:
            self._get_identity()
        else:
            self._is_ready = True

    def disconnected(self) -> None:
        self._is_ready = False
        self._requests_open = 0

    # -- making and sending ----------------------------------------------------------------------------

    def _tick(self) -> None:
        pace_us = self.plan.pace_us
        self.later(self.rng.randrange(pace_us // 2, pace_us * 2), self._tick)
        if not self._is_ready:
            return
        if not self.context.network.is_calm and self.rng.random() < self.plan.drops_link:
            self.trace("hangs up")
            self.disconnect()
            return
        if self._requests_open < self.plan.in_flight_max:
            self._send_some()

    def _send_some(self) -> None:
        chosen = self.rng.sample(self.partitions, self.rng.randint(1, min(3, len(self.partitions))))
        if not self.is_working:
            chosen = self.partitions
        by_leader: dict[Address, list[Batch]] = {}
        for partition in sorted(chosen):
            leader = self.leaders.get(partition)
            batch = self._next(partition) if leader is not None else None
            if leader is not None and batch is not None:
                by_leader.setdefault(leader, []).append(batch)
        for leader, batches in by_leader.items():
            self._send(leader, batches)

    def _next(self, partition: int) -> Batch | None:
        """Return the batch to send to a partition now, if any.

        Before it sends to a new leader, an idempotent producer waits until nothing is in flight to the old one, as
        librdkafka does. Otherwise a later batch could be written first.
        """
        if self.plan.is_idempotent and self._has_moved(partition):
            return None
        queue = self._queues[partition]
        if queue.is_blocked:
            if queue.flying:
                return None
            queue.is_blocked = False
        if not queue.waiting:
            if not self.is_working or len(queue.flying) >= IN_FLIGHT_MAX:
                return None
            queue.waiting.append(self._make(partition, queue))
        batch = queue.waiting.popleft()
        self._sent_to[partition] = self.leaders[partition]
        if self.plan.acks != 0:
            queue.flying.append(batch)
        return batch

    def _has_moved(self, partition: int) -> bool:
        """Whether something is in flight to a broker that no longer leads the partition."""
        return bool(self._queues[partition].flying) and self._sent_to[partition] != self.leaders[partition]

    def _make(self, partition: int, queue: PartitionQueue) -> Batch:
        rng, plan = self.rng, self.plan
        records = []
        for _ in range(rng.randint(1, plan.batch_records_max)):
            key = f"k{rng.randrange(plan.key_count)}".encode() if plan.key_count else None
            padding = b"." * rng.randint(0, plan.value_bytes_max)
            value = f"{self.name}/{partition}/{queue.record_count} ".encode() + padding
            records.append(ProducedRecord(key, value, queue.record_count))
            queue.record_count += 1
        self.batch_count += 1
        at = TopicPartition(self.scope, partition)
        return Batch(self.name, self.batch_count, at, plan.acks, records)

    def _encode(self, batch: Batch) -> bytes:
        options = BatchOptions(codec=self.plan.codec)
        identity = self._identity_of(batch)
        if identity is not None:
            queue = self._queues[batch.at.partition]
            if batch not in self._sequences:
                self._sequences[batch] = queue.next_sequence
                queue.next_sequence += len(batch.records)
            producer_id, epoch = identity
            sequence = self._sequences[batch]
            options |= BatchOptions(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            numbered = (producer_id, epoch, sequence)
            if numbered not in batch.identities:
                batch.identities.append(numbered)
        now_ms = self.context.schedule.now_ms
        return build_batch([(each.key, each.value, now_ms) for each in batch.records], **options)

    def _identity_of(self, batch: Batch) -> Identity | None:
        """Return the producer id and epoch of a batch; None for a plain producer."""
        return self._identity

    def _is_current(self, sent_as: Identity | None) -> bool:
        """Return whether an error for a batch sent with this identity still matters."""
        return sent_as == self._identity

    def _send(self, leader: Address, batches: list[Batch]) -> None:
        encoded = {batch.at.partition: self._encode(batch) for batch in batches}
        for batch in batches:
            batch.sends += 1
            self.record(Sent(batch))
        self.trace("sends " + ", ".join(f"#{each.number} to {each.at}" for each in batches))
        request = messages.produce(self.plan.acks, self.plan.timeout_ms, self.topic, encoded)
        if self.plan.acks == 0:
            self.send_only(request, to=leader)
            return
        self._requests_open += 1
        sent_as = self._identity
        self.call(
            request,
            lambda results: self._answered(batches, sent_as, results),
            lambda: self._lost(batches, sent_as),
            to=leader,
        )

    # -- what becomes of them --------------------------------------------------------------------------

    def _answered(
        self, batches: list[Batch], sent_as: Identity | None, results: list[messages.PartitionProduced]
    ) -> None:
        self._requests_open -= 1
        by_partition = {batch.at.partition: batch for batch in batches}
        if sorted(each.partition for each in results) != sorted(by_partition):
            raise ValueError(f"{self.name} sent {sorted(by_partition)} and got replies for {results}")
        for partition, code, base_offset, message in results:
            batch = by_partition[partition]
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._acked(batch, base_offset)
            elif self._is_current(sent_as):
                self.trace(f"#{batch.number} is refused: {code_name(code)} {message}")
                self._failed(batch, code)

    def _acked(self, batch: Batch, base_offset: int) -> None:
        queue = self._queues[batch.at.partition]
        queue.take_back([batch])
        queue.waiting.remove(batch)
        self._sequences.pop(batch, None)
        self.acked_count += 1
        self.trace(f"#{batch.number} is at {base_offset}")
        self.record(Acked(batch, base_offset, self.plan.survives, self.incarnation))

    def _failed(self, batch: Batch, code: int) -> None:
        queue = self._queues[batch.at.partition]
        is_first = batch.number == queue.oldest()
        queue.take_back([batch])
        self.record(Refused(batch, code, is_first, self.incarnation))
        if not self.plan.retries:
            queue.waiting.remove(batch)
        elif self.plan.is_idempotent:
            queue.is_blocked = True
            if is_first and code in FORGOTTEN:
                self._begin_anew()
        if code in NOT_THERE:
            self.refresh_leaders()
        if code in UNKNOWN_TOPIC and self._is_ready:
            self._is_ready = False
            self.again_soon(self.ready)

    def _lost(self, batches: list[Batch], sent_as: Identity | None) -> None:
        if not self._is_current(sent_as):
            return
        for batch in batches:
            queue = self._queues[batch.at.partition]
            queue.take_back([batch])
            if not self.plan.retries:
                queue.waiting.remove(batch)

    # -- producer id -----------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """Get a new producer id; sequences restart at 0."""
        self._is_ready = False
        self._identity = None
        self._sequences.clear()
        for queue in self._queues.values():
            queue.take_back(queue.flying)
            queue.is_blocked = False
            queue.next_sequence = 0
        self._get_identity()

    def _get_identity(self) -> None:
        if self.link is not None:
            self.call(messages.init_producer_id(), self._got_identity)

    def _got_identity(self, reply: messages.InitProducerIdReply) -> None:
        code, producer_id, epoch = reply
        if code:
            self.trace(f"gets no producer id: {code_name(code)}")
            self.again_soon(self._get_identity)
            return
        self.trace(f"is producer {producer_id} in epoch {epoch}")
        self._identity = producer_id, epoch
        self.record(GotProducerId(self.name, producer_id, epoch, self.incarnation))
        self._is_ready = True
