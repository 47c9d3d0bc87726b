"""A task's rows, from Spark's Arrow batches to the partitions of their topics.

Each row has its partition: the one in its column, else by the hash of its key over all partitions of the topic, as
Kafka's own producers do it. Rows without a key stick to one partition until it has had a batch's worth, then move to
another. Rows of a batch are sorted by partition, stably, so that order within a partition, and so within a
key, is the order in which Spark handed them over. They gather by partition until they fill a record batch.

No request is sent before the first row arrives: a task without rows opens no transaction.
"""

import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.arrow.partition import partitions_of
from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.partitioner import StickyPartitioner, available_partitions
from penstock.client.producer import UNKNOWN_TOPIC_WAIT_MS
from penstock.client.topology import TopicInfo
from penstock.spark.errors import BadRows
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.rows import Rows, split_by_topic
from penstock.spark.writing.sink_options import SinkOptions


class WriteCounts(NamedTuple):
    """How much a task has written, for logs and metrics."""

    records: int = 0
    bytes: int = 0
    partitions: int = 0


class _Gathering:
    """Rows of one partition that do not fill a batch yet."""

    __slots__ = ("bytes", "pieces")

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.pieces.append(rows)
        self.bytes += rows.nbytes

    def take(self) -> pa.RecordBatch:
        pieces, self.pieces, self.bytes = self.pieces, [], 0
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


NO_CHOICE: Final = -1


class TaskWriter:
    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        open_producer: Callable[[], ColumnProducer],
        rng: random.Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._open_producer = open_producer
        self._producer: ColumnProducer | None = None
        self._rng = rng or random.Random()
        self._gathering: dict[TopicPartition, _Gathering] = {}
        self._gathered_bytes = 0
        self._sticky: dict[str, StickyPartitioner] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteCounts:
        """Write all rows; return when the brokers have them."""
        for batch in batches:
            if batch.num_rows:
                for rows in split_by_topic(batch, self._options.topic):
                    self._take(rows)
        if self._producer is None:
            return WriteCounts()
        for partition in self._gathering:
            self._send(partition)
        self._producer.flush()
        return WriteCounts(self._producer.records, self._producer.bytes, len(self._producer.partitions))

    # -- where rows go --------------------------------------------------------------------------------

    def _take(self, rows: Rows) -> None:
        if self._producer is None:
            self._producer = self._open_producer()
        info = self._topic(rows.topic)
        chosen = self._choose(rows, info)
        records = rows.records
        if chosen.min() == chosen.max():
            self._gather(TopicPartition(rows.topic, int(chosen[0])), records)
            return
        order = np.argsort(chosen, kind="stable")
        ordered, records = chosen[order], records.take(pa.array(order))
        starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
        stops = np.append(starts[1:], len(ordered))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            where = TopicPartition(rows.topic, int(ordered[start]))
            self._gather(where, records.slice(start, stop - start))

    def _topic(self, name: str) -> TopicInfo:
        """A topic that exists, or that the broker creates on a Metadata request."""
        try:
            return self._cluster.topic(name, create=True, wait_ms=UNKNOWN_TOPIC_WAIT_MS)
        except BrokerRefused as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise BadRows(
                    f"there is no topic {name}, and the broker does not create it by itself"
                ) from error
            raise

    def _choose(self, rows: Rows, info: TopicInfo) -> np.ndarray:
        count = len(info.partitions)
        keys = rows.records.column("key")
        if keys.null_count == len(keys):
            chosen = np.full(len(keys), NO_CHOICE, np.int64)
        else:
            chosen = np.asarray(partitions_of(keys, count)).astype(np.int64)
        if rows.partitions is not None and rows.partitions.null_count < len(rows.partitions):
            given = rows.partitions.to_numpy(zero_copy_only=False)
            is_given = rows.partitions.is_valid().to_numpy(zero_copy_only=False)
            said = given[is_given].astype(np.int64)
            for wrong in (said.min(), said.max()):
                if not 0 <= wrong < count:
                    raise BadRows(
                        f"a row has {wrong} in column partition, expected 0 to {count - 1}: "
                        f"topic {rows.topic} has {count} partitions"
                    )
            chosen[is_given] = said
        without = chosen == NO_CHOICE
        if without.any():
            share = rows.records.nbytes * int(without.sum()) // len(chosen)
            sticky = self._sticky.get(rows.topic)
            if sticky is None:
                sticky = StickyPartitioner(self._rng, self._options.batch_bytes_max)
                self._sticky[rows.topic] = sticky
            chosen[without] = sticky.choose(lambda: available_partitions(info), share)
        return chosen

    # -- gathering ------------------------------------------------------------------------------------

    def _gather(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        gathering = self._gathering.get(partition)
        if gathering is None:
            gathering = self._gathering[partition] = _Gathering()
        before = gathering.bytes
        gathering.add(rows)
        self._gathered_bytes += gathering.bytes - before
        if gathering.bytes >= self._options.batch_bytes_max:
            self._send(partition)
        elif self._gathered_bytes > self._options.buffer_bytes_max:
            for each in self._gathering:
                self._send(each)

    def _send(self, partition: TopicPartition) -> None:
        gathering = self._gathering[partition]
        if gathering.pieces:
            assert self._producer is not None  # rows came
            self._gathered_bytes -= gathering.bytes
            self._producer.add(partition, gathering.take())
