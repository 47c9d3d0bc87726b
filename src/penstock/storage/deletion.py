"""Deletes segments so that a crash at any point is harmless.

    1. save the new log start offset (`Log.advance_start`)     readers no longer see the records
    2. write a `.tomb` marker for each segment                 from here on a restart completes the deletion
    3. rename the files to `.deleted`, as Kafka does           they are no longer part of the log
    4. remove the files, then the marker                       later, on any thread

Directory entries are synced between the steps. A restart continues at the step that was interrupted.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.errors import StorageError
from penstock.storage.segment import Segment
from penstock.vfs import Vfs, read_file

_KINDS = (
    names.LOG,
    names.INDEX,
    names.TIME_INDEX,
    names.TXN_INDEX,
    names.SNAPSHOT,
    names.SEQUENCES,
    names.SEARCH_INDEX,
)


class DeletionMarker(msgspec.Struct):
    """Contents of a `.tomb` file."""

    end: Offset
    """First offset after the segment."""
    log_start: Offset
    """The log start that allows the deletion; at least `end`."""


class Removal(NamedTuple):
    """Removes files that no longer belong to a log."""

    vfs: Vfs
    paths: tuple[str, ...]

    def run(self) -> None:
        """Remove them; after an error another run, or the next start, removes the rest."""
        try:
            for path in self.paths:
                if self.vfs.stat(path) is not None:
                    self.vfs.remove(path)
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error


def begin_deletion(
    vfs: Vfs, directory: str, segments: Sequence[tuple[Segment, Offset]], log_start: Offset
) -> Removal:
    """Mark segments deleted, given with their end offsets, which must not exceed log_start."""
    for segment, end in segments:
        assert end <= log_start, f"{segment} ends at {end}, after the log start {log_start}"
        tomb = vfs.open(segment.path_of(names.TOMB), write=True, create=True)
        tomb.pwrite([msgspec.json.encode(DeletionMarker(end, log_start))], 0)
        tomb.sync()
        tomb.close()
    vfs.sync_dir(directory)
    return _finish(vfs, directory, [segment.base_offset for segment, _ in segments])


def _finish(vfs: Vfs, directory: str, bases: Sequence[Offset]) -> Removal:
    doomed, tombs = [], []
    wanted = set(bases)
    for entry in vfs.list_dir(directory):
        parsed = names.parse_segment_file(entry.name)
        if parsed is None or parsed.base_offset not in wanted:
            continue
        path = f"{directory}/{entry.name}"
        if parsed.kind == names.TOMB:
            tombs.append(path)
        elif parsed.state == names.DELETED:
            doomed.append(path)
        elif parsed.kind in _KINDS:
            vfs.rename(path, path + names.DELETED)
            doomed.append(path + names.DELETED)
    vfs.sync_dir(directory)
    return Removal(vfs, (*doomed, *tombs))


def finish_deletions(vfs: Vfs, directory: str, log_start: Offset) -> None:
    """Complete interrupted deletions; drop markers whose segment ends after the log start."""
    bases = []
    for path, base_offset, tomb in read_markers(vfs, directory):
        if tomb is not None and tomb.end <= log_start:
            bases.append(base_offset)
        else:
            vfs.remove(path)
    if bases:
        _finish(vfs, directory, bases).run()


def read_markers(vfs: Vfs, directory: str) -> Iterable[tuple[str, Offset, DeletionMarker | None]]:
    """Path, base offset and contents of each marker; contents are None if torn."""
    for entry in vfs.list_dir(directory):
        parsed = names.parse_segment_file(entry.name)
        if parsed is not None and parsed.kind == names.TOMB:
            path = f"{directory}/{entry.name}"
            try:
                yield path, parsed.base_offset, msgspec.json.decode(read_file(vfs, path), type=DeletionMarker)
            except ValueError:
                yield path, parsed.base_offset, None


def remove_segment_files(vfs: Vfs, directory: str, base_offset: Offset) -> None:
    """Remove a segment immediately, its log file first: the other files are useless without it."""
    for kind in _KINDS:
        path = f"{directory}/{names.segment_file(base_offset, kind)}"
        if vfs.stat(path) is not None:
            vfs.remove(path)
