"""Sends encoded batches to their partitions: several in flight, in order, none lost and none twice.

A task writes a lot to a few partitions. Rows are encoded when there are enough of them for one partition; a batch is
sent at once, while the next is being encoded. Up to IN_FLIGHT_MAX batches of a partition may be on their way: the
broker takes them by their sequence numbers alone, so one that comes too early is refused rather than misplaced. When
one fails for a reason that passes, nothing more leaves for its partition until all of them are back; then all that
were not taken leave again, in order, with the numbers they had.

A batch that is too large for its topic is cut in two, and later ones are made smaller. A single record that is too
large ends the task.
"""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.arrow.encode import encode
from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.batches import ProducerIdentity
from penstock.client.cluster import Cluster
from penstock.client.connection import Call
from penstock.client.errors import NETWORK_ERRORS, RETRIABLE, BrokerRefused, ClientError, TimedOut, refused
from penstock.client.network import Link
from penstock.client.produce_requests import (
    REFRESH_MS,
    error_of,
    learn_leader,
    produce_request,
    read_replies,
    retry_time_ms,
)
from penstock.client.transactional import PRODUCE_ADDS_PARTITIONS, OpenTransaction, add_partitions
from penstock.records.batch import SEQUENCE_MASK
from penstock.spark.errors import WriteFailed
from penstock.spark.writing.sink_options import SinkOptions
from penstock.wire import NodeEndpoint, ProduceResult
from penstock.wire.produce import VERSION_MAX, VERSION_MIN
from penstock.wire.produce_client import ProduceResponse
from penstock.wire.request import Request

IN_FLIGHT_MAX: Final = 3
"""Batches of one partition. Brokers remember five by their numbers."""
REQUESTS_MAX: Final = 4
"""Requests at one broker."""
WAIT_MS: Final = 1_000
"""How long one wait for answers may last; another follows."""

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)


@dataclass(slots=True, eq=False)
class _Batch:
    rows: pa.RecordBatch
    """What it was made of, in case that it has to be made smaller."""
    data: bytes
    sequence: int
    deadline_ms: float
    is_sent: bool = False
    is_taken: bool = False


@dataclass(slots=True, eq=False)
class _Queue:
    partition: TopicPartition
    batches: deque[_Batch] = field(default_factory=deque)
    """In order; those that are taken leave from the front."""
    next_sequence: int = 0
    in_flight: int = 0
    is_failing: bool = False
    """One was refused: nothing leaves before all are back."""
    attempts: int = 0
    retry_ms: float = 0.0
    is_begun: bool = False
    """The broker has taken a batch. It takes any number for a producer's first, so that one goes alone."""
    is_member: bool = False
    """Of the transaction, as far as this side has to care."""


class _Flight(NamedTuple):
    node_id: int
    link: Link
    call: Call[ProduceResponse]
    batches: dict[TopicPartition, _Batch]
    started_ms: float


class Sender:
    """Writes for one producer: of a transaction, or idempotent without one."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        identity: ProducerIdentity,
        transaction: OpenTransaction | None,
        *,
        epoch_bumps: bool,
    ) -> None:
        self.records = 0
        """Taken by the broker so far."""
        self.bytes = 0
        self.buffered_bytes = 0
        self._cluster = cluster
        self._options = options
        self._identity = identity
        self._transaction = transaction
        self._epoch_bumps = epoch_bumps
        self._queues: dict[TopicPartition, _Queue] = {}
        self._flights: list[_Flight] = []
        self._bytes_max: dict[str, int] = {}
        """By topic, where it takes less than the option says."""
        self._stale: set[str] = set()

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._queues)

    # -- for callers ----------------------------------------------------------------------------------

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Encode rows and send what can be sent. Blocks only while too much is buffered."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue(partition)
        deadline_ms = self._cluster.clock.now_ms() + self._options.delivery_timeout_ms
        made = self._encode(queue, rows, queue.next_sequence, deadline_ms)
        queue.batches += made
        queue.next_sequence = (queue.next_sequence + rows.num_rows) & SEQUENCE_MASK
        self.buffered_bytes += sum(len(each.data) for each in made)
        self.poll(0)
        while self.buffered_bytes > self._options.buffer_bytes_max:
            self.poll(WAIT_MS)

    def flush(self) -> None:
        """Return when every row is taken; raise when one cannot be."""
        while any(queue.batches for queue in self._queues.values()):
            self.poll(WAIT_MS)

    def poll(self, wait_ms: float) -> None:
        self._dispatch()
        self._collect(wait_ms)
        self._dispatch()

    def _encode(self, queue: _Queue, rows: pa.RecordBatch, sequence: int, deadline_ms: float) -> list[_Batch]:
        bytes_max = self._bytes_max.get(queue.partition.topic, self._options.batch_bytes_max)
        encoded = encode(
            rows,
            codec=self._options.codec,
            timestamp_ms=self._cluster.clock.wall_ms(),
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=sequence,
            is_transactional=self._transaction is not None,
            batch_bytes_max=bytes_max,
        )
        made, start = [], 0
        for each in encoded:
            mine = rows.slice(start, each.count)
            made.append(_Batch(mine, each.data, (sequence + start) & SEQUENCE_MASK, deadline_ms))
            start += each.count
        return made

    # -- sending --------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        if self._stale:
            # If no broker answers, the batches are tried again until their deadlines.
            with suppress(*NETWORK_ERRORS):
                self._cluster.refresh(self._stale, timeout_ms=REFRESH_MS)
                self._stale.clear()
        while True:
            by_leader: dict[int, dict[TopicPartition, _Batch]] = {}
            sizes: dict[int, int] = {}
            for queue in self._queues.values():
                batch = self._next(queue)
                if batch is None:
                    continue
                leader = self._cluster.leader(queue.partition)
                if leader is None:
                    self._stale.add(queue.partition.topic)
                    self._retry(
                        queue, refused(f"partition {queue.partition}", ErrorCode.LEADER_NOT_AVAILABLE)
                    )
                    continue
                node_id = leader.leader
                size = sizes.get(node_id, 0)
                is_busy = sum(each.node_id == node_id for each in self._flights) >= REQUESTS_MAX
                if is_busy or (size and size + len(batch.data) > self._options.request_bytes_max):
                    continue
                by_leader.setdefault(node_id, {})[queue.partition] = batch
                sizes[node_id] = size + len(batch.data)
            if not by_leader:
                return
            self._join([partition for batches in by_leader.values() for partition in batches])
            for node_id, batches in by_leader.items():
                self._start(node_id, batches)

    def _next(self, queue: _Queue) -> _Batch | None:
        if queue.is_failing:
            if queue.in_flight or queue.retry_ms > self._cluster.clock.now_ms():
                return None
            queue.is_failing = False
            for batch in queue.batches:
                batch.is_sent = False
        # Counted from the first that is not known to be taken: the broker must still remember that one when it
        # comes again, however many after it were taken meanwhile.
        window = islice(queue.batches, IN_FLIGHT_MAX if queue.is_begun else 1)
        return next((batch for batch in window if not batch.is_sent and not batch.is_taken), None)

    def _join(self, partitions: list[TopicPartition]) -> None:
        """Add new partitions to the transaction at its coordinator, before their first record is sent."""
        if self._transaction is None or self._epoch_bumps:
            return
        new = [each for each in partitions if not self._queues[each].is_member]
        if new:
            try:
                add_partitions(self._cluster, self._transaction, new)
            except BrokerRefused as error:
                raise _over(new[0], error.code) if error.code in _FENCED else error from error
            for partition in new:
                self._queues[partition].is_member = True

    def _start(self, node_id: int, batches: dict[TopicPartition, _Batch]) -> None:
        for partition, batch in batches.items():
            batch.is_sent = True
            self._queues[partition].in_flight += 1
        try:
            link = self._cluster.link(node_id)
            call = link.start(self._request({partition: each.data for partition, each in batches.items()}))
        except NETWORK_ERRORS as error:
            self._lost(batches, error)
            return
        self._flights.append(_Flight(node_id, link, call, batches, self._cluster.clock.now_ms()))

    def _request(self, contents: dict[TopicPartition, bytes]) -> Request[ProduceResponse]:
        if self._transaction is None:
            return produce_request(self._cluster, contents)
        low, high = (
            (PRODUCE_ADDS_PARTITIONS, VERSION_MAX)
            if self._epoch_bumps
            else (VERSION_MIN, PRODUCE_ADDS_PARTITIONS - 1)
        )
        return produce_request(
            self._cluster,
            contents,
            transactional_id=self._transaction.transactional_id,
            version_min=low,
            version_max=high,
        )

    # -- answers --------------------------------------------------------------------------------------

    def _collect(self, wait_ms: float) -> None:
        clock = self._cluster.clock
        if not any(each.call.is_done for each in self._flights):
            pauses = [
                each.retry_ms for each in self._queues.values() if each.is_failing and not each.in_flight
            ]
            if pauses:
                wait_ms = min(wait_ms, max(0.0, min(pauses) - clock.now_ms()))
            if self._flights:
                read_replies(self._cluster, self._flights, wait_ms)
            elif pauses and wait_ms > 0:
                clock.sleep_ms(wait_ms)
        done = [each for each in self._flights if each.call.is_done]
        self._flights = [each for each in self._flights if not each.call.is_done]
        for flight in done:
            self._land(flight)

    def _land(self, flight: _Flight) -> None:
        left = dict(flight.batches)
        try:
            response = flight.call.result()
        except NETWORK_ERRORS as error:
            self._lost(left, error)
            return
        for topic, results in response.topics:
            for result in results:
                partition = TopicPartition(str(topic), result.partition)
                batch = left.pop(partition, None)
                if batch is not None:
                    self._settle(self._queues[partition], batch, result, response.node_endpoints)
        if left:
            self._lost(left, refused("Produce", ErrorCode.UNKNOWN_SERVER_ERROR, "a partition was left out"))

    def _lost(self, batches: dict[TopicPartition, _Batch], error: ClientError) -> None:
        for partition in batches:
            self._stale.add(partition.topic)
            self._queues[partition].in_flight -= 1
            self._retry(self._queues[partition], error)

    def _settle(
        self, queue: _Queue, batch: _Batch, result: ProduceResult, endpoints: list[NodeEndpoint]
    ) -> None:
        queue.in_flight -= 1
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.is_taken = queue.is_begun = True
            queue.attempts = 0
            while queue.batches and queue.batches[0].is_taken:
                taken = queue.batches.popleft()
                self.records += taken.rows.num_rows
                self.bytes += len(taken.data)
                self.buffered_bytes -= len(taken.data)
            return
        problem = error_of(queue.partition, result)
        is_behind = batch is not queue.batches[0]
        if code in _TOO_LARGE:
            self._make_smaller(queue, batch)
            self._retry(queue, problem)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (is_behind or queue.is_failing):
            self._retry(queue, problem)  # one before it was not taken
        elif code in RETRIABLE:
            if not learn_leader(self._cluster, queue.partition, result, endpoints):
                self._stale.add(queue.partition.topic)
            self._retry(queue, problem)
        elif code in _FENCED:
            raise _over(queue.partition, code)
        else:
            raise problem

    def _make_smaller(self, queue: _Queue, batch: _Batch) -> None:
        topic, size = queue.partition.topic, len(batch.data)
        if batch.rows.num_rows == 1:
            raise WriteFailed(
                f"a record of {size} bytes is too large for topic {topic}, see its max.message.bytes"
            )
        raw = max(1, batch.rows.nbytes)
        limit = min(self._bytes_max.get(topic, self._options.batch_bytes_max), raw)
        self._bytes_max[topic] = max(1, limit // 2)
        at = queue.batches.index(batch)
        middle = batch.rows.num_rows // 2
        halves: list[_Batch] = []
        for start, count in ((0, middle), (middle, batch.rows.num_rows - middle)):
            sequence = (batch.sequence + start) & SEQUENCE_MASK
            halves += self._encode(queue, batch.rows.slice(start, count), sequence, batch.deadline_ms)
        del queue.batches[at]
        for offset, half in enumerate(halves):
            queue.batches.insert(at + offset, half)
        self.buffered_bytes += sum(len(each.data) for each in halves) - size

    def _retry(self, queue: _Queue, error: ClientError) -> None:
        if not queue.is_failing:
            queue.retry_ms = retry_time_ms(self._cluster, queue.attempts)
            queue.attempts += 1
            queue.is_failing = True
        if queue.batches and self._cluster.clock.now_ms() >= queue.batches[0].deadline_ms:
            seconds = self._options.delivery_timeout_ms / 1000
            raise TimedOut(f"rows for {queue.partition} were not delivered within {seconds:g} s: {error}")


def _over(partition: TopicPartition, code: int) -> WriteFailed:
    return WriteFailed(
        f"partition {partition} refused the rows of this task, {ErrorCode(code).name}: its transaction has ended, "
        "because it took longer than kafka.transaction.timeout.ms or another run has taken over"
    )
