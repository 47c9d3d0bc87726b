"""Remembers batches of idempotent producers that got a retriable error, until they are sent again.

A producer has up to five batches in flight. If the first is refused, those behind it arrive before the producer knows:

    sequence 10   KAFKA_STORAGE_ERROR    the disk was full
    sequence 11   ?                      the disk has room again

A log that knows the producer would answer OUT_OF_ORDER_SEQUENCE_NUMBER to 11. librdkafka then bumps its epoch for all
partitions and writes again, with new sequences, what was written elsewhere and not yet acknowledged: duplicates. A
log that does not know the producer would append 11, and 10 could never follow. So 11 gets the error that 10 got,
before its sequence is checked. The error is retriable: clients send both again, in order, and keep their epoch
(decision 0017).

Invariant: a refused batch holds back only later batches of the same producer, epoch and partition, only until it is in
the log, and for `HELD_BACK_MS_MAX` at most. A producer that gives the batch up must bump its epoch, and batches of the
new epoch are not held back.
"""

from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import ProducerId, Uuid
from penstock.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, PRODUCER, PRODUCER_ID_AT
from penstock.storage import Log
from penstock.storage.producers import SEQUENCE_MAX, NumberedBatch, Producers

REFUSED_MAX: Final = 10_000
"""Refusals that a node remembers. Beyond that the oldest is forgotten, and the log alone checks the sequences that
follow it, as in Kafka."""

HELD_BACK_MS_MAX: Final = 60_000
"""librdkafka's default of `socket.timeout.ms`; Java's `request.timeout.ms` is less. No batch that was in flight at the
time of a refusal arrives later. After that a gap is reported as OUT_OF_ORDER_SEQUENCE_NUMBER, so that no client
retries for ever."""

RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
"""Errors after which clients send a batch again with the same sequence."""

PartitionKey: TypeAlias = tuple[Uuid | str, int]
"""A partition by topic id, so that a new topic of the same name starts without refusals; by topic name if the id is
not known."""

_HALF = (SEQUENCE_MAX + 1) // 2


class BehindRefused(KafkaError):
    """A batch that follows a refused one; has the error code of that one."""


class _Refused(NamedTuple):
    sequence: int
    """Of the first batch that was refused: this one, or one before it, must be appended next."""
    code: ErrorCode
    why: str
    at_ms: int


def numbered(records: memoryview | None) -> NumberedBatch | None:
    """Producer id, epoch and sequence in a batch's header; None if it has no producer id, or is not of format 2."""
    if records is None or len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return None
    producer_id, epoch, sequence = PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    return NumberedBatch(producer_id, epoch, sequence) if producer_id >= 0 else None


class RefusedBatches:
    """The refusals of one node, for all partitions, including those that it does not have yet. Times are of a
    monotonic clock."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[PartitionKey, ProducerId, int], _Refused] = {}
        """By partition, producer id and epoch, ordered by the time of the refusal."""

    def __len__(self) -> int:
        return len(self._refused)

    def note(
        self,
        at: PartitionKey,
        batch: NumberedBatch,
        error: KafkaError,
        now_ms: int,
        producers: Producers | None = None,
    ) -> None:
        """Remember a refusal, if it is retriable. `producers` is the producer state of the partition's log, if it is
        here."""
        if error.code not in RETRIABLE or isinstance(error, BehindRefused):
            return
        key = at, batch.producer_id, batch.epoch
        before = self._refused.pop(key, None)
        sequence = batch.sequence
        if before is not None and _is_behind(sequence, before.sequence):
            is_written = producers is not None and _is_written(producers, batch, before.sequence)
            if not is_written and now_ms - before.at_ms < HELD_BACK_MS_MAX:
                sequence = before.sequence
        self._refused[key] = _Refused(sequence, error.code, str(error), now_ms)
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, log: Log, topic_id: Uuid, records: memoryview, now_ms: int) -> None:
        """Refuse a batch that follows a refused one, with the same error."""
        if not self._refused:
            return
        self._forget_oldest(now_ms)
        batch = numbered(records)
        if batch is None:
            return
        topic, number = log.partition
        for at in ((topic_id, number), (topic, number)):
            self._check(at, batch, log, now_ms)

    def _check(self, at: PartitionKey, batch: NumberedBatch, log: Log, now_ms: int) -> None:
        key = at, batch.producer_id, batch.epoch
        refused = self._refused.get(key)
        if refused is None:
            return
        if now_ms - refused.at_ms >= HELD_BACK_MS_MAX or _is_written(log.producers, batch, refused.sequence):
            del self._refused[key]
        elif _is_behind(batch.sequence, refused.sequence):
            raise BehindRefused(
                f"{log.partition}: sequence {batch.sequence} of producer {batch.producer_id} follows "
                f"{refused.sequence}, which was refused and must be sent again first: {refused.why}",
                refused.code,
            )

    def forget_topic(self, topic: str, topic_id: Uuid) -> None:
        """A topic was deleted: batches for its name are for a new topic from now on."""
        for key in [each for each in self._refused if each[0][0] in (topic, topic_id)]:
            del self._refused[key]

    def _forget_oldest(self, now_ms: int) -> None:
        key, refused = next(iter(self._refused.items()))
        if now_ms - refused.at_ms >= HELD_BACK_MS_MAX:
            del self._refused[key]


def _is_behind(sequence: int, first: int) -> bool:
    """Whether a sequence follows another one; 0 follows the largest."""
    return 0 < (sequence - first) % (SEQUENCE_MAX + 1) < _HALF


def _is_written(producers: Producers, batch: NumberedBatch, sequence: int) -> bool:
    """Whether the log has a sequence of this producer and epoch, or a batch of a later epoch."""
    known = producers.by_id.get(batch.producer_id)
    if known is None or known.epoch < batch.epoch:
        return False
    return known.epoch > batch.epoch or (
        bool(known.batches) and not _is_behind(sequence, known.last_sequence)
    )
