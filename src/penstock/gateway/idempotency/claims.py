"""Records with a key on their way: who may write, who waits for the outcome, and what is told of one that is known."""

from typing import Protocol

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.promise import Promise
from penstock.gateway.idempotency.entries import KeyPlace
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

WAIT_MS_MAX = 30_000
"""How long somebody waits for what was found to be durable."""

Where = tuple[int, Offset]
"""A record's partition and offset."""


class ClaimKeeper(Protocol):
    def let_go(self, digest: bytes, place: KeyPlace | None) -> None:
        """A claim is settled; with a place, if its record is in the log."""


class Claim:
    """Somebody's right to write the record with a key: nobody else does until it is settled."""

    __slots__ = ("_digest", "_offset", "_partition", "_timestamp", "_topic_keys", "_waiting")

    def __init__(self, topic_keys: "ClaimKeeper", digest: bytes) -> None:
        self._topic_keys = topic_keys
        self._digest = digest
        self._partition: Partition | None = None
        self._offset: Offset = -1
        self._timestamp: TimestampMs = -1
        self._waiting: list[Promise[Where | KafkaError]] = []

    def join(self) -> Promise[Where | KafkaError]:
        """Wait for the same outcome."""
        later: Promise[Where | KafkaError] = Promise()
        self._waiting.append(later)
        return later

    def staged(self, partition: Partition, offset: Offset, timestamp: TimestampMs) -> None:
        self._partition, self._offset, self._timestamp = partition, offset, timestamp

    @property
    def where(self) -> Where | None:
        return None if self._partition is None else (self._partition.number, self._offset)

    def settled(self, error: KafkaError | None) -> None:
        """The record is durable, or it is not known to be. If it is in the log all the same, its key counts: who tries
        again is answered when it is durable after all."""
        partition = self._partition
        is_written = partition is not None and self._offset < partition.log.log_end
        number = -1 if partition is None else partition.number
        place = KeyPlace(number, self._offset, self._timestamp) if is_written else None
        self._topic_keys.let_go(self._digest, place)
        for later in self._waiting:
            later.resolve((number, self._offset) if error is None else error)


class Known(Promise["Where | KafkaError"]):
    """A `DelayedProduce` for a record that is in the log, and perhaps not on disk."""

    __slots__ = ("_number", "acks", "appended", "deadline_ms")

    def __init__(self, number: int, offset: Offset, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self._number = number
        self.appended = Appended(offset, offset)
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        self.resolve((self._number, self.appended.base_offset) if error is None else error)


def told(partition: Partition, offset: Offset, now_ms: TimestampMs) -> Promise[Where | KafkaError]:
    if offset < min(partition.log.flushed, partition.high_watermark):
        return answered(KeyPlace(partition.number, offset, now_ms))
    known = Known(partition.number, offset, now_ms + WAIT_MS_MAX)
    partition.wait_for_written(known)
    return known


def answered(place: KeyPlace) -> Promise[Where | KafkaError]:
    later: Promise[Where | KafkaError] = Promise()
    later.resolve((place.partition, place.offset))
    return later
