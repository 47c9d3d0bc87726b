"""Idempotent producers with several batches of a partition in flight, by the rules of librdkafka or the Java client.

Decision 0017 lists what each does after each error. What matters here is when they bump their epoch: unacknowledged
batches are then renumbered and sent again, whether they were written before or not. A needless bump sooner or later
causes a duplicate.

Neither client gives up a batch for lack of time, and nodes keep what they acknowledge. So nothing in a run justifies a
bump: `checkers/pipelined` reports each, and its consequences.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset
from penstock.sim.checkers.history import Acked, Batch, EpochBumped, Refused
from penstock.sim.clients.client import NOT_THERE, ClientContext, code_name
from penstock.sim.clients.producers import IN_FLIGHT_MAX, UNKNOWN_TOPIC, Identity, Producer, ProducerPlan
from penstock.wire import Api
from penstock.wire.peers import Address

BURST_MAX: Final = 5
BURST_GAP_US_MAX: Final = 3_000
"""Gap between two requests of a burst: shorter than the time to a reply."""

LIBRDKAFKA_PRODUCE_MAX: Final = 12
"""Last version of Produce without topic ids, which librdkafka does not support."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Errors after which both clients resend a batch with its sequence."""


class ClientRules(Enum):
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


@dataclass(frozen=True)
class PipelinedPlan(ProducerPlan):
    rules: ClientRules = ClientRules.LIBRDKAFKA


def pipelined_producer(plan: PipelinedPlan, context: ClientContext) -> "PipelinedProducer":
    made = LibrdkafkaProducer if plan.rules is ClientRules.LIBRDKAFKA else JavaProducer
    return made(plan, context)


class PipelinedProducer(Producer):
    """Sends in bursts, so that several batches of a partition are in flight."""

    def _tick(self) -> None:
        super()._tick()
        for _ in range(self.rng.randrange(BURST_MAX)):
            self.later(self.rng.randrange(BURST_GAP_US_MAX), self._send_more)

    def _send_more(self) -> None:
        if self._is_ready and self._requests_open < self.plan.in_flight_max:
            self._send_some()

    def _next(self, partition: int) -> Batch | None:
        batch = self._choose(partition)
        if batch is not None:
            self._sent_to[partition] = self.leaders[partition]
        return batch

    def _choose(self, partition: int) -> Batch | None:
        raise NotImplementedError

    def _failed(self, batch: Batch, code: int) -> None:
        queue = self._queues[batch.at.partition]
        is_first = batch.number == queue.oldest()
        queue.take_back([batch])
        self.record(Refused(batch, code, is_first, self.incarnation))
        self._consider(batch, code, is_first)
        if code in NOT_THERE or code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.refresh_leaders()
        if code in UNKNOWN_TOPIC and self._is_ready:
            self._is_ready = False
            self.again_soon(self.ready)

    def _consider(self, batch: Batch, code: int, is_first: bool) -> None:
        """Handle the rejection of a batch, which is back in the queue."""
        raise NotImplementedError

    def _give_up(self, batch: Batch) -> None:
        """Drop a queued batch."""
        self._queues[batch.at.partition].waiting.remove(batch)
        self._sequences.pop(batch, None)

    def _begin_epoch(self, code: int) -> Identity:
        assert self._identity is not None
        producer_id, epoch = self._identity
        self._identity = producer_id, epoch + 1
        self.trace(f"begins epoch {epoch + 1} after {code_name(code)}")
        self.record(EpochBumped(self.name, epoch + 1, code))
        return self._identity


class LibrdkafkaProducer(PipelinedProducer):
    """Sends one partition per request. After an error, and before it sends to a new leader, it waits until nothing of
    the partition is in flight; before an epoch bump, until nothing at all is."""

    def __init__(self, plan: ProducerPlan, context: ClientContext) -> None:
        super().__init__(plan, context)
        self._bump_code: int | None = None
        """Error that causes an epoch bump as soon as nothing is in flight."""

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return low, min(high, LIBRDKAFKA_PRODUCE_MAX) if api is Api.PRODUCE else high

    def _choose(self, partition: int) -> Batch | None:
        if self._bump_code is not None or self._has_moved(partition):
            return None
        return Producer._next(self, partition)

    def _send(self, leader: Address, batches: list[Batch]) -> None:
        for batch in batches:
            super()._send(leader, [batch])

    def _acked(self, batch: Batch, base_offset: Offset) -> None:
        """Earlier batches that wait to be resent count as delivered with this one."""
        queue = self._queues[batch.at.partition]
        for earlier in [each for each in queue.waiting if each.number < batch.number]:
            self._give_up(earlier)
            self.acked_count += 1
            self.trace(f"#{earlier.number} counts as delivered, since #{batch.number} is")
            self.record(Acked(earlier, -1, self.plan.survives, self.incarnation))
        super()._acked(batch, base_offset)
        self._bump_if_drained()

    def _consider(self, batch: Batch, code: int, is_first: bool) -> None:
        self._queues[batch.at.partition].is_blocked = True
        if code not in RETRIABLE:
            self._bump_code = code
            if code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or is_first:
                self._give_up(batch)
        self._bump_if_drained()

    def _lost(self, batches: list[Batch], sent_as: Identity | None) -> None:
        super()._lost(batches, sent_as)
        self._bump_if_drained()

    def _bump_if_drained(self) -> None:
        if self._bump_code is None or any(each.flying for each in self._queues.values()):
            return
        self._begin_epoch(self._bump_code)
        self._bump_code = None
        self._sequences.clear()
        for queue in self._queues.values():
            queue.next_sequence = 0


class JavaProducer(PipelinedProducer):
    """Sends all partitions of a leader in one request. Only the oldest batch of a partition is resent; new ones may go
    to a new leader while older ones are in flight to the previous one. The epoch is bumped per partition."""

    def __init__(self, plan: ProducerPlan, context: ClientContext) -> None:
        super().__init__(plan, context)
        self._epochs: dict[int, Identity | None] = {}
        """Producer id and epoch by partition."""
        self._last_acked: dict[int, int] = {}
        """Highest acknowledged sequence of that epoch, by partition."""
        self._renumbered: dict[Batch, None] = {}

    def _choose(self, partition: int) -> Batch | None:
        queue = self._queues[partition]
        if queue.waiting:
            is_again = queue.waiting[0] in self._sequences
            if is_again and queue.waiting[0].number != queue.oldest():
                return None
        else:
            if not self.is_working or len(queue.flying) >= IN_FLIGHT_MAX:
                return None
            if queue.flying and self._epochs.get(partition) != self._identity:
                return None
            if self._has_moved(partition) and partition not in self._last_acked:
                # The new leader may not know the producer, and would accept this batch as its first (decision 0017).
                return None
            queue.waiting.append(self._make(partition, queue))
        batch = queue.waiting.popleft()
        if (
            not queue.flying
            and batch not in self._sequences
            and self._epochs.get(partition) != self._identity
        ):
            self._epochs[partition] = self._identity
            self._last_acked.pop(partition, None)
            queue.next_sequence = 0
        queue.flying.append(batch)
        return batch

    def _identity_of(self, batch: Batch) -> Identity | None:
        return self._epochs[batch.at.partition]

    def _is_current(self, sent_as: Identity | None) -> bool:
        return True

    def _acked(self, batch: Batch, base_offset: Offset) -> None:
        last = self._sequences[batch] + len(batch.records) - 1
        partition = batch.at.partition
        self._last_acked[partition] = max(last, self._last_acked.get(partition, -1))
        self._renumbered.pop(batch, None)
        super()._acked(batch, base_offset)

    def _consider(self, batch: Batch, code: int, is_first: bool) -> None:
        if code in RETRIABLE:
            return
        partition = batch.at.partition
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            expected = self._last_acked.get(partition, -1) + 1
            if batch in self._renumbered or self._sequences[batch] != expected:
                return
        elif code != ErrorCode.UNKNOWN_PRODUCER_ID:
            self._give_up(batch)
        self._renumber(partition, code)

    def _renumber(self, partition: int, code: int) -> None:
        queue = self._queues[partition]
        self._epochs[partition] = self._begin_epoch(code)
        self._last_acked.pop(partition, None)
        queue.next_sequence = 0
        sent = [each for each in (*queue.flying, *queue.waiting) if each in self._sequences]
        for batch in sorted(sent, key=lambda each: each.number):
            self._renumbered[batch] = None
            self._sequences[batch] = queue.next_sequence
            queue.next_sequence += len(batch.records)
