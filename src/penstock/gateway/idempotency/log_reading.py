"""Reading a topic's logs for keys that no key file covers.

    files cover    |  read, a portion at a time    |  noted as it is written
    [0 ........... | ............................. | .............. log end]
                   `sound_end                      `the log end when reading began

A partition that this broker leads is read once; after that every new key is noted as it is written. A partition that
this broker leads again after another leader is read again. Portions are read beside the loop. Only batches that can
hold a key are decoded: the gateway writes no transactions and no sequences, and an uncompressed batch shows the
header's name.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.gateway.idempotency.keyfile import HEADER, digest_of
from penstock.gateway.idempotency.topic_files import Manifest, sound_end
from penstock.metadata.image import Topic
from penstock.records import RecordBatch, iter_batches
from penstock.replica import Partition
from penstock.storage import Log

if TYPE_CHECKING:
    from penstock.gateway.idempotency.keys import IdempotencyKeys
    from penstock.gateway.idempotency.topic_keys import TopicKeys

logger = logging.getLogger(__name__)

PORTION_BYTES = 4 << 20
"""Bytes that are read in one step: about ten milliseconds on a thread."""

_NAME = HEADER.encode()


class FoundKeys(NamedTuple):
    keys: list[tuple[bytes, Offset, TimestampMs]]
    """Digests, each with its record's offset and timestamp, in the order of the log."""
    next_offset: Offset
    """Where to continue; the requested end if there is nothing more."""


def find_keys(log: Log, start: Offset, end: Offset) -> FoundKeys:
    """The keys of a portion of the log, from `start` and below `end`. Includes records below the log start offset
    whose segments still exist."""
    start = max(start, log.first_kept)
    if start >= end:
        return FoundKeys([], end)
    data = log.reader.read_kept(start, PORTION_BYTES, visible=end)
    keys: list[tuple[bytes, Offset, TimestampMs]] = []
    position, next_offset = 0, end
    for batch in iter_batches(data):
        behind = position + batch.size
        is_plain = not batch.is_compressed
        if _may_be_ours(batch) and not (is_plain and data.find(_NAME, position, behind) < 0):
            _collect(log, batch, start, keys)
        position, next_offset = behind, batch.next_offset
    if data and not position:
        logger.error("cannot read %s for idempotency keys from offset %d on", log.partition, start)
    return FoundKeys(keys, min(next_offset, end))


def has_key(log: Log, offset: Offset, digest: bytes) -> bool:
    """Whether the record at an offset has this key. True if retention or compaction has removed the record."""
    if offset < log.first_kept:
        return True
    data = log.reader.read_kept(offset, 1, visible=log.log_end)
    for batch in iter_batches(data):
        for record in batch.records() if batch.base_offset <= offset <= batch.last_offset else ():
            if record.offset == offset:
                return any(
                    name == HEADER and value and digest_of(value) == digest for name, value in record.headers
                )
    return True


def still_loading(name: str) -> KafkaError:
    """The error while the keys of a topic or partition are read."""
    return KafkaError(
        f"idempotency keys of {name} are loading from its log. Retry.", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )


def _may_be_ours(batch: RecordBatch) -> bool:
    return batch.producer_id < 0 and not batch.is_control and not batch.is_transactional


def _collect(
    log: Log, batch: RecordBatch, start: Offset, keys: list[tuple[bytes, Offset, TimestampMs]]
) -> None:
    try:
        for record in batch.records():
            if record.offset < start:
                continue
            for name, value in record.headers:
                if name == HEADER and value:
                    keys.append((digest_of(value), record.offset, record.timestamp))
                    break
    except KafkaError as error:
        logger.error("%s: idempotency keys of a batch cannot be read: %s", log.partition, error)


WAIT_MS_MAX = 30_000
"""How long `open` waits for the log to be read."""


class LogReading:
    def __init__(self, shared: "IdempotencyKeys", topic_id: Uuid, topic_keys: "TopicKeys") -> None:
        self._shared = shared
        self._topic_id = topic_id
        self._topic_keys = topic_keys
        self.without: dict[int, tuple[LeaderEpoch, Offset]] = {}
        """Partitions without a key before the topic's first key: their leader epoch, and the offset up to which."""
        self._topic: Topic | None = None
        """The topic when everything was read. In a later image it may have partitions that are new to this broker."""
        self._read: dict[int, tuple[Log, LeaderEpoch]] = {}
        """Partitions that were read to their end under this leader epoch: new keys are noted as they are written."""
        self._reached: dict[int, Offset] = {}
        """Partitions that are being read, and the offset reached."""
        self._waiting: list[tuple[Promise[None], Timer]] = []
        """Promises of `open`, and their timeouts."""
        self.is_opening = False
        """Whether logs of partitions that this broker leads are being read."""
        self._is_following = False
        """Whether the log of a partition that this broker follows is being read."""

    @property
    def _name(self) -> str:
        return self._topic_keys.files.manifest.topic

    # -- progress --------------------------------------------------------------------------------------

    def is_ready(self, topic: Topic) -> bool:
        """Whether every key in the partitions that this broker leads is known."""
        if topic is self._topic:
            return True
        if self._topic_keys.files.is_new or self._unread(topic):
            return False
        self._topic = topic
        return True

    def has_read(self, partition: Partition) -> bool:
        """Whether every key in a partition's log is known, under its current leader epoch. That may be newer than the
        image's."""
        return self._read.get(partition.number) == (partition.log, partition.leader_epoch)

    def settled(self) -> dict[str, Offset]:
        """By partition: the offset below which all keys are known, and all records are on disk and committed. Another
        leader may replace uncommitted records."""
        replicas = self._shared.replicas
        ends: dict[str, Offset] = {}
        for number, (log, epoch) in self._read.items():
            partition = replicas.led(self._topic_id, number)
            if partition is not None and (partition.log, partition.leader_epoch) == (log, epoch):
                ends[str(number)] = min(log.flushed, partition.high_watermark)
        for number, offset in self._reached.items():
            partition = replicas.held(self._topic_id, number)
            if partition is not None:
                ends[str(number)] = min(offset, partition.log.flushed, partition.high_watermark)
        return ends

    def restart(self) -> None:
        """Forget what was read."""
        self._topic = None
        self._read.clear()

    def _unread(self, topic: Topic) -> list[Partition]:
        unread = []
        for number in topic.partitions:
            partition = self._shared.replicas.led(topic.name, number)
            if partition is None or self.has_read(partition):
                continue
            if partition.log.log_end == 0 and not self._topic_keys.files.is_new:
                self._read[number] = partition.log, partition.leader_epoch
            else:
                unread.append(partition)
        return unread

    # -- partitions that this broker leads -------------------------------------------------------------

    def open(self, topic: Topic) -> Promise[None]:
        """Read the keys that no file covers. Resolved when they are known; fails if that takes too long."""
        opened: Promise[None] = Promise()
        timer = self._shared.world.call_later(WAIT_MS_MAX, lambda: self._give_up(opened))
        self._waiting.append((opened, timer))
        if not self.is_opening:
            self.is_opening = True
            self._begin(topic)
        return opened

    def _give_up(self, opened: Promise[None]) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not opened]
        opened.fail(still_loading(self._name))

    def _begin(self, topic: Topic) -> None:
        def prepared(error: Exception | None) -> None:
            if error is not None:
                self._opened(error)
            else:
                self._read_next(topic)

        files = self._topic_keys.files
        if files.is_new:
            files.create(Manifest(topic.name, self._without_keys()), prepared)
        else:
            files.sweep(prepared)

    def _without_keys(self) -> dict[str, Offset]:
        """By partition: the offset up to which the log has no keys, if the leader epoch is still the same."""
        led = self._shared.replicas.led
        return {
            str(number): offset
            for number, (epoch, offset) in self.without.items()
            if (partition := led(self._topic_id, number)) is not None and partition.leader_epoch == epoch
        }

    def _read_next(self, topic: Topic) -> None:
        """Read the next partition, a portion at a time."""
        if self._shared.is_stopped:
            return
        unread = self._unread(topic)
        if not unread:
            self._opened(None)
            return
        partition = unread[0]
        start = self._start(partition)
        number, log, epoch = partition.number, partition.log, partition.leader_epoch

        def done(error: Exception | None) -> None:
            self._reached.pop(number, None)
            if error is not None:
                self._opened(error)
                return
            self._read[number] = log, epoch
            self._read_next(topic)

        self._read_on(partition, start, log.log_end, done)

    def _opened(self, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        self.is_opening = False
        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self._name, error)
        for opened, timer in waiting:
            timer.cancel()
            if error is None:
                opened.resolve(None)
            else:
                opened.fail(
                    KafkaError(
                        f"idempotency keys of {self._name} cannot be read: {error}",
                        ErrorCode.KAFKA_STORAGE_ERROR,
                    )
                )

    # -- partitions that this broker follows -----------------------------------------------------------

    def read_follower(self, topic: Topic, number: int) -> None:
        """Read the committed records of a followed partition and save their keys, before the log deletes them: this
        broker may lead the partition next."""
        if self.is_opening or self._is_following:
            return
        self._is_following = True

        def created(error: Exception | None) -> None:
            if error is not None:
                self._followed_read(number, error)
            else:
                self._read_followed(number)

        files = self._topic_keys.files
        if files.is_new:
            files.create(Manifest(topic.name), created)
        else:
            self._read_followed(number)

    def _read_followed(self, number: int) -> None:
        partition = self._shared.replicas.held(self._topic_id, number)
        if partition is None:
            self._is_following = False
            return
        start = self._start(partition)
        end = min(partition.log.flushed, partition.high_watermark)
        self._read_on(partition, start, max(start, end), partial(self._followed_read, number))

    def _followed_read(self, number: int, error: Exception | None) -> None:
        def saved() -> None:
            self._is_following = False
            if number not in self._read:
                self._reached.pop(number, None)

        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self._name, error)
            self._topic_keys.failed()
            saved()
        else:
            self._topic_keys.save(saved)

    # -- both ------------------------------------------------------------------------------------------

    def _start(self, partition: Partition) -> Offset:
        """The offset to read a log from. Recent keys from there on are dropped, and read again."""
        start = sound_end(self._topic_keys.files.manifest, partition)
        self._topic_keys.recent.forget_from(partition.number, start)
        return start

    def _read_on(
        self, partition: Partition, start: Offset, end: Offset, done: Callable[[Exception | None], None]
    ) -> None:
        """Read a log, a portion at a time; `done` is called at the end, or with an error."""
        number, log = partition.number, partition.log

        def found(result: FoundKeys | None, error: Exception | None) -> None:
            if self._shared.is_stopped:
                return
            if result is None:
                self._reached.pop(number, None)
                done(error)
                return
            recent = self._topic_keys.recent
            recent.take(number, result)
            self._reached[number] = result.next_offset
            if result.next_offset >= end:
                done(None)
                return
            go_on = partial(self._read_on, partition, result.next_offset, end, done)
            if recent.are_many():
                self._topic_keys.save(go_on)
            else:
                go_on()

        self._shared.world.beside(partial(find_keys, log, start, end), found)
