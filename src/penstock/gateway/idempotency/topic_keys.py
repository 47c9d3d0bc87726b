"""The keys of one topic: which are being written, which are known, and where their records are.

    claimed      being written; who comes with the same key waits for the outcome
    recent       in memory and in the log
    frozen       recent ones on their way into a file
    files        older ones; newest first

A key is asked for in that order. Before the first question the logs are read from where the files end (`logs`), which
is done again for a partition that has come here since. Every minute, when there are many, or when the log wants to
let records go, the recent ones are saved as one more file. What is saved covers only what is certainly on disk: so no
file ever knows more than the log did.
"""

import logging
from collections.abc import Callable
from functools import partial

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.gateway.idempotency.claims import Claim, Where, answered, told
from penstock.gateway.idempotency.entries import KeyPlace
from penstock.gateway.idempotency.log_reading import LogReading
from penstock.gateway.idempotency.manifest import Manifest
from penstock.gateway.idempotency.recent import RecentKeys
from penstock.gateway.idempotency.replay import has_key
from penstock.gateway.idempotency.shared import Shared
from penstock.gateway.idempotency.topic_files import TopicFiles

logger = logging.getLogger(__name__)

FAILURES_MAX = 3
"""After so many failed attempts to save keys the log may go its way: a full disk must be able to become empty."""


class TopicKeys:
    def __init__(
        self, shared: Shared, topic_id: Uuid, directory: str, manifest: Manifest, *, is_new: bool = False
    ) -> None:
        """`is_new`: the manifest is not on disk yet."""
        self._shared = shared
        self.topic_id = topic_id
        self.recent = RecentKeys(shared)
        self.logs = LogReading(shared, topic_id, self)
        self.files = TopicFiles(shared, directory, manifest, self.logs.begin_anew, is_new=is_new)
        self.failures = 0
        """Attempts to save keys that failed, since the last that did not."""
        self._claims: dict[bytes, Claim] = {}
        self._is_busy = False
        """Something is being written beside: one thing at a time."""
        self._wants_save = False
        """There will be more to save when that is done."""
        self._after_busy: list[Callable[[], None]] = []
        """Who is to be called then."""

    def __repr__(self) -> str:
        files = self.files
        return f"<TopicKeys {files.manifest.topic} {len(self.recent)} recent, {len(files.opened)} files>"

    # -- asking ----------------------------------------------------------------------------------------

    def find(self, digest: bytes, now_ms: TimestampMs) -> Promise[Where | KafkaError] | None:
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
            return answered(place) if place.offset < self.files.covered(place.partition) else None
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

    def _find(self, digest: bytes, now_ms: TimestampMs) -> KeyPlace | None:
        expired_ms = now_ms - self._shared.retention_ms()
        place = self.recent.find(digest) or self.files.find(digest, expired_ms)
        return place if place is not None and place.timestamp >= expired_ms else None

    def knows(self, digest: bytes) -> bool:
        """Whether somebody has come with this key, as far as memory says."""
        return digest in self._claims or digest in self.recent

    # -- new ones --------------------------------------------------------------------------------------

    def claim(self, digest: bytes) -> Claim:
        """The right to write the record with a key that is new."""
        if self.recent.is_full:
            raise KafkaError(
                f"idempotency keys of {self.files.manifest.topic} cannot be saved, and there is no room for more",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        claim = self._claims[digest] = Claim(self, digest)
        return claim

    def let_go(self, digest: bytes, place: KeyPlace | None) -> None:
        """A claim is settled; with a place, if its record is in the log."""
        del self._claims[digest]
        if place is not None:
            self.recent.note(digest, place)
            if self.recent.are_many(self.failures):
                self.save()

    # -- saving ----------------------------------------------------------------------------------------

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
        """With what had to wait for the disk."""
        self._is_busy = False
        waiting, self._after_busy = self._after_busy, []
        if self._wants_save:
            self._wants_save = False
            self.save(partial(_call_all, waiting))

    def failed(self) -> None:
        """Its keys could not even be read."""
        self.failures += 1

    def _coverable(self) -> dict[str, Offset]:
        """How far the files will cover each log, once the recent keys are among them: what is on disk and committed,
        has been read, and is not still being settled."""
        covered = self.files.manifest.covered | self.logs.settled()
        for claim in self._claims.values():
            if claim.where is not None:
                number, offset = claim.where
                covered[str(number)] = min(offset, covered.get(str(number), offset))
        return covered

    def _epochs(self, covered: dict[str, Offset]) -> dict[str, LeaderEpoch]:
        """The leader epoch of the last record that each log is covered to."""
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
