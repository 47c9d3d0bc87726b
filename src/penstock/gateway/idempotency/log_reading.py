"""Which logs of a topic have been read to their end for keys, and the reading of those that have not.

    files cover    |  read, a portion at a time    |  noted as it is written
    [0 ........... | ............................. | .............. log end]
                   `sound_end                      `where the log ended when the reading began

A partition that is led here has to be read once; from then on every key that comes is noted. One that comes back from
another leader, or with another log, is read again.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, Uuid
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.gateway.idempotency.manifest import Manifest, sound_end
from penstock.gateway.idempotency.recent import RecentKeys
from penstock.gateway.idempotency.replay import Found, find_keys
from penstock.gateway.idempotency.shared import Shared
from penstock.gateway.idempotency.topic_files import TopicFiles
from penstock.metadata import Topic
from penstock.replica import Partition
from penstock.storage import Log

logger = logging.getLogger(__name__)

WAIT_MS_MAX = 30_000
"""How long somebody waits for the log to be read."""


class Saver(Protocol):
    """Who sees to it that what was read is saved."""

    files: TopicFiles
    recent: RecentKeys

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
        self._waiting: list[tuple[Promise[KafkaError | None], Timer]] = []
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

    def open(self, topic: Topic) -> Promise[KafkaError | None]:
        """Have the keys read that no file has; answered when they are known."""
        later: Promise[KafkaError | None] = Promise()
        timer = self._shared.world.call_later(WAIT_MS_MAX, lambda: self._give_up(later))
        self._waiting.append((later, timer))
        if not self.is_opening:
            self.is_opening = True
            self._begin(topic)
        return later

    def _give_up(self, later: Promise[KafkaError | None]) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not later]
        later.resolve(
            KafkaError(
                f"idempotency keys of {self._name} are still being read from its log",
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
        answer: KafkaError | None = None
        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self._name, error)
            answer = KafkaError(
                f"idempotency keys of {self._name} cannot be read: {error}", ErrorCode.KAFKA_STORAGE_ERROR
            )
        for later, timer in waiting:
            timer.cancel()
            later.resolve(answer)

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

        def found(result: Found | None, error: Exception | None) -> None:
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
