"""Produces rows of Arrow columns: encodes them as record batches, and delivers the batches.

A task writes a lot to a few partitions, so several batches of a partition are in flight while the next are encoded.
`client/sender.py` does the rest: sequence numbers, retries, leaders and order. When a batch turns out to be too large
for its topic, later ones are made smaller. An error that is not retriable ends the task.
"""

from functools import partial
from typing import Final

import pyarrow as pa

from penstock.arrow.encode import encode
from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.identity import ProducerIdentity
from penstock.client.sender import ProducerBatch, Sender, SenderSettings
from penstock.client.transactional import PRODUCE_ADDS_PARTITIONS, OpenTransaction, add_partitions
from penstock.records.batch import SEQUENCE_MASK
from penstock.spark.errors import WriteFailed
from penstock.spark.writing.sink_options import SinkOptions
from penstock.wire.produce import VERSION_MAX, VERSION_MIN

BATCHES_IN_FLIGHT_MAX: Final = 3
REQUESTS_IN_FLIGHT_MAX: Final = 4
WAIT_MS: Final = 1_000
"""Time limit of one wait for replies; another follows."""

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)


class _Encoder:
    """Encodes rows for one topic, in batches that the topic accepts."""

    def __init__(
        self, cluster: Cluster, options: SinkOptions, identity: ProducerIdentity, is_transactional: bool
    ) -> None:
        self.bytes_max = options.batch_bytes_max
        """Lower once the topic has refused a batch as too large."""
        self._clock = cluster.clock
        self._codec = options.codec
        self._identity = identity
        self._is_transactional = is_transactional

    def encode(self, rows: pa.RecordBatch, sequence: int, created_ms: float) -> "list[_Batch]":
        encoded = encode(
            rows,
            codec=self._codec,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=sequence,
            is_transactional=self._is_transactional,
            batch_bytes_max=self.bytes_max,
        )
        batches, start = [], 0
        for each in encoded:
            part = rows.slice(start, each.count)
            batches.append(_Batch(self, part, each.data, created_ms, (sequence + start) & SEQUENCE_MASK))
            start += each.count
        return batches


class _Batch(ProducerBatch):
    """An encoded batch, with the rows it was made of in case that it must be split."""

    def __init__(
        self, encoder: _Encoder, rows: pa.RecordBatch, data: bytes, created_ms: float, base_sequence: int
    ) -> None:
        super().__init__(created_ms, base_sequence)
        self.bytes_max = len(data)
        self._encoder = encoder
        self._rows = rows
        self._data = data

    @property
    def record_count(self) -> int:
        count: int = self._rows.num_rows
        return count

    def encode(self, identity: ProducerIdentity) -> bytes:
        return self._data

    def split(self) -> "list[_Batch]":
        encoder, rows, middle = self._encoder, self._rows, self.record_count // 2
        encoder.bytes_max = max(1, min(encoder.bytes_max, rows.nbytes) // 2)
        second = (self.base_sequence + middle) & SEQUENCE_MASK
        return [
            *encoder.encode(rows.slice(0, middle), self.base_sequence, self.created_ms),
            *encoder.encode(rows.slice(middle), second, self.created_ms),
        ]


class ColumnProducer:
    """Writes for one producer id: inside a transaction, or idempotent without one."""

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
        """Acknowledged by the broker."""
        self.bytes = 0
        self.partitions: set[TopicPartition] = set()
        self._cluster = cluster
        self._options = options
        self._make_encoder = partial(_Encoder, cluster, options, identity, transaction is not None)
        self._encoders: dict[str, _Encoder] = {}
        joins = transaction is not None and not epoch_bumps
        self._sender: Sender[_Batch] = Sender(
            cluster,
            SenderSettings(
                batches_in_flight_max=BATCHES_IN_FLIGHT_MAX,
                requests_in_flight_max=REQUESTS_IN_FLIGHT_MAX,
                request_bytes_max=options.request_bytes_max,
                delivery_timeout_ms=options.delivery_timeout_ms,
                transactional_id=None if transaction is None else transaction.transactional_id,
                version_min=PRODUCE_ADDS_PARTITIONS if transaction and epoch_bumps else VERSION_MIN,
                version_max=PRODUCE_ADDS_PARTITIONS - 1 if joins else VERSION_MAX,
            ),
            identity,
            self._acknowledged,
            partial(add_partitions, cluster, transaction) if transaction and joins else None,
        )

    @property
    def buffered_bytes(self) -> int:
        return self._sender.buffered_bytes

    def add(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Encode rows and send what can be sent. Blocks only while too much is buffered."""
        self.partitions.add(partition)
        encoder = self._encoders.get(partition.topic)
        if encoder is None:
            encoder = self._encoders[partition.topic] = self._make_encoder()
        sequence = self._sender.reserve_sequence(partition, rows.num_rows)
        self._sender.add(partition, encoder.encode(rows, sequence, self._cluster.clock.now_ms()))
        self._poll(0)
        while self.buffered_bytes > self._options.buffer_bytes_max:
            self._poll(WAIT_MS)

    def flush(self) -> None:
        """Return when every row is acknowledged; raise when one cannot be."""
        while not self._sender.is_empty:
            self._poll(WAIT_MS)

    def _poll(self, wait_ms: float) -> None:
        try:
            self._sender.dispatch()
            self._sender.collect(wait_ms)
            self._sender.dispatch()
        except BrokerRefused as error:
            if error.code in _FENCED:
                raise WriteFailed(
                    f"{error}; the transaction of this task has ended, because it took longer than "
                    "kafka.transaction.timeout.ms or another run has taken over"
                ) from error
            if error.code in _TOO_LARGE:
                raise WriteFailed(str(error)) from error
            raise

    def _acknowledged(self, _: TopicPartition, batch: _Batch) -> None:
        self.records += batch.record_count
        self.bytes += batch.bytes_max
