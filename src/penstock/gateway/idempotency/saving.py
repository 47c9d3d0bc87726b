"""What is done with a topic's key files beside the loop: each gives the manifest that counts from then on.

    save      recent keys --> one more file                          the manifest says how far the logs are covered
    merge     files of a kind --> one; what is past its time goes    the manifest says the same as before

A file is durable under its name before a manifest speaks of it, and goes after none does any more.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.gateway.idempotency.keyfile import CorruptKeyFile, Written, read_written, write_key_file
from penstock.gateway.idempotency.manifest import MANIFEST, FileNote, Manifest
from penstock.gateway.idempotency.merging import Source, merge_key_files
from penstock.vfs import Vfs, make_dirs_durably, replace_file

logger = logging.getLogger(__name__)

SUFFIX = ".keys"

MERGED_AT_ONCE_MIN = 4
"""Fewer files are not worth writing one in their place."""


def create(vfs: Vfs, directory: str, manifest: Manifest) -> Manifest:
    """Begin with a topic's keys: none is written to its log before this is on disk."""
    make_dirs_durably(vfs, directory)
    replace_file(vfs, f"{directory}/{MANIFEST}", manifest.encode())
    return manifest


def save(
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


class Tidying(NamedTuple):
    """Files that are to be replaced by one, and what goes without."""

    first: int
    last: int
    """The files from `first` up to, without, `last` are merged; none if they are the same."""
    expired_ms: TimestampMs
    """Keys that are older have had their time."""
    entries: int


def plan_tidying(files: Sequence[FileNote], expired_ms: TimestampMs) -> Tidying | None:
    """What is worth doing: files that are past their time go, and neighbours of like size become one, beginning with
    the youngest: so there are never many, and no key is written often. A file of which most is past its time is
    written anew."""
    total, first = 0, len(files)
    while first > 0 and (first == len(files) or files[first - 1].entries <= 2 * total):
        first -= 1
        total += files[first].entries
    if len(files) - first >= MERGED_AT_ONCE_MIN:
        return Tidying(first, len(files), expired_ms, total)
    for at, note in enumerate(files):
        if (note.oldest_ms + note.newest_ms) // 2 < expired_ms <= note.newest_ms:
            return Tidying(at, at + 1, expired_ms, note.entries)
    if any(note.newest_ms < expired_ms for note in files):
        return Tidying(0, 0, expired_ms, 0)
    return None


def merge(vfs: Vfs, directory: str, manifest: Manifest, plan: Tidying) -> Manifest:
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


def remove_strays(vfs: Vfs, directory: str, manifest: Manifest) -> None:
    """Remove what a crash left behind."""
    known = {MANIFEST, *(each.name for each in manifest.files)}
    with suppress(FileNotFoundError):
        for entry in vfs.list_dir(directory):
            if entry.name not in known:
                vfs.remove(f"{directory}/{entry.name}")


def remove_files(vfs: Vfs, directory: str, names: Sequence[str]) -> None:
    """Remove files that no manifest speaks of any more; what is left after an error goes at the next start."""
    for name in names:
        with suppress(FileNotFoundError):
            vfs.remove(f"{directory}/{name}")


def salvage(vfs: Vfs, directory: str, topic: str) -> Manifest:
    """A manifest for the key files that are there, in place of one that is lost: they count, and the whole log is read
    again."""
    notes, last = [], 0
    for entry in vfs.list_dir(directory):
        number = entry.name.removesuffix(SUFFIX)
        if not entry.name.endswith(SUFFIX) or not number.isdecimal():
            continue
        last = max(last, int(number))
        try:
            notes.append(_note(entry.name, read_written(vfs, f"{directory}/{entry.name}")))
        except (CorruptKeyFile, OSError) as error:
            logger.warning("%s; its keys are taken from the log, as far as they are there", error)
    return Manifest(topic, files=tuple(notes), next_file=last + 1)


def _name(number: int) -> str:
    return f"{number:010d}{SUFFIX}"


def _note(name: str, written: Written) -> FileNote:
    return FileNote(name, written.entries, written.oldest_ms, written.newest_ms)
