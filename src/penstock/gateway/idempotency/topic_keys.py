"""The keys of one topic, from the newest to the oldest:

    claimed      the record is being written; requests with the same key wait for its outcome
    recent       in memory and in the log
    frozen       recent keys that are being saved to a file; recent again if that fails
    files        older keys, newest file first

A lookup asks in that order. Before the first lookup the logs are read from the end of the files on (`logs`), and again
for a partition that this broker starts to lead. Recent keys are saved every minute, when there are many, or before the
log deletes records. A file covers only records on disk, so it never has a key that the log lacks.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.gateway.idempotency.keyfile import PLACE, KeyPlace, unpack_place
from penstock.gateway.idempotency.log_reading import FoundKeys, LogReading, has_key
from penstock.gateway.idempotency.topic_files import Manifest, TopicFiles
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended

if TYPE_CHECKING:
    from penstock.gateway.idempotency.keys import IdempotencyKeys

WAIT_MS_MAX = 30_000
"""How long a lookup waits for a record that is in the log but not durable."""

PartitionOffset = tuple[int, Offset]
"""Partition and offset of a record."""


class Claim:
    """The right of one request to write the record with a key. Other requests wait until it is settled."""

    __slots__ = ("_digest", "_offset", "_partition", "_timestamp", "_topic_keys", "_waiting")

    def __init__(self, topic_keys: "TopicKeys", digest: bytes) -> None:
        self._topic_keys = topic_keys
        self._digest = digest
        self._partition: Partition | None = None
        self._offset: Offset = -1
        self._timestamp: TimestampMs = -1
        self._waiting: list[Promise[PartitionOffset]] = []

    def join(self) -> Promise[PartitionOffset]:
        """Wait for the position of the record. Fails with the error of its write."""
        promise: Promise[PartitionOffset] = Promise()
        self._waiting.append(promise)
        return promise

    def staged(self, partition: Partition, offset: Offset, timestamp: TimestampMs) -> None:
        self._partition, self._offset, self._timestamp = partition, offset, timestamp

    @property
    def where(self) -> PartitionOffset | None:
        return None if self._partition is None else (self._partition.number, self._offset)

    def settled(self, error: KafkaError | None) -> None:
        """The record is durable; or it is not known to be. If it is in the log in spite of an error, its key is kept:
        a retry is answered when the record is durable."""
        partition = self._partition
        is_written = partition is not None and self._offset < partition.log.log_end
        number = -1 if partition is None else partition.number
        place = KeyPlace(number, self._offset, self._timestamp) if is_written else None
        self._topic_keys.let_go(self._digest, place)
        for promise in self._waiting:
            if error is None:
                promise.resolve((number, self._offset))
            else:
                promise.fail(error)


class KnownRecord(Promise["PartitionOffset"]):
    """A `DelayedProduce` for a record that is in the log, but perhaps not durable."""

    __slots__ = ("_number", "acks", "appended", "deadline_ms")

    def __init__(self, number: int, offset: Offset, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self._number = number
        self.appended = Appended(offset, offset)
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        if error is None:
            self.resolve((self._number, self.appended.base_offset))
        else:
            self.fail(error)


def when_durable(partition: Partition, offset: Offset, now_ms: TimestampMs) -> Promise[PartitionOffset]:
    """The position of a record in the log, once it is durable."""
    if offset < min(partition.log.flushed, partition.high_watermark):
        return _resolved(KeyPlace(partition.number, offset, now_ms))
    known = KnownRecord(partition.number, offset, now_ms + WAIT_MS_MAX)
    partition.wait_for_written(known)
    return known


def _resolved(place: KeyPlace) -> Promise[PartitionOffset]:
    promise: Promise[PartitionOffset] = Promise()
    promise.resolve((place.partition, place.offset))
    return promise


RECENT_MAX = 8192
"""Keys of a topic in memory, about 1.5 MB, beyond which they are saved: about 20 milliseconds on a thread."""

RECENT_LIMIT = 16 * RECENT_MAX
"""Keys of a topic in memory, beyond which new keys are rejected. Reached only if keys cannot be saved."""


class RecentKeys:
    def __init__(self, shared: "IdempotencyKeys") -> None:
        self._shared = shared
        self._recent: dict[bytes, bytes] = {}
        """Digest to packed place, as in files."""
        self._frozen: dict[bytes, bytes] = {}
        """Keys that are being saved to a file."""

    def __len__(self) -> int:
        """Keys that the next file would have."""
        return len(self._recent)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._recent or digest in self._frozen

    def find(self, digest: bytes) -> KeyPlace | None:
        packed = self._recent.get(digest) or self._frozen.get(digest)
        return unpack_place(packed) if packed else None

    def are_many(self, failures: int = 0) -> bool:
        """Whether it is time to save. Each failed attempt raises the limit."""
        return len(self._recent) >= RECENT_MAX * (1 + failures)

    @property
    def is_full(self) -> bool:
        return len(self._recent) + len(self._frozen) >= RECENT_LIMIT

    # -- new keys --------------------------------------------------------------------------------------

    def note(self, digest: bytes, place: KeyPlace) -> None:
        """A record with a new key was written."""
        self._recent[digest] = PLACE.pack(*place)
        self._shared.noted(1)

    def take(self, number: int, found: FoundKeys) -> None:
        """Add keys that were read from the log. Of two records with the same key the first counts, until it
        expires."""
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

    # -- removal ---------------------------------------------------------------------------------------

    def forget_from(self, number: int, offset: Offset) -> None:
        """Drop the keys of a partition from an offset on: they are read from the log again."""
        before = len(self._recent)
        self._recent = _without(self._recent, number, offset)
        self._frozen = _without(self._frozen, number, offset)  # a thread may still read the old dict
        self._shared.noted(len(self._recent) - before)

    def freeze(self) -> dict[bytes, bytes]:
        """The keys to save now. The returned dict no longer changes."""
        self._frozen, self._recent = self._recent, {}
        return self._frozen

    def thaw(self, *, is_saved: bool) -> None:
        """Drop the frozen keys if they are in a file; otherwise they are recent again."""
        frozen, self._frozen = self._frozen, {}
        if is_saved:
            self._shared.noted(-len(frozen))
        else:
            self._recent = frozen | self._recent


def _without(keys: dict[bytes, bytes], number: int, offset: Offset) -> dict[bytes, bytes]:
    """The keys without those of a partition from an offset on."""
    kept = {}
    for digest, packed in keys.items():
        place = unpack_place(packed)
        if place.partition != number or place.offset < offset:
            kept[digest] = packed
    return kept


logger = logging.getLogger(__name__)

FAILURES_MAX = 3
"""Failed attempts to save keys, after which the log may delete their records: retention must be able to free a full
disk."""


class TopicKeys:
    def __init__(
        self,
        shared: "IdempotencyKeys",
        topic_id: Uuid,
        directory: str,
        manifest: Manifest,
        *,
        is_new: bool = False,
    ) -> None:
        """`is_new`: the manifest is not on disk yet."""
        self._shared = shared
        self.topic_id = topic_id
        self.recent = RecentKeys(shared)
        self.logs = LogReading(shared, topic_id, self)
        self.files = TopicFiles(shared, directory, manifest, self.logs.restart, is_new=is_new)
        self.failures = 0
        """Failed attempts to save keys since the last success."""
        self._claims: dict[bytes, Claim] = {}
        self._is_busy = False
        """Whether files are written or merged on a thread: one task at a time."""
        self._wants_save = False
        """Whether to save again after that."""
        self._after_busy: list[Callable[[], None]] = []
        """Callbacks of that save."""

    def __repr__(self) -> str:
        files = self.files
        return f"<TopicKeys {files.manifest.topic} {len(self.recent)} recent, {len(files.opened)} files>"

    # -- lookup ----------------------------------------------------------------------------------------

    def find(self, digest: bytes, now_ms: TimestampMs) -> Promise[PartitionOffset] | None:
        """The position of the record with a key, once it is durable; None for a new key."""
        claim = self._claims.get(digest)
        if claim is not None:
            return claim.join()
        place = self._find(digest, now_ms)
        if place is None:
            return None
        partition = self._shared.replicas.led(self.topic_id, place.partition)
        if partition is None:
            # Another broker leads the partition. Saved keys are of committed records; the leader knows the others.
            return _resolved(place) if place.offset < self.files.covered(place.partition) else None
        if place.offset >= partition.log.log_end:
            logger.warning(
                "%s: dropped an idempotency key with offset %d, beyond the log end offset %d",
                partition.name,
                place.offset,
                partition.log.log_end,
            )
            return None
        if partition.isr is not None and not has_key(partition.log, place.offset, digest):
            return None  # another leader has written another record at this offset
        return when_durable(partition, place.offset, now_ms)

    def _find(self, digest: bytes, now_ms: TimestampMs) -> KeyPlace | None:
        expired_ms = now_ms - self._shared.retention_ms()
        place = self.recent.find(digest) or self.files.find(digest, expired_ms)
        return place if place is not None and place.timestamp >= expired_ms else None

    def knows(self, digest: bytes) -> bool:
        """Whether the key is claimed or recent: files are not asked."""
        return digest in self._claims or digest in self.recent

    # -- claims ----------------------------------------------------------------------------------------

    def claim(self, digest: bytes) -> Claim:
        """Claim a new key, before its record is written."""
        if self.recent.is_full:
            raise KafkaError(
                f"idempotency keys of {self.files.manifest.topic} cannot be saved, and too many are in memory",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        claim = self._claims[digest] = Claim(self, digest)
        return claim

    def let_go(self, digest: bytes, place: KeyPlace | None) -> None:
        """Remove a settled claim; `place` is the position of its record, if that is in the log."""
        del self._claims[digest]
        if place is not None:
            self.recent.note(digest, place)
            if self.recent.are_many(self.failures):
                self.save()

    # -- saving ----------------------------------------------------------------------------------------

    def save(self, then: Callable[[], None] | None = None) -> None:
        """Save the recent keys, if there are any; `then` is called when they are saved, or the attempt has failed."""
        if self._is_busy:
            self._wants_save = True
            if then is not None:
                self._after_busy.append(then)
            return
        if self._shared.is_stopped:
            return
        files = self.files
        covered = self._coverable()
        if files.is_new or (not self.recent and covered == files.manifest.covered):
            if then is not None:
                then()
            return
        self._is_busy = True
        files.save(self.recent.freeze(), covered, self._epochs(covered), partial(self._saved, then))

    def _saved(self, then: Callable[[], None] | None, error: Exception | None) -> None:
        self.failures = 0 if error is None else self.failures + 1
        self.recent.thaw(is_saved=error is None)
        if then is not None:
            then()
        if error is None:
            self.files.tidy(self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Start the save that waited for the last task."""
        self._is_busy = False
        waiting, self._after_busy = self._after_busy, []
        if self._wants_save:
            self._wants_save = False
            self.save(partial(_call_all, waiting))

    def failed(self) -> None:
        """The keys could not be read: counts as a failed save."""
        self.failures += 1

    def _coverable(self) -> dict[str, Offset]:
        """The offsets that the files will cover once the recent keys are saved: all below is on disk, committed, and
        read, and has no open claim."""
        covered = self.files.manifest.covered | self.logs.settled()
        for claim in self._claims.values():
            if claim.where is not None:
                number, offset = claim.where
                covered[str(number)] = min(offset, covered.get(str(number), offset))
        return covered

    def _epochs(self, covered: dict[str, Offset]) -> dict[str, LeaderEpoch]:
        """By partition: the leader epoch of the last covered record."""
        known = self.files.manifest.epochs
        found = {}
        for number, offset in covered.items():
            partition = self._shared.replicas.held(self.topic_id, int(number))
            if partition is not None and offset > 0:
                found[number] = partition.log.epochs.epoch_at(offset - 1)
            elif number in known:
                found[number] = known[number]
        return found


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
