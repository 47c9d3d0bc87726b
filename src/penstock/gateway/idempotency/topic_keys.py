"""The keys of one topic: which are being written, which are known, and where their records are.

    claimed      being written; who comes with the same key waits for the outcome
    recent       in memory and in the log
    frozen       recent ones on their way into a file
    files        older ones; newest first

A key is asked for in that order. Before the first question the log is read from where the files end (`open`), which is
done again for a partition that has come here since. Every minute, when there are many, or when the log wants to
let records go, the recent ones are saved as one more file. What is saved covers only what is certainly on disk: so no
file ever knows more than the log did.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.later import Later
from penstock.base.world import Timer, World
from penstock.gateway.idempotency import saving
from penstock.gateway.idempotency.entries import PLACE, KeyPlace, unpack_place
from penstock.gateway.idempotency.keyfile import CorruptKeyFile, Filters, KeyFile
from penstock.gateway.idempotency.manifest import FileNote, Manifest
from penstock.gateway.idempotency.merging import NEVER_CUT
from penstock.gateway.idempotency.replay import Found, find_keys
from penstock.metadata import Topic
from penstock.replica import ALL_IN_SYNC, Partition, Replicas
from penstock.storage import Appended, Log
from penstock.vfs import Vfs

logger = logging.getLogger(__name__)

RECENT_MAX = 8192
"""Keys of a topic in memory: some 1.5 MB. Then they are saved, which takes a thread some twenty milliseconds."""

RECENT_LIMIT = 16 * RECENT_MAX
"""Keys that cannot be saved: no more are taken."""

IN_CHILD_MIN = 2 * RECENT_MAX
"""Merges of more entries than this run in a process of their own: on a thread they would slow the loop down."""

WAIT_MS_MAX = 30_000
"""How long somebody waits for the log to be read, or for what was found to be on disk."""

FAILURES_MAX = 3
"""After so many failed attempts to save keys the log may go its way: a full disk must be able to become empty."""

Where = tuple[int, Offset]
"""A record's partition and offset."""


class Shared(Protocol):
    """What all topics' keys have in common."""

    world: World
    vfs: Vfs
    replicas: Replicas
    filters: Filters
    is_stopped: bool

    def retention_ms(self) -> int: ...

    def noted(self, count: int) -> None:
        """There are so many more recent keys, or fewer."""


class Claim:
    """Somebody's right to write the record with a key: nobody else does until it is settled."""

    __slots__ = ("_digest", "_offset", "_partition", "_timestamp", "_topic_keys", "_waiting")

    def __init__(self, topic_keys: "TopicKeys", digest: bytes) -> None:
        self._topic_keys = topic_keys
        self._digest = digest
        self._partition: Partition | None = None
        self._offset: Offset = -1
        self._timestamp: TimestampMs = -1
        self._waiting: list[Later[Where | KafkaError]] = []

    def join(self) -> Later[Where | KafkaError]:
        """Wait for the same outcome."""
        later: Later[Where | KafkaError] = Later()
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
            later.answer((number, self._offset) if error is None else error)


class _Known(Later["Where | KafkaError"]):
    """A `Writer` for a record that is in the log, and perhaps not on disk."""

    __slots__ = ("_number", "acks", "appended", "deadline_ms")

    def __init__(self, number: int, offset: Offset, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self._number = number
        self.appended = Appended(offset, offset)
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        self.answer((self._number, self.appended.base_offset) if error is None else error)


class TopicKeys:
    def __init__(
        self, shared: Shared, topic_id: Uuid, directory: str, manifest: Manifest, *, is_new: bool = False
    ) -> None:
        self.topic_id = topic_id
        self.directory = directory
        self.manifest = manifest
        self.failures = 0
        """Attempts to save keys that failed, since the last that did not."""
        self._shared = shared
        self._is_new = is_new
        """Its manifest is not on disk yet."""
        self._is_swept = is_new
        """What a crash left behind is gone."""
        self._topic: Topic | None = None
        """As it was when everything had been read; with another image of it, partitions may be new here."""
        self._read: dict[int, tuple[Log, LeaderEpoch]] = {}
        """Partitions that were read to their end, and are led since: all keys that come are noted."""
        self._reached: dict[int, Offset] = {}
        """Partitions that are being read, and how far."""
        self._waiting: list[tuple[Later[KafkaError | None], Timer]] = []
        """Who waits until everything is read, and until when."""
        self.is_opening = False
        """The log is being read."""
        self._claims: dict[bytes, Claim] = {}
        self._recent: dict[bytes, bytes] = {}
        """Digest to packed place, as in files."""
        self._frozen: dict[bytes, bytes] = {}
        self._files = [self._open_file(each) for each in manifest.files]
        """As in the manifest, oldest first."""
        self._is_busy = False
        """Something is being written beside: one thing at a time."""
        self._wants_save = False
        """There will be more to save when that is done."""
        self._after_busy: list[Callable[[], None]] = []
        """Who is to be called then."""
        self._lost_files: set[str] = set()
        """Files that were found to be damaged: what is being written beside may not know it."""

    def __repr__(self) -> str:
        return f"<TopicKeys {self.manifest.topic} {len(self._recent)} recent, {len(self._files)} files>"

    def _open_file(self, note: FileNote) -> KeyFile:
        return KeyFile(f"{self.directory}/{note.name}", self._shared.filters)

    @property
    def recent_count(self) -> int:
        return len(self._recent)

    # -- asking ----------------------------------------------------------------------------------------

    def meet(self, digest: bytes, now_ms: TimestampMs) -> Claim | Later[Where | KafkaError]:
        """A record with this key is to be written: a claim if it is the first, else where the first is, once that is
        durable; or what became of it."""
        claim = self._claims.get(digest)
        if claim is not None:
            return claim.join()
        place = self._find(digest, now_ms)
        if place is not None:
            partition = self._shared.replicas.find(self.manifest.topic, place.partition)
            if place.offset < partition.log.log_end:
                return _told(partition, place.offset, now_ms)
            logger.warning(
                "%s: an idempotency key says offset %d, the log ends at %d; it does not count",
                partition.name,
                place.offset,
                partition.log.log_end,
            )
        if len(self._recent) + len(self._frozen) >= RECENT_LIMIT:
            raise KafkaError(
                f"idempotency keys of {self.manifest.topic} cannot be saved, and there is no room for more",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        claim = self._claims[digest] = Claim(self, digest)
        return claim

    def _find(self, digest: bytes, now_ms: TimestampMs) -> KeyPlace | None:
        expired_ms = now_ms - self._shared.retention_ms()
        packed = self._recent.get(digest) or self._frozen.get(digest)
        place = unpack_place(packed) if packed else self._find_in_files(digest, expired_ms)
        return place if place is not None and place.timestamp >= expired_ms else None

    def _find_in_files(self, digest: bytes, expired_ms: TimestampMs) -> KeyPlace | None:
        """Reads a page at most where the key is, and rarely one where it is not; mostly from the system's cache."""
        for note, file in zip(reversed(self.manifest.files), reversed(self._files), strict=True):
            if note.newest_ms < expired_ms:
                continue
            try:
                place = file.find(digest)
            except (CorruptKeyFile, OSError) as error:
                if isinstance(error, CorruptKeyFile | FileNotFoundError):
                    self._lost(note, error)
                raise KafkaError(
                    f"idempotency keys of {self.manifest.topic} cannot be read: {error}",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                ) from error
            if place is not None and place.offset < note.cuts.get(str(place.partition), NEVER_CUT):
                return place
        return None

    def let_go(self, digest: bytes, place: KeyPlace | None) -> None:
        """A claim is settled; with a place, if its record is in the log."""
        del self._claims[digest]
        if place is not None:
            self._recent[digest] = PLACE.pack(*place)
            self._shared.noted(1)
            if len(self._recent) >= RECENT_MAX * (1 + self.failures):
                self.save()

    # -- reading the log -------------------------------------------------------------------------------

    def is_ready(self, topic: Topic) -> bool:
        """Whether every key in the partitions that are led here is known."""
        if topic is self._topic:
            return True
        if self._is_new or self._unread(topic):
            return False
        self._topic = topic
        return True

    def _unread(self, topic: Topic) -> list[Partition]:
        unread = []
        for number in topic.partitions:
            partition = self._shared.replicas.led(topic.name, number)
            if partition is None or self._read.get(number) == (partition.log, partition.leader_epoch):
                continue
            if partition.log.log_end == 0 and not self._is_new:
                self._read[number] = partition.log, partition.leader_epoch
            else:
                unread.append(partition)
        return unread

    def open(self, topic: Topic) -> Later[KafkaError | None]:
        """Have the keys read that no file has; answered when they are known."""
        later: Later[KafkaError | None] = Later()
        timer = self._shared.world.call_later(WAIT_MS_MAX, lambda: self._give_up(later))
        self._waiting.append((later, timer))
        if not self.is_opening:
            self.is_opening = True
            self._begin(topic)
        return later

    def _give_up(self, later: Later[KafkaError | None]) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not later]
        later.answer(
            KafkaError(
                f"idempotency keys of {self.manifest.topic} are still being read from its log",
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )
        )

    def _begin(self, topic: Topic) -> None:
        shared = self._shared
        if self._is_new:
            covered = {str(each.number): each.log.flushed for each in self._unread(topic)}
            manifest = Manifest(topic.name, covered)
            work = partial(saving.create, shared.vfs, self.directory, manifest)
            shared.world.beside(work, partial(self._created, topic))
            return
        if self._is_swept:
            self._read_next(topic)
            return
        self._is_swept = True
        # Before anything is written here: what is on its way is in no manifest yet.
        shared.world.beside(
            partial(saving.remove_strays, shared.vfs, self.directory, self.manifest),
            lambda _, error: self._opened(error) if error is not None else self._read_next(topic),
        )

    def _created(self, topic: Topic, manifest: Manifest | None, error: Exception | None) -> None:
        if manifest is None:
            self._opened(error)
            return
        self.manifest, self._is_new = manifest, False
        self._read_next(topic)

    def _read_next(self, topic: Topic) -> None:
        """Read one more partition, a portion at a time."""
        if self._shared.is_stopped:
            return
        unread = self._unread(topic)
        if not unread:
            self._opened(None)
            return
        partition = unread[0]
        start = self.manifest.covered.get(str(partition.number), 0)
        self._read_on(topic, partition, partition.leader_epoch, start, partition.log.log_end)

    def _read_on(
        self, topic: Topic, partition: Partition, epoch: LeaderEpoch, start: Offset, end: Offset
    ) -> None:
        number, log = partition.number, partition.log

        def found(result: Found | None, error: Exception | None) -> None:
            if self._shared.is_stopped:
                return
            if result is None:
                self._reached.pop(number, None)
                self._opened(error)
                return
            self._take(number, result)
            if result.next_offset < end:
                self._reached[number] = result.next_offset
                go_on = partial(self._read_on, topic, partition, epoch, result.next_offset, end)
                if len(self._recent) >= RECENT_MAX:
                    self.save(go_on)
                else:
                    go_on()
                return
            self._reached.pop(number, None)
            self._read[number] = log, epoch
            self._read_next(topic)

        self._shared.world.beside(partial(find_keys, log, start, end), found)

    def _take(self, number: int, found: Found) -> None:
        """Note keys that the log has: of two records with one key the first counts, while it does."""
        retention_ms = self._shared.retention_ms()
        expired_ms = self._shared.world.now_ms() - retention_ms
        recent = self._recent
        before = len(recent)
        for digest, offset, timestamp in found.keys:
            if timestamp < expired_ms:
                continue
            known = recent.get(digest)
            if known is None or timestamp - unpack_place(known).timestamp > retention_ms:
                recent[digest] = PLACE.pack(number, offset, timestamp)
        self._shared.noted(len(recent) - before)

    def _opened(self, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        self.is_opening = False
        answer: KafkaError | None = None
        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self.manifest.topic, error)
            answer = KafkaError(
                f"idempotency keys of {self.manifest.topic} cannot be read: {error}",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        for later, timer in waiting:
            timer.cancel()
            later.answer(answer)

    # -- saving ----------------------------------------------------------------------------------------

    def covered(self, number: int) -> Offset:
        """Below this offset of a partition no key would be lost with the log."""
        return self.manifest.covered.get(str(number), 0)

    def _coverable(self) -> dict[str, Offset]:
        """How far the files will cover each log, once the recent keys are among them: what is on disk, has been read,
        and is not still being settled."""
        covered = dict(self.manifest.covered)
        for number, (log, _) in self._read.items():
            covered[str(number)] = log.flushed
        for number, offset in self._reached.items():
            partition = self._shared.replicas.led(self.manifest.topic, number)
            if partition is not None:
                covered[str(number)] = min(offset, partition.log.flushed)
        for claim in self._claims.values():
            if claim.where is not None:
                number, offset = claim.where
                covered[str(number)] = min(offset, covered.get(str(number), offset))
        return covered

    def save(self, then: Callable[[], None] | None = None) -> None:
        """Save the recent keys, if there is anything that is not saved yet; `then` is called when that is done, or has
        failed."""
        if self._is_busy:
            self._wants_save = True
            if then is not None:
                self._after_busy.append(then)
            return
        if self._shared.is_stopped:
            return
        covered = self._coverable()
        if self._is_new or (not self._recent and covered == self.manifest.covered):
            if then is not None:
                then()
            return
        shared = self._shared
        self._is_busy = True
        self._frozen, self._recent = self._recent, {}
        work = partial(saving.save, shared.vfs, self.directory, self.manifest, self._frozen, covered)
        shared.world.beside(work, partial(self._saved, then))

    def _saved(
        self, then: Callable[[], None] | None, manifest: Manifest | None, error: Exception | None
    ) -> None:
        frozen, self._frozen = self._frozen, {}
        if manifest is None:
            self.failures += 1
            self._recent = frozen | self._recent
            logger.error("idempotency keys of %s cannot be saved: %s", self.manifest.topic, error)
        else:
            self.failures = 0
            self._shared.noted(-len(frozen))
            self._follow(manifest)
        if then is not None:
            then()
        if manifest is None or not self._tidy():
            self._ended()

    def failed(self) -> None:
        """Its keys could not even be read."""
        self.failures += 1

    def _tidy(self) -> bool:
        """Begin to merge files, if it is worth it."""
        shared = self._shared
        expired_ms = shared.world.now_ms() - shared.retention_ms()
        plan = saving.plan_tidying(self.manifest.files, expired_ms)
        if plan is None or shared.is_stopped:
            return False
        run = shared.world.in_child if plan.entries > IN_CHILD_MIN else shared.world.beside
        run(partial(saving.merge, shared.vfs, self.directory, self.manifest, plan), self._tidied)
        return True

    def _tidied(self, manifest: Manifest | None, error: Exception | None) -> None:
        if manifest is not None:
            kept = {each.name for each in manifest.files}
            left = [each.name for each in self.manifest.files if each.name not in kept]
            self._follow(manifest)
            shared = self._shared
            shared.world.beside(
                partial(saving.remove_files, shared.vfs, self.directory, left), self._files_removed
            )
        elif isinstance(error, CorruptKeyFile):
            name = error.path.rpartition("/")[2]
            for note in self.manifest.files:
                if note.name == name:
                    self._lost(note, error)
        else:
            logger.error("key files of %s cannot be merged: %s", self.manifest.topic, error)
        self._ended()

    def _files_removed(self, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("merged key files of %s cannot be removed: %s", self.manifest.topic, error)

    def _ended(self) -> None:
        """Go on with what had to wait for the disk."""
        self._is_busy = False
        waiting, self._after_busy = self._after_busy, []
        if self._wants_save:
            self._wants_save = False
            self.save(partial(_call_all, waiting))

    def _follow(self, manifest: Manifest) -> None:
        """Take over what counts from now on."""
        if any(each.name in self._lost_files for each in manifest.files):
            files = tuple(each for each in manifest.files if each.name not in self._lost_files)
            manifest = Manifest(manifest.topic, {}, files, manifest.next_file)
        known = {note.name: file for note, file in zip(self.manifest.files, self._files, strict=True)}
        self._files = [known.get(each.name) or self._open_file(each) for each in manifest.files]
        for file in known.values():
            if file not in self._files:
                file.forget()
        self.manifest = manifest

    def _lost(self, note: FileNote, error: Exception) -> None:
        """A file cannot be used: do without it, and read everything that the log still has."""
        logger.error("%s; the keys of %s are taken from its log instead", error, self.manifest.topic)
        self._lost_files.add(note.name)
        self._follow(self.manifest)
        self._topic = None
        self._read.clear()


def _told(partition: Partition, offset: Offset, now_ms: TimestampMs) -> Later[Where | KafkaError]:
    if offset < partition.log.flushed:
        later: Later[Where | KafkaError] = Later()
        later.answer((partition.number, offset))
        return later
    known = _Known(partition.number, offset, now_ms + WAIT_MS_MAX)
    partition.wait_for_written(known)
    return known


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
