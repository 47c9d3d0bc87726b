"""Batches of idempotent producers that were refused for a passing reason, as their connection remembers them.

A producer sends its next batch before it hears what became of the last one. A log that knows a producer refuses what
does not come next; of one that it knows nothing of it takes any batch, since all that the producer ever wrote there
may be gone. So where the very first batch is refused, because the node does not lead yet or has too few replicas in
sync, and the second one comes a moment too late for that, the log would begin with the second, and the first could
never come again:

    0 NOT_ENOUGH_REPLICAS    1 taken    0 OUT_OF_ORDER_SEQUENCE_NUMBER

Then the producer gives up; or begins anew, and what was taken and not yet acknowledged is written twice.

Here the second is out of order, as in a log that knows its producer, and the client sends both again, in order. A
batch that is sent again goes before those behind it, on whatever connection: so each connection need know of its own.
"""

from collections.abc import Hashable
from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import HEADER_BYTES
from penstock.replica import Partition
from penstock.storage.producers import OutOfOrderSequence
from penstock.wire import TopicKey

MISSED_MAX: Final = 1000
"""Of one connection. Beyond it the oldest are forgotten: then any batch may begin, as with Kafka."""

_PASSING: Final = frozenset(
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
"""What clients send a batch again after, with the sequence that it had."""

_MAGIC_AT, _MAGIC = 16, 2
_PRODUCER = Struct(">qhi")
"""Id, epoch and sequence."""
_PRODUCER_AT = 43


class _Sent(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int


def _sent(records: memoryview | None) -> _Sent | None:
    """Who sent a batch, by its header; None of one that nobody numbered, or that is no batch."""
    if records is None or len(records) < HEADER_BYTES or records[_MAGIC_AT] != _MAGIC:
        return None
    sent = _Sent(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
    return sent if sent.producer_id >= 0 else None


class Missed:
    """Of one connection."""

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        self._sequences: dict[Hashable, int] = {}
        """By partition, producer and epoch: the first that was refused. It comes next, or one before it."""

    def refused(self, topic: TopicKey, number: int, records: memoryview | None, error: KafkaError) -> None:
        sent = _sent(records) if error.code in _PASSING else None
        if sent is None:
            return
        key = topic, number, sent.producer_id, sent.epoch
        self._sequences[key] = min(sent.sequence, self._sequences.get(key, sent.sequence))
        if len(self._sequences) > MISSED_MAX:
            del self._sequences[next(iter(self._sequences))]

    def check(self, topic: TopicKey, partition: Partition, records: memoryview) -> None:
        """Refuse what lies behind a refused batch, where the log knows too little to do so."""
        sent = _sent(records) if self._sequences else None
        if sent is None:
            return
        key = topic, partition.number, sent.producer_id, sent.epoch
        first = self._sequences.get(key)
        if first is None:
            return
        if sent.sequence > first and sent.producer_id not in partition.log.producers.by_id:
            raise OutOfOrderSequence(
                f"producer {sent.producer_id} sent sequence {sent.sequence}, expected {first}, which was refused"
            )
        del self._sequences[key]  # from now on the log knows
