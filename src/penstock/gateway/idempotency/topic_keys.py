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
from penstock.gateway.idempotency.claims import Claim, Where, answered, told
from penstock.gateway.idempotency.entries import PLACE, KeyPlace, unpack_place
from penstock.gateway.idempotency.keyfile import CorruptKeyFile, Filters, KeyFile
from penstock.gateway.idempotency.manifest import FileNote, Manifest, sound_end
from penstock.gateway.idempotency.merging import NEVER_CUT
from penstock.gateway.idempotency.replay import Found, find_keys, has_key
from penstock.metadata import Topic
from penstock.replica import Partition, Replicas
from penstock.storage import Log
from penstock.vfs import Vfs

logger = logging.getLogger(__name__)

RECENT_MAX = 8192
"""Keys of a topic in memory: some 1.5 MB. Then they are saved, which takes a thread some twenty milliseconds."""

RECENT_LIMIT = 16 * RECENT_MAX
"""Keys that cannot be saved: no more are taken."""

IN_CHILD_MIN = 2 * RECENT_MAX
"""Merges of more entries than this run in a process of their own: on a thread they would slow the loop down."""

WAIT_MS_MAX = 30_000
"""How long somebody waits for the log to be read."""

FAILURES_MAX = 3
"""After so many failed attempts to save keys the log may go its way: a full disk must be able to become empty."""


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
        self.without: dict[int, tuple[LeaderEpoch, Offset]] = {}
        """Partitions that had no key when the first was about to be written: who led them, and up to where."""
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
        self._is_following = False
        """The log of a partition that is led elsewhere is being read."""
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

    def find(self, digest: bytes, now_ms: TimestampMs) -> Later[Where | KafkaError] | None:
        """Where the record with a key is, once it is durable, or what became of it; None for a key that is new."""
        claim = self._claims.get(digest)
        if claim is not None:
            return claim.join()
        place = self._find(digest, now_ms)
        if place is None:
            return None
        partition = self._shared.replicas.led(self.topic_id, place.partition)
        if partition is None:
            # Led elsewhere: what was saved was committed, and is where it was. Of the rest its leader knows.
            return answered(place) if place.offset < self.covered(place.partition) else None
        if place.offset >= partition.log.log_end:
            logger.warning(
                "%s: an idempotency key says offset %d, the log ends at %d; it does not count",
                partition.name,
                place.offset,
                partition.log.log_end,
            )
            return None
        if partition.followers is not None and not has_key(partition.log, place.offset, digest):
            return None  # another leader wrote something else there
        return told(partition, place.offset, now_ms)

    def knows(self, digest: bytes) -> bool:
        """Whether somebody has come with this key, as far as memory says."""
        return digest in self._claims or digest in self._recent or digest in self._frozen

    def has_read(self, partition: Partition) -> bool:
        """Whether every key in a partition's log is known, for as long as it is led as it is now. It may be led before
        the image says so."""
        return self._read.get(partition.number) == (partition.log, partition.leader_epoch)

    def claim(self, digest: bytes) -> Claim:
        """The right to write the record with a key that is new."""
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
            manifest = Manifest(topic.name, self._without_keys())
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

    def _without_keys(self) -> dict[str, Offset]:
        """How far logs are known to have no keys, if they are still led as they were then."""
        led = self._shared.replicas.led
        return {
            str(number): offset
            for number, (epoch, offset) in self.without.items()
            if (partition := led(self.topic_id, number)) is not None and partition.leader_epoch == epoch
        }

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
        start = sound_end(self.manifest, partition)
        self._forget_from(partition.number, start)
        number, log, epoch = partition.number, partition.log, partition.leader_epoch

        def done(error: Exception | None) -> None:
            self._reached.pop(number, None)
            if error is not None:
                self._opened(error)
                return
            self._read[number] = log, epoch
            self._read_next(topic)

        self._read_on(partition, start, log.log_end, done)

    def _forget_from(self, number: int, offset: Offset) -> None:
        """Forget what memory has of a partition from an offset on: the log says it anew."""
        before = len(self._recent)
        self._recent = _without(self._recent, number, offset)
        self._frozen = _without(self._frozen, number, offset)  # a thread may be at the old one
        self._shared.noted(len(self._recent) - before)

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
            self._take(number, result)
            self._reached[number] = result.next_offset
            if result.next_offset >= end:
                done(None)
                return
            go_on = partial(self._read_on, partition, result.next_offset, end, done)
            if len(self._recent) >= RECENT_MAX:
                self.save(go_on)
            else:
                go_on()

        self._shared.world.beside(partial(find_keys, log, start, end), found)

    def read_follower(self, topic: Topic, number: int) -> None:
        """Read what is committed of a partition that is led elsewhere, and save its keys: it is about to be deleted
        here, and whoever leads next may be this node."""
        if self.is_opening or self._is_following:
            return
        self._is_following = True
        if not self._is_new:
            self._follow_up(number)
            return
        work = partial(saving.create, self._shared.vfs, self.directory, Manifest(topic.name))

        def created(manifest: Manifest | None, error: Exception | None) -> None:
            if manifest is None:
                self._followed_up(number, error)
                return
            self.manifest, self._is_new = manifest, False
            self._follow_up(number)

        self._shared.world.beside(work, created)

    def _follow_up(self, number: int) -> None:
        partition = self._shared.replicas.held(self.topic_id, number)
        if partition is None:
            self._is_following = False
            return
        start = sound_end(self.manifest, partition)
        end = min(partition.log.flushed, partition.high_watermark)
        self._forget_from(number, start)
        self._read_on(partition, start, max(start, end), partial(self._followed_up, number))

    def _followed_up(self, number: int, error: Exception | None) -> None:
        def saved() -> None:
            self._is_following = False
            if number not in self._read:
                self._reached.pop(number, None)

        if error is not None:
            logger.error("idempotency keys of %s cannot be read: %s", self.manifest.topic, error)
            self.failures += 1
            saved()
        else:
            self.save(saved)

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
        """How far the files will cover each log, once the recent keys are among them: what is on disk and committed,
        has been read, and is not still being settled. What is not committed yet another leader may write anew."""
        covered = dict(self.manifest.covered)
        replicas = self._shared.replicas
        for number, (log, epoch) in self._read.items():
            partition = replicas.led(self.topic_id, number)
            if partition is not None and (partition.log, partition.leader_epoch) == (log, epoch):
                covered[str(number)] = min(log.flushed, partition.high_watermark)
        for number, offset in self._reached.items():
            partition = replicas.held(self.topic_id, number)
            if partition is not None:
                covered[str(number)] = min(offset, partition.log.flushed, partition.high_watermark)
        for claim in self._claims.values():
            if claim.where is not None:
                number, offset = claim.where
                covered[str(number)] = min(offset, covered.get(str(number), offset))
        return covered

    def _epochs(self, covered: dict[str, Offset]) -> dict[str, LeaderEpoch]:
        """The leader epoch of the last record that each log is covered to."""
        found = {}
        for number, offset in covered.items():
            partition = self._shared.replicas.held(self.topic_id, int(number))
            if partition is not None and offset > 0:
                found[number] = partition.log.epochs.epoch_at(offset - 1)
            elif number in self.manifest.epochs:
                found[number] = self.manifest.epochs[number]
        return found

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
        epochs = self._epochs(covered)
        work = partial(saving.save, shared.vfs, self.directory, self.manifest, self._frozen, covered, epochs)
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
            manifest = Manifest(manifest.topic, {}, files, manifest.next_file)  # all of the log is read again
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


def _without(keys: dict[bytes, bytes], number: int, offset: Offset) -> dict[bytes, bytes]:
    """The keys but those of a partition from an offset on."""
    kept = {}
    for digest, packed in keys.items():
        place = unpack_place(packed)
        if place.partition != number or place.offset < offset:
            kept[digest] = packed
    return kept


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
