"""Reading a topic's logs for keys that no key file covers.

    files cover    |  read, a portion at a time    |  noted as it is written
    [0 ........... | ............................. | .............. log end]
                   `sound_end                      `the log end when reading began

A partition that this broker leads is read once; after that every new key is noted as it is written. A partition that
comes back from another leader is read again. Portions are read beside the loop. Only batches that can hold a key are
decoded: the gateway writes no transactions and no sequences, and an uncompressed batch shows the header's name.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.gateway.idempotency.keyfile import HEADER, digest_of
from penstock.gateway.idempotency.topic_files import Manifest, Shared, TopicFiles, sound_end
from penstock.metadata import Topic
from penstock.records import RecordBatch, iter_batches
from penstock.replica import Partition
from penstock.storage import Log

if TYPE_CHECKING:
    from penstock.gateway.idempotency.topic_keys import RecentKeys

logger = logging.getLogger(__name__)

PORTION_BYTES = 4 << 20
"""What is read at once: some ten milliseconds on a thread."""

_NAME = HEADER.encode()


class FoundKeys(NamedTuple):
    keys: list[tuple[bytes, Offset, TimestampMs]]
    """Digests, each with its record's offset and timestamp, in the order of the log."""
    next_offset: Offset
    """Where to go on; the end that was asked for, where there is no more."""


def find_keys(log: Log, start: Offset, end: Offset) -> FoundKeys:
    """The keys of a portion of the log, from an offset on and below an end; also of records before the log's start, as
    long as their files are there."""
    start = max(start, log.first_kept)
    if start >= end:
        return FoundKeys([], end)
    data = log.read_kept(start, PORTION_BYTES, visible=end)
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
    """Whether the record at an offset came with this key; also where the log has no such record any more, by retention
    or compaction, and nobody can tell."""
    if offset < log.first_kept:
        return True
    data = log.read_kept(offset, 1, visible=log.log_end)
    for batch in iter_batches(data):
        for record in batch.records() if batch.base_offset <= offset <= batch.last_offset else ():
            if record.offset == offset:
                return any(
                    name == HEADER and value and digest_of(value) == digest for name, value in record.headers
                )
    return True


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
"""How long somebody waits for the log to be read."""


class Saver(Protocol):
    """Who sees to it that what was read is saved."""

    files: TopicFiles
    recent: "RecentKeys"

    def save(self, then: Callable[[], None] | None = None) -> None:
        """Save the recent keys; `then` is called when that is done, or has failed."""

    def failed(self) -> None:
        """Keys could not even be read."""


class LogReading:
    def __init__(self, shared: Shared, topic_id: Uuid, saver: Saver) -> None:
        self._shared = shared
        self._topic_id = topic_id
        self._saver = saver
        self.without: dict[int, tuple[LeaderEpoch, Offset]] = {}
        """Partitions that had no key when the first was about to be written: who led them, and up to where."""
        self._topic: Topic | None = None
        """As it was when everything had been read; with another image of it, partitions may be new here."""
        self._read: dict[int, tuple[Log, LeaderEpoch]] = {}
        """Partitions that were read to their end, and are led since: all keys that come are noted."""
        self._reached: dict[int, Offset] = {}
        """Partitions that are being read, and how far."""
        self._waiting: list[tuple[Promise[None], Timer]] = []
        """Who waits until everything is read, and until when."""
        self.is_opening = False
        """Logs of partitions that are led here are being read."""
        self._is_following = False
        """The log of a partition that is led elsewhere is being read."""

    @property
    def _name(self) -> str:
        return self._saver.files.manifest.topic

    # -- what is read ----------------------------------------------------------------------------------

    def is_ready(self, topic: Topic) -> bool:
        """Whether every key in the partitions that are led here is known."""
        if topic is self._topic:
            return True
        if self._saver.files.is_new or self._unread(topic):
            return False
        self._topic = topic
        return True

    def has_read(self, partition: Partition) -> bool:
        """Whether every key in a partition's log is known, for as long as it is led as it is now. It may be led before
        the image says so."""
        return self._read.get(partition.number) == (partition.log, partition.leader_epoch)

    def settled(self) -> dict[str, Offset]:
        """How far the keys of each log are known, of what is on disk and committed. What is not committed yet another
        leader may write anew."""
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

    def begin_anew(self) -> None:
        """Nothing that was read counts any more."""
        self._topic = None
        self._read.clear()

    def _unread(self, topic: Topic) -> list[Partition]:
        unread = []
        for number in topic.partitions:
            partition = self._shared.replicas.led(topic.name, number)
            if partition is None or self.has_read(partition):
                continue
            if partition.log.log_end == 0 and not self._saver.files.is_new:
                self._read[number] = partition.log, partition.leader_epoch
            else:
                unread.append(partition)
        return unread

    # -- partitions that are led here ------------------------------------------------------------------

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
        opened.fail(
            KafkaError(
                f"idempotency keys of {self._name} are loading from its log. Retry.",
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )
        )

    def _begin(self, topic: Topic) -> None:
        def prepared(error: Exception | None) -> None:
            if error is not None:
                self._opened(error)
            else:
                self._read_next(topic)

        files = self._saver.files
        if files.is_new:
            files.create(Manifest(topic.name, self._without_keys()), prepared)
        else:
            files.sweep(prepared)

    def _without_keys(self) -> dict[str, Offset]:
        """How far logs are known to have no keys, if they are still led as they were then."""
        led = self._shared.replicas.led
        return {
            str(number): offset
            for number, (epoch, offset) in self.without.items()
            if (partition := led(self._topic_id, number)) is not None and partition.leader_epoch == epoch
        }

    def _read_next(self, topic: Topic) -> None:
        """Read one more partition, a portion at a time."""
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

    # -- partitions that are led elsewhere -------------------------------------------------------------

    def read_follower(self, topic: Topic, number: int) -> None:
        """Read what is committed of a partition that is led elsewhere, and save its keys: it is about to be deleted
        here, and whoever leads next may be this node."""
        if self.is_opening or self._is_following:
            return
        self._is_following = True

        def created(error: Exception | None) -> None:
            if error is not None:
                self._followed_up(number, error)
            else:
                self._follow_up(number)

        files = self._saver.files
        if files.is_new:
            files.create(Manifest(topic.name), created)
        else:
            self._follow_up(number)

    def _follow_up(self, number: int) -> None:
        partition = self._shared.replicas.held(self._topic_id, number)
        if partition is None:
            self._is_following = False
            return
        start = self._start(partition)
        end = min(partition.log.flushed, partition.high_watermark)
        self._read_on(partition, start, max(start, end), partial(self._followed_up, number))

    def _followed_up(self, number: int, error: Exception | None) -> None:
        def saved() -> None:
            self._is_following = False
            if number not in self._read:
                self._reached.pop(number, None)

        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self._name, error)
            self._saver.failed()
            saved()
        else:
            self._saver.save(saved)

    # -- either ----------------------------------------------------------------------------------------

    def _start(self, partition: Partition) -> Offset:
        """Where a log has to be read from; what memory has of it from there on is read anew."""
        start = sound_end(self._saver.files.manifest, partition)
        self._saver.recent.forget_from(partition.number, start)
        return start

    def _read_on(
        self, partition: Partition, start: Offset, end: Offset, done: Callable[[Exception | None], None]
    ) -> None:
        """Read a log, a portion at a time; `done` when all is read, or cannot be."""
        number, log = partition.number, partition.log

        def found(result: FoundKeys | None, error: Exception | None) -> None:
            if self._shared.is_stopped:
                return
            if result is None:
                self._reached.pop(number, None)
                done(error)
                return
            recent = self._saver.recent
            recent.take(number, result)
            self._reached[number] = result.next_offset
            if result.next_offset >= end:
                done(None)
                return
            go_on = partial(self._read_on, partition, result.next_offset, end, done)
            if recent.are_many():
                self._saver.save(go_on)
            else:
                go_on()

        self._shared.world.beside(partial(find_keys, log, start, end), found)
