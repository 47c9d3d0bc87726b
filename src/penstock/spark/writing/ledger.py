"""What a query has committed: one record a batch, in a compacted topic, written under a fence.

A batch is written in several transactions, one a task, and no broker ends several at once. The ledger makes them one:
a batch counts as written from the moment when its record, which names all of its transactions, is in. From then on
they are only ever committed, by any run that finds them; before, only ever aborted. `docs/decisions/0010` says why.

    key                   value, JSON
    QUERY                 {"batch": 7, "run": ..., "transactions": [[id, producer id, epoch, rows], ...], ...}
    QUERY/done            {"batch": 7}      all of them are committed; not needed, but spares asking

The fence is a transactional id of the query, under which every record is written. `claim` takes the id over, which
fences earlier claims, and then reads: the result stays true until the next claim. So a batch is recorded once,
however many runs try, and however late.

Readers keep their place and the last record, by process: a Python worker that serves one batch after the other
reads only what is new.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.client.admin import NewTopic, Resource, ResourceType, create_topics, describe_configs
from penstock.client.cluster import Cluster
from penstock.client.coordinators import ask_leader
from penstock.client.decoding import decode
from penstock.client.errors import BrokerRefused, TimedOut, refused
from penstock.client.fetch_request import fetch_request
from penstock.client.identity import init_transactions
from penstock.client.offsets import EARLIEST, READ_COMMITTED, list_offsets
from penstock.client.producer import Producer, ProducerSettings
from penstock.client.transactional import GONE, OpenTransaction, end_transactions
from penstock.spark.errors import WriteFailed
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.sink_options import SinkOptions
from penstock.wire import FetchResult

ID_PREFIX: Final = "penstock-spark-"
FENCE_TIMEOUT_MS: Final = 10_000
"""Of the transaction that writes a record: it lasts milliseconds, and readers of the ledger wait for it."""
FETCH_BYTES_MAX: Final = 4 * 2**20
LSO_WAIT_MS: Final = 100
RECORD_BYTES_MAX: Final = 900_000
"""Below max.message.bytes by default: some twenty thousand transactions."""
VERSION: Final = 1
"""Of a record's form."""
_DONE = b"/done"
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small segments, soon compacted: the first read of the ledger reads the whole partition.
    "segment.bytes": str(4 * 2**20),
    "min.cleanable.dirty.ratio": "0.1",
}


class LedgerTransaction(NamedTuple):
    """A transaction of a batch, and how many rows it holds."""

    transaction: OpenTransaction
    rows: int


class LedgerEntry(NamedTuple):
    batch: int
    run: str
    """Which run of the query has recorded it."""
    transactions: tuple[LedgerTransaction, ...]
    epoch_bumps: bool
    """Whether its transactions use KIP-890 epoch bumps."""
    is_done: bool = False


class _ReadPosition(NamedTuple):
    topic_id: bytes | None
    offset: Offset
    entry: LedgerEntry | None
    is_whole: bool = False
    """Read to the end as it was; else a transaction was open before it."""


_positions: dict[tuple[str, str, str], _ReadPosition] = {}
"""By cluster, topic and query."""
POSITIONS_MAX: Final = 1_000


class Fenced(WriteFailed):
    """Another claim came after ours."""


class BatchLedger:
    def __init__(self, cluster: Cluster, options: SinkOptions, query: str, *, epoch_bumps: bool) -> None:
        self.query = query
        self.fence_id = f"{ID_PREFIX}{query}"
        self._cluster = cluster
        self._options = options
        self._epoch_bumps = epoch_bumps
        self._fence: OpenTransaction | None = None

    def transactional_id(self, task: str) -> str:
        """Of a task of the query. Always the same few, so that a successor takes over what was left."""
        return f"{self.fence_id}-{task}"

    # -- reading --------------------------------------------------------------------------------------

    def peek(self) -> LedgerEntry | None:
        """The last batch that was recorded; None as well if an open transaction would make the read wait."""
        position = self._read(waits=False)
        return None if position is None or not position.is_whole else position.entry

    def read(self) -> LedgerEntry | None:
        """The last batch that was recorded; without a claim, one may be recorded meanwhile."""
        position = self._read(waits=True)
        return None if position is None else position.entry

    def _read(self, *, waits: bool) -> _ReadPosition | None:
        partition = self._partition()
        if partition is None:
            return None
        topic_id = self._cluster.info.topics[partition.topic].topic_id
        key = (self._cluster.info.cluster_id or "", partition.topic, self.query)
        position = _positions.get(key)
        if position is None or position.topic_id != topic_id:
            position = _ReadPosition(topic_id, 0, None)
        position = self._catch_up(partition, position, waits)
        if len(_positions) >= POSITIONS_MAX:
            _positions.clear()
        _positions[key] = position
        return position

    def _catch_up(self, partition: TopicPartition, position: _ReadPosition, waits: bool) -> _ReadPosition:
        """To the end as it is now. Records past an open transaction of another query come when that has ended."""
        backoff = self._cluster.backoff()
        end: Offset | None = None
        while True:
            result = self._fetch(partition, position.offset, 0 if end is None else LSO_WAIT_MS)
            if result is None:  # the records read before were deleted, so all existing records are read again
                start = list_offsets(self._cluster, {partition: EARLIEST})[partition].offset
                position = _ReadPosition(position.topic_id, start, None)
            else:
                end = result.high_watermark if end is None else end
                decoded = decode(result.records, position.offset, result.aborted)
                entry = _replay(
                    position.entry, self.query, ((each.key, each.value) for each in decoded.records)
                )
                is_whole = decoded.next_offset >= end
                position = _ReadPosition(position.topic_id, decoded.next_offset, entry, is_whole)
                if is_whole or not (waits or decoded.batches):
                    return position
            if backoff.left_ms <= 0:
                raise TimedOut(
                    f"the ledger {partition} could not be read to its end, offset {end}: "
                    f"it goes no further than {position.offset}, where a transaction may be open"
                )

    def _fetch(self, partition: TopicPartition, position: Offset, wait_ms: int) -> FetchResult | None:
        request = fetch_request(
            self._cluster,
            {partition: position},
            wait_ms_max=wait_ms,
            bytes_max=FETCH_BYTES_MAX,
            isolation_level=READ_COMMITTED,
        )

        def only(reply: Any) -> FetchResult:
            for _, results in reply.topics:
                for result in results:
                    return result  # type: ignore[no-any-return]  # the reader's type
            raise refused(
                f"ledger {partition}", ErrorCode.UNKNOWN_SERVER_ERROR, "it was left out of the reply"
            )

        result = only(ask_leader(self._cluster, partition, request, lambda reply: only(reply).error_code))
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if result.error_code:
            raise refused(f"ledger {partition}", result.error_code)
        return result

    def _partition(self) -> TopicPartition | None:
        name = self._options.ledger_topic
        try:
            self._cluster.topic(name)
        except BrokerRefused as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        return TopicPartition(name, 0)

    # -- writing --------------------------------------------------------------------------------------

    def claim(self) -> LedgerEntry | None:
        """Fence earlier claims, then read: the result holds until the next claim."""
        identity = init_transactions(self._cluster, self.fence_id, FENCE_TIMEOUT_MS)
        self._fence = OpenTransaction(self.fence_id, identity.producer_id, identity.epoch)
        return self.read()

    def record(self, entry: LedgerEntry) -> None:
        """Make a batch count, all or nothing. Fenced where another has claimed since; then nothing was written.

        A claim serves for one record.
        """
        fence, self._fence = self._fence, None
        assert fence is not None, "claim the ledger before recording a batch"
        value = _value(self.fence_id, entry)
        if len(value) > RECORD_BYTES_MAX:
            raise WriteFailed(
                f"batch {entry.batch} has {len(entry.transactions)} transactions, more than a record of the ledger "
                "can name: write it with fewer tasks (coalesce)"
            )
        partition = self._made()
        producer = ColumnProducer(
            self._cluster, self._options, fence.identity, fence, epoch_bumps=self._epoch_bumps
        )
        try:
            producer.add(partition, _row(self.query.encode(), value))
            producer.flush()
        except KafkaError as error:
            if error.code in GONE or isinstance(error, WriteFailed):
                raise self._fenced() from error
            raise
        if end_transactions(self._cluster, [fence], commit=True, epoch_bumps=self._epoch_bumps):
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(
            f"the ledger of query {self.query} was claimed by another run, or by a late task of this one"
        )

    def mark_done(self, entry: LedgerEntry) -> None:
        """Note that a batch's transactions are committed. Needs no fence: it says so of that batch alone."""
        partition = self._made()
        producer = Producer(self._cluster, ProducerSettings(is_idempotent=False, create_topics=False))
        value = json.dumps({"batch": entry.batch, "run": entry.run}).encode()
        producer.send(partition.topic, self.query.encode() + _DONE, value, partition=partition.partition)
        producer.flush()

    def _made(self) -> TopicPartition:
        """The query's partition of the ledger, whose topic is created if it does not exist."""
        partition = self._partition()
        if partition is None:
            self._create()
            partition = self._partition()
        if partition is None:
            raise WriteFailed(f"topic {self._options.ledger_topic} was created, but does not exist")
        return partition

    def _create(self) -> None:
        name = self._options.ledger_topic
        [outcome] = create_topics(self._cluster, [NewTopic(name, 1, configs=TOPIC_CONFIGS)])
        if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise WriteFailed(
                f"the sink needs topic {name} to keep what a query has written, and could not create it: "
                f"{outcome.error}"
            ) from outcome.error

    def check_topic(self) -> None:
        """Once a run: a ledger that forgets is none. One that may not be described is trusted."""
        if self._partition() is None:
            self._create()
        name = self._options.ledger_topic
        try:
            configs = describe_configs(self._cluster, Resource(ResourceType.TOPIC, name), ["cleanup.policy"])
        except BrokerRefused:
            return
        for each in configs:
            if each.name == "cleanup.policy" and each.value != "compact":
                raise WriteFailed(
                    f"topic {name}, in which the sink keeps what a query has written, "
                    f"has cleanup.policy={each.value}, expected compact"
                )


# -- records ----------------------------------------------------------------------------------------------


def _value(fence_id: str, entry: LedgerEntry) -> bytes:
    data = {
        "version": VERSION,
        "batch": entry.batch,
        "run": entry.run,
        "epoch_bumps": entry.epoch_bumps,
        # Ids begin with the query's, which need not be said a thousand times.
        "transactions": [
            [each.transactional_id.removeprefix(fence_id), each.producer_id, each.epoch, rows]
            for each, rows in entry.transactions
        ],
    }
    return json.dumps(data, separators=(",", ":")).encode()


def _replay(
    entry: LedgerEntry | None, query: str, records: Iterable[tuple[bytes | None, bytes | None]]
) -> LedgerEntry | None:
    key, done_key = query.encode(), query.encode() + _DONE
    for found, value in records:
        if found == key:
            entry = None if value is None else _entry(f"{ID_PREFIX}{query}", value)
        elif found == done_key and value is not None and entry is not None:
            done = _loads(value)
            if (done.get("batch"), done.get("run")) == (entry.batch, entry.run):
                entry = entry._replace(is_done=True)
    return entry


def _entry(fence_id: str, value: bytes) -> LedgerEntry:
    data = _loads(value)
    if data.get("version") != VERSION:
        raise WriteFailed(f"the ledger has a record of version {data.get('version')}, expected {VERSION}")
    try:
        transactions = tuple(
            LedgerTransaction(OpenTransaction(f"{fence_id}{name}", int(producer_id), int(epoch)), int(rows))
            for name, producer_id, epoch, rows in data["transactions"]
        )
        return LedgerEntry(int(data["batch"]), str(data["run"]), transactions, bool(data["epoch_bumps"]))
    except (KeyError, TypeError, ValueError) as error:
        raise WriteFailed(f"the ledger has a record that cannot be read: {value[:200]!r}") from error


def _loads(value: bytes) -> dict[str, Any]:
    try:
        data = json.loads(value)
    except ValueError as error:
        raise WriteFailed(f"the ledger has a record that is no JSON: {value[:200]!r}") from error
    return data if isinstance(data, dict) else {}


def _row(key: bytes, value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())})
