"""The key files of one topic: which count, what is in them, and what is done with them beside the loop.

A key is looked for in the newest file first. What is written gives a new manifest (`saving`), which is followed from
then on. A file that turns out to be damaged counts no more, and the log is read again, all of it.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.gateway.idempotency import saving
from penstock.gateway.idempotency.entries import KeyPlace
from penstock.gateway.idempotency.keyfile import CorruptKeyFile, KeyFile
from penstock.gateway.idempotency.manifest import FileNote, Manifest
from penstock.gateway.idempotency.merging import NEVER_CUT
from penstock.gateway.idempotency.recent import RECENT_MAX
from penstock.gateway.idempotency.shared import Shared

logger = logging.getLogger(__name__)

IN_CHILD_MIN = 2 * RECENT_MAX
"""Merges of more entries than this run in a process of their own: on a thread they would slow the loop down."""

Then = Callable[[Exception | None], None]
"""Called when something is done, or with why it is not."""


class TopicFiles:
    def __init__(
        self,
        shared: Shared,
        directory: str,
        manifest: Manifest,
        lost: Callable[[], None],
        *,
        is_new: bool = False,
    ) -> None:
        """`lost` is called when a file turns out to be damaged."""
        self._shared = shared
        self.directory = directory
        self.manifest = manifest
        self.is_new = is_new
        """Its manifest is not on disk yet."""
        self._is_swept = is_new
        """What a crash left behind is gone."""
        self.opened = [self._open(each) for each in manifest.files]
        """As in the manifest, oldest first."""
        self._lost = lost
        self._lost_names: set[str] = set()
        """Files that were found to be damaged: what is being written beside may not know it."""

    def _open(self, note: FileNote) -> KeyFile:
        return KeyFile(f"{self.directory}/{note.name}", self._shared.filters)

    # -- asking ----------------------------------------------------------------------------------------

    def covered(self, number: int) -> Offset:
        """Below this offset of a partition no key would be lost with the log."""
        return self.manifest.covered.get(str(number), 0)

    def find(self, digest: bytes, expired_ms: TimestampMs) -> KeyPlace | None:
        """Reads a page at most where the key is, and rarely one where it is not; mostly from the system's cache."""
        for note, file in zip(reversed(self.manifest.files), reversed(self.opened), strict=True):
            if note.newest_ms < expired_ms:
                continue
            try:
                place = file.find(digest)
            except (CorruptKeyFile, OSError) as error:
                if isinstance(error, CorruptKeyFile | FileNotFoundError):
                    self._lose(note, error)
                raise KafkaError(
                    f"idempotency keys of {self.manifest.topic} cannot be read: {error}",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                ) from error
            if place is not None and place.offset < note.cuts.get(str(place.partition), NEVER_CUT):
                return place
        return None

    # -- what is done beside ---------------------------------------------------------------------------

    def create(self, manifest: Manifest, then: Then) -> None:
        """Put the first manifest on disk."""

        def created(manifest: Manifest | None, error: Exception | None) -> None:
            if manifest is not None:
                self.manifest, self.is_new = manifest, False
            then(error)

        shared = self._shared
        shared.world.beside(partial(saving.create, shared.vfs, self.directory, manifest), created)

    def sweep(self, then: Then) -> None:
        """Remove what a crash left behind; before anything is written here, which no manifest speaks of at first."""
        if self._is_swept:
            then(None)
            return
        self._is_swept = True
        shared = self._shared
        work = partial(saving.remove_strays, shared.vfs, self.directory, self.manifest)
        shared.world.beside(work, lambda _, error: then(error))

    def save(
        self,
        recent: Mapping[bytes, bytes],
        covered: dict[str, Offset],
        epochs: dict[str, LeaderEpoch],
        then: Then,
    ) -> None:
        """Make one more file of keys, and note how far the logs are covered now."""

        def saved(manifest: Manifest | None, error: Exception | None) -> None:
            if manifest is not None:
                self._follow(manifest)
            else:
                logger.error("idempotency keys of %s cannot be saved: %s", self.manifest.topic, error)
            then(error)

        shared = self._shared
        work = partial(saving.save, shared.vfs, self.directory, self.manifest, recent, covered, epochs)
        shared.world.beside(work, saved)

    def tidy(self, then: Callable[[], None]) -> None:
        """Merge files, if it is worth it."""
        shared = self._shared
        expired_ms = shared.world.now_ms() - shared.retention_ms()
        plan = saving.plan_tidying(self.manifest.files, expired_ms)
        if plan is None or shared.is_stopped:
            then()
            return

        def tidied(manifest: Manifest | None, error: Exception | None) -> None:
            self._tidied(manifest, error)
            then()

        run = shared.world.in_child if plan.entries > IN_CHILD_MIN else shared.world.beside
        run(partial(saving.merge, shared.vfs, self.directory, self.manifest, plan), tidied)

    def _tidied(self, manifest: Manifest | None, error: Exception | None) -> None:
        if manifest is not None:
            kept = {each.name for each in manifest.files}
            left = [each.name for each in self.manifest.files if each.name not in kept]
            self._follow(manifest)
            shared = self._shared
            shared.world.beside(partial(saving.remove_files, shared.vfs, self.directory, left), self._removed)
        elif isinstance(error, CorruptKeyFile):
            name = error.path.rpartition("/")[2]
            for note in self.manifest.files:
                if note.name == name:
                    self._lose(note, error)
        else:
            logger.error("key files of %s cannot be merged: %s", self.manifest.topic, error)

    def _removed(self, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("merged key files of %s cannot be removed: %s", self.manifest.topic, error)

    # -- which count -----------------------------------------------------------------------------------

    def _follow(self, manifest: Manifest) -> None:
        """Take over what counts from now on."""
        if any(each.name in self._lost_names for each in manifest.files):
            files = tuple(each for each in manifest.files if each.name not in self._lost_names)
            manifest = Manifest(manifest.topic, {}, files, manifest.next_file)  # all of the log is read again
        known = {note.name: file for note, file in zip(self.manifest.files, self.opened, strict=True)}
        self.opened = [known.get(each.name) or self._open(each) for each in manifest.files]
        for file in known.values():
            if file not in self.opened:
                file.forget()
        self.manifest = manifest

    def _lose(self, note: FileNote, error: Exception) -> None:
        """A file cannot be used: do without it, and have everything read that the log still has."""
        logger.error("%s; the keys of %s are taken from its log instead", error, self.manifest.topic)
        self._lost_names.add(note.name)
        self._follow(self.manifest)
        self._lost()
