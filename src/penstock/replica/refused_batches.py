"""Remembers batches of idempotent producers that were refused for a passing reason, until they come again.

A producer has up to five batches in flight. If the first is refused, those behind it arrive before the producer knows:

    sequence 10   KAFKA_STORAGE_ERROR    the disk was full
    sequence 11   ?                      there is room again

A log that knows the producer would answer OUT_OF_ORDER_SEQUENCE_NUMBER to 11. librdkafka then bumps its epoch for all
partitions and writes again, with new sequences, what was written elsewhere and not yet acknowledged: duplicates. A
log that does not know the producer would append 11, and 10 could never follow. So 11 gets the error that 10 got,
before its sequence is looked at. It is retriable: clients send both again, in order, and bump nothing (decision 0017).

What always holds: a refused batch holds back only what is behind it, of the same producer, epoch and partition; only
until it is in the log, and for `HELD_BACK_MS_MAX` at most. A producer that gives the batch up has to begin a new
epoch, which nothing holds back.
"""

from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import ProducerId, Uuid
from penstock.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, PRODUCER, PRODUCER_ID_AT
from penstock.storage import Log
from penstock.storage.producers import SEQUENCE_MAX, NumberedBatch, Producers

REFUSED_MAX: Final = 10_000
"""Refusals that a node remembers. Beyond it the oldest is forgotten: what is behind that one is then judged by the log
alone, as in Kafka."""

HELD_BACK_MS_MAX: Final = 60_000
"""librdkafka's default of `socket.timeout.ms`, Java's `request.timeout.ms` being less: nobody waits longer for the
answer to what was in flight at the time of a refusal. From then on a gap is told as such, so that nobody retries for
ever."""

PASSING: Final = frozenset(
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
"""Errors after which clients send a batch again with the sequence that it had."""

PartitionKey: TypeAlias = tuple[Uuid | str, int]
"""A partition by its topic's id, so that a topic that is made anew under its name begins anew; by the topic's name
where the id is not known."""

_HALF = (SEQUENCE_MAX + 1) // 2


class BehindRefused(KafkaError):
    """A batch behind one that was refused; has the code of that refusal."""


class _Refused(NamedTuple):
    sequence: int
    """Of the first batch that was refused: it, or one before it, comes next."""
    code: ErrorCode
    why: str
    at_ms: int


def numbered(records: memoryview | None) -> NumberedBatch | None:
    """Who sent a batch, by its header; None if it has no producer id, or is no batch of format 2."""
    if records is None or len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return None
    producer_id, epoch, sequence = PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    return NumberedBatch(producer_id, epoch, sequence) if producer_id >= 0 else None


class RefusedBatches:
    """Of one node, for all its partitions, those included that it does not have yet. Times are of a clock that never
    goes back."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[PartitionKey, ProducerId, int], _Refused] = {}
        """By partition, producer id and epoch; the one that was last refused is the last."""

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
        """Remember a refusal, if it is a passing one. `producers` is what the partition's log knows, if it is here."""
        if error.code not in PASSING or isinstance(error, BehindRefused):
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
        """Refuse a batch that is behind a refused one, with the same error."""
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
                f"{log.partition}: sequence {batch.sequence} of producer {batch.producer_id} is behind "
                f"{refused.sequence}, which was refused and must be sent again first: {refused.why}",
                refused.code,
            )

    def forget_topic(self, topic: str, topic_id: Uuid) -> None:
        """A topic was deleted: what comes under its name from now on is for another one."""
        for key in [each for each in self._refused if each[0][0] in (topic, topic_id)]:
            del self._refused[key]

    def _forget_oldest(self, now_ms: int) -> None:
        key, refused = next(iter(self._refused.items()))
        if now_ms - refused.at_ms >= HELD_BACK_MS_MAX:
            del self._refused[key]


def _is_behind(sequence: int, first: int) -> bool:
    """Whether a sequence is after another one; after the largest comes 0."""
    return 0 < (sequence - first) % (SEQUENCE_MAX + 1) < _HALF


def _is_written(producers: Producers, batch: NumberedBatch, sequence: int) -> bool:
    """Whether a log has a sequence of the producer and epoch of a batch, or is in a later epoch."""
    known = producers.by_id.get(batch.producer_id)
    if known is None or known.epoch < batch.epoch:
        return False
    return known.epoch > batch.epoch or (
        bool(known.batches) and not _is_behind(sequence, known.last_sequence)
    )
