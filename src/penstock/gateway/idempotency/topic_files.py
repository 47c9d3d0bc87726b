"""The key files of one topic: the manifest, lookups, and the work done beside the loop.

    keys.json    the manifest: which files count, and which part of each log they cover; replaced whole
    save         recent keys --> a new file                            the covered part grows
    merge        several files --> one, without expired entries        the covered part stays

The manifest is created, durably, before the first key of a topic is written to its log: a topic without one has no
keys. From then on the log keeps every record that no key file covers (`IdempotencyKeys.removable`). A file is durable
before a manifest names it, and is removed after no manifest does. A lookup asks the newest file first. A damaged file
is dropped, and the whole log is read again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.gateway.idempotency.keyfile import (
    NEVER_CUT,
    CorruptKeyFile,
    KeyFile,
    KeyPlace,
    Source,
    Written,
    merge_key_files,
    read_written,
    write_key_file,
)
from penstock.records.checksum import crc32c
from penstock.replica import Partition
from penstock.vfs import Vfs, make_dirs_durably, replace_file

MANIFEST = "keys.json"


class BadManifest(Exception):
    """A manifest that cannot be used; the message says why."""


class FileNote(msgspec.Struct, frozen=True):
    """A valid key file."""

    name: str
    entries: int
    oldest_ms: TimestampMs
    newest_ms: TimestampMs
    cuts: dict[str, Offset] = {}
    """By partition: entries from this offset on are void, because the log has lost their records."""


class Manifest(msgspec.Struct, frozen=True):
    topic: str
    """The topic's name; the directory has its id."""
    covered: dict[str, Offset] = {}
    """By partition: every key below this offset is in the files. The log is read from here on."""
    files: tuple[FileNote, ...] = ()
    """Oldest first. If two files have a key, the newer one counts."""
    next_file: int = 1
    version: int = 1
    epochs: dict[str, LeaderEpoch] = {}
    """By partition: the leader epoch of the last covered record. If the log has another epoch there, an unclean
    election has replaced covered records."""

    def encode(self) -> bytes:
        """A line with the CRC-32C of the JSON, then the JSON."""
        body = msgspec.json.format(msgspec.json.encode(self), indent=1)
        return b"%08x\n" % crc32c(body) + body

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Manifest":
        line, _, body = data.partition(b"\n")
        try:
            crc = int(line, 16)
            if crc != crc32c(body):
                raise BadManifest(f"{path}: CRC {crc:08x}, expected {crc32c(body):08x}, which its bytes give")
            manifest = msgspec.json.decode(body, type=cls)
        except ValueError as error:
            raise BadManifest(f"{path}: {error}") from error
        if manifest.version != 1:
            raise BadManifest(f"{path}: version {manifest.version}, expected 1")
        return manifest


def sound_end(manifest: Manifest, partition: Partition) -> Offset:
    """The offset up to which the files cover the log as it is now. Saved keys are of committed records, but an unclean
    election may have replaced these: then another epoch starts below, and the files cover the log up to that.

        saved       epoch 3 [0 ........ 90]
        now         epoch 3 [0 .... 60] epoch 5 [60 ...... 120]      covered to 60
    """
    number = str(partition.number)
    covered, epoch = manifest.covered.get(number, 0), manifest.epochs.get(number)
    log = partition.log
    if epoch is None or not covered:
        return min(covered, log.log_end)
    found, end = log.epochs.end_of(epoch, log.log_end)
    return min(covered, log.log_end, end) if found >= 0 else 0


if TYPE_CHECKING:
    from penstock.gateway.idempotency.keys import IdempotencyKeys

logger = logging.getLogger(__name__)

SUFFIX = ".keys"

MERGED_AT_ONCE_MIN = 4
"""Files of similar size that are worth a merge."""


def create_manifest(vfs: Vfs, directory: str, manifest: Manifest) -> Manifest:
    """Create the first manifest of a topic. No key is written to its log before this is on disk."""
    make_dirs_durably(vfs, directory)
    replace_file(vfs, f"{directory}/{MANIFEST}", manifest.encode())
    return manifest


def save_key_file(
    vfs: Vfs,
    directory: str,
    manifest: Manifest,
    recent: Mapping[bytes, bytes],
    covered: dict[str, Offset],
    epochs: dict[str, LeaderEpoch] | None = None,
) -> Manifest:
    files, next_file = manifest.files, manifest.next_file
    if recent:
        name = _name(next_file)
        entries = sorted([digest + place for digest, place in recent.items()])
        written = write_key_file(vfs, f"{directory}/{name}", entries, len(entries))
        vfs.sync_dir(directory)
        files = (*files, _note(name, written))
        next_file += 1
    saved = msgspec.structs.replace(
        manifest, covered=covered, files=files, next_file=next_file, epochs=epochs or {}
    )
    replace_file(vfs, f"{directory}/{MANIFEST}", saved.encode())
    return saved


class MergePlan(NamedTuple):
    """Files to merge into one, and files to drop."""

    first: int
    last: int
    """The files from `first` to `last`, exclusive, are merged; none if both are equal."""
    expired_ms: TimestampMs
    """Older keys are expired."""
    entries: int


def plan_merge(files: Sequence[FileNote], expired_ms: TimestampMs) -> MergePlan | None:
    """The merge that is worth its cost, if any: of the newest files, as long as they are of similar size, so that
    there are few files and each key is rewritten rarely; or of one file that is mostly expired. Expired files are
    dropped."""
    total, first = 0, len(files)
    while first > 0 and (first == len(files) or files[first - 1].entries <= 2 * total):
        first -= 1
        total += files[first].entries
    if len(files) - first >= MERGED_AT_ONCE_MIN:
        return MergePlan(first, len(files), expired_ms, total)
    for at, note in enumerate(files):
        if (note.oldest_ms + note.newest_ms) // 2 < expired_ms <= note.newest_ms:
            return MergePlan(at, at + 1, expired_ms, note.entries)
    if any(note.newest_ms < expired_ms for note in files):
        return MergePlan(0, 0, expired_ms, 0)
    return None


def merge_files(vfs: Vfs, directory: str, manifest: Manifest, plan: MergePlan) -> Manifest:
    files = list(manifest.files)
    next_file = manifest.next_file
    if plan.last > plan.first:
        name = _name(next_file)
        sources = [Source(f"{directory}/{each.name}", each.cuts) for each in files[plan.first : plan.last]]
        written = merge_key_files(vfs, sources, f"{directory}/{name}", plan.entries, plan.expired_ms)
        vfs.sync_dir(directory)
        files[plan.first : plan.last] = [_note(name, written)]
        next_file += 1
    kept = tuple(each for each in files if each.entries and each.newest_ms >= plan.expired_ms)
    merged = msgspec.structs.replace(manifest, files=kept, next_file=next_file)
    replace_file(vfs, f"{directory}/{MANIFEST}", merged.encode())
    return merged


def remove_stray_files(vfs: Vfs, directory: str, manifest: Manifest) -> None:
    """Remove files that a crash left behind."""
    known = {MANIFEST, *(each.name for each in manifest.files)}
    with suppress(FileNotFoundError):
        for entry in vfs.list_dir(directory):
            if entry.name not in known:
                vfs.remove(f"{directory}/{entry.name}")


def remove_files(vfs: Vfs, directory: str, names: Sequence[str]) -> None:
    """Remove files that are no longer in the manifest. After an error the next start removes the rest."""
    for name in names:
        with suppress(FileNotFoundError):
            vfs.remove(f"{directory}/{name}")


def salvage_manifest(vfs: Vfs, directory: str, topic: str) -> Manifest:
    """A manifest of all key files in the directory, to replace a lost one. The whole log is read again."""
    notes, last = [], 0
    for entry in vfs.list_dir(directory):
        number = entry.name.removesuffix(SUFFIX)
        if not entry.name.endswith(SUFFIX) or not number.isdecimal():
            continue
        last = max(last, int(number))
        try:
            notes.append(_note(entry.name, read_written(vfs, f"{directory}/{entry.name}")))
        except (CorruptKeyFile, OSError) as error:
            logger.warning("%s; reading its keys from the log, as far as the log has them", error)
    return Manifest(topic, files=tuple(notes), next_file=last + 1)


def _name(number: int) -> str:
    return f"{number:010d}{SUFFIX}"


def _note(name: str, written: Written) -> FileNote:
    return FileNote(name, written.entries, written.oldest_ms, written.newest_ms)


IN_CHILD_MIN = 16_384
"""Merges of more entries than this run in a child process: on a thread they would slow the event loop."""

Then = Callable[[Exception | None], None]
"""Called with None when the work is done, or with its error."""


class TopicFiles:
    def __init__(
        self,
        shared: "IdempotencyKeys",
        directory: str,
        manifest: Manifest,
        on_damage: Callable[[], None],
        *,
        is_new: bool = False,
    ) -> None:
        """`on_damage` is called when a file is found to be damaged."""
        self._shared = shared
        self.directory = directory
        self.manifest = manifest
        self.is_new = is_new
        """Whether the manifest is not on disk yet."""
        self._is_swept = is_new
        """Whether files that a crash left behind are removed."""
        self.opened = [self._open(each) for each in manifest.files]
        """The files of the manifest, oldest first."""
        self._on_damage = on_damage
        self._damaged_names: set[str] = set()
        """Damaged files. A manifest that is being written on a thread may still name them."""

    def _open(self, note: FileNote) -> KeyFile:
        return KeyFile(f"{self.directory}/{note.name}", self._shared.filters)

    # -- lookup ----------------------------------------------------------------------------------------

    def covered(self, number: int) -> Offset:
        """All keys below this offset of a partition are in the files."""
        return self.manifest.covered.get(str(number), 0)

    def find(self, digest: bytes, expired_ms: TimestampMs) -> KeyPlace | None:
        """The position of a key. Reads one page of the file that has the key, and rarely one of a file that has not;
        mostly from the page cache."""
        for note, file in zip(reversed(self.manifest.files), reversed(self.opened), strict=True):
            if note.newest_ms < expired_ms:
                continue
            try:
                place = file.find(digest)
            except (CorruptKeyFile, OSError) as error:
                if isinstance(error, CorruptKeyFile | FileNotFoundError):
                    self._drop_damaged(note, error)
                raise KafkaError(
                    f"idempotency keys of {self.manifest.topic} cannot be read: {error}",
                    ErrorCode.KAFKA_STORAGE_ERROR,
                ) from error
            if place is not None and place.offset < note.cuts.get(str(place.partition), NEVER_CUT):
                return place
        return None

    # -- work on threads -------------------------------------------------------------------------------

    def create(self, manifest: Manifest, then: Then) -> None:
        """Write the first manifest to disk."""

        def created(manifest: Manifest | None, error: Exception | None) -> None:
            if manifest is not None:
                self.manifest, self.is_new = manifest, False
            then(error)

        shared = self._shared
        shared.world.beside(partial(create_manifest, shared.vfs, self.directory, manifest), created)

    def sweep(self, then: Then) -> None:
        """Remove files that a crash left behind. Called before the first save, whose file is in no manifest at
        first."""
        if self._is_swept:
            then(None)
            return
        self._is_swept = True
        shared = self._shared
        work = partial(remove_stray_files, shared.vfs, self.directory, self.manifest)
        shared.world.beside(work, lambda _, error: then(error))

    def save(
        self,
        recent: Mapping[bytes, bytes],
        covered: dict[str, Offset],
        epochs: dict[str, LeaderEpoch],
        then: Then,
    ) -> None:
        """Write a new file of keys, and a manifest with the new covered offsets."""

        def saved(manifest: Manifest | None, error: Exception | None) -> None:
            if manifest is not None:
                self._follow(manifest)
            else:
                logger.error("idempotency keys of %s cannot be saved: %s", self.manifest.topic, error)
            then(error)

        shared = self._shared
        work = partial(save_key_file, shared.vfs, self.directory, self.manifest, recent, covered, epochs)
        shared.world.beside(work, saved)

    def tidy(self, then: Callable[[], None]) -> None:
        """Merge files, if `plan_merge` finds any."""
        shared = self._shared
        expired_ms = shared.world.now_ms() - shared.retention_ms()
        plan = plan_merge(self.manifest.files, expired_ms)
        if plan is None or shared.is_stopped:
            then()
            return

        def tidied(manifest: Manifest | None, error: Exception | None) -> None:
            self._tidied(manifest, error)
            then()

        run = shared.world.in_child if plan.entries > IN_CHILD_MIN else shared.world.beside
        run(partial(merge_files, shared.vfs, self.directory, self.manifest, plan), tidied)

    def _tidied(self, manifest: Manifest | None, error: Exception | None) -> None:
        if manifest is not None:
            kept = {each.name for each in manifest.files}
            left = [each.name for each in self.manifest.files if each.name not in kept]
            self._follow(manifest)
            shared = self._shared
            shared.world.beside(partial(remove_files, shared.vfs, self.directory, left), self._removed)
        elif isinstance(error, CorruptKeyFile):
            name = error.path.rpartition("/")[2]
            for note in self.manifest.files:
                if note.name == name:
                    self._drop_damaged(note, error)
        else:
            logger.error("key files of %s cannot be merged: %s", self.manifest.topic, error)

    def _removed(self, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("merged key files of %s cannot be removed: %s", self.manifest.topic, error)

    # -- manifest --------------------------------------------------------------------------------------

    def _follow(self, manifest: Manifest) -> None:
        """Use a new manifest."""
        if any(each.name in self._damaged_names for each in manifest.files):
            files = tuple(each for each in manifest.files if each.name not in self._damaged_names)
            manifest = Manifest(manifest.topic, {}, files, manifest.next_file)  # all of the log is read again
        known = {note.name: file for note, file in zip(self.manifest.files, self.opened, strict=True)}
        self.opened = [known.get(each.name) or self._open(each) for each in manifest.files]
        for file in known.values():
            if file not in self.opened:
                file.forget()
        self.manifest = manifest

    def _drop_damaged(self, note: FileNote, error: Exception) -> None:
        """Drop a damaged file, and read the whole log again."""
        logger.error("%s; reading the keys of %s from its log instead", error, self.manifest.topic)
        self._damaged_names.add(note.name)
        self._follow(self.manifest)
        self._on_damage()
