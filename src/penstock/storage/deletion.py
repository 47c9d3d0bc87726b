"""Deleting segments so that a crash at any point does no harm.

    1. the new log start offset is on disk (`Log.advance_start`)     readers no longer see the records
    2. a `.tomb` marker for each segment                             from here a restart finishes the job
    3. the files renamed to `.deleted`, as Kafka does                out of the log
    4. files removed, then the marker                                later, at leisure, on any thread

Names are made durable between the steps. A start finds whichever step was cut short and goes on from there.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.errors import StorageError
from penstock.storage.segment import Segment
from penstock.vfs import Vfs, read_file

_KINDS = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT, names.SEQUENCES)


class DeletionMarker(msgspec.Struct):
    """What a `.tomb` file says."""

    end: Offset
    """First offset behind the segment."""
    log_start: Offset
    """The log start that makes the segment superfluous; at least `end`."""


class Removal(NamedTuple):
    """Files that have left the log and only take up space."""

    vfs: Vfs
    paths: tuple[str, ...]

    def run(self) -> None:
        """Remove them; what is left after an error goes with another run, or at the next start."""
        try:
            for path in self.paths:
                if self.vfs.stat(path) is not None:
                    self.vfs.remove(path)
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error


def begin_deletion(
    vfs: Vfs, directory: str, segments: Sequence[tuple[Segment, Offset]], log_start: Offset
) -> Removal:
    """Take segments out of the directory; each comes with its end offset, which log_start must have passed."""
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
    """Complete deletions that a crash cut short; forget markers that the log start does not bear out."""
    bases = []
    for path, base_offset, tomb in read_markers(vfs, directory):
        if tomb is not None and tomb.end <= log_start:
            bases.append(base_offset)
        else:
            vfs.remove(path)
    if bases:
        _finish(vfs, directory, bases).run()


def read_markers(vfs: Vfs, directory: str) -> Iterable[tuple[str, Offset, DeletionMarker | None]]:
    """Each marker: its path, its segment, and what it says; None for one that was torn."""
    for entry in vfs.list_dir(directory):
        parsed = names.parse_segment_file(entry.name)
        if parsed is not None and parsed.kind == names.TOMB:
            path = f"{directory}/{entry.name}"
            try:
                yield path, parsed.base_offset, msgspec.json.decode(read_file(vfs, path), type=DeletionMarker)
            except ValueError:
                yield path, parsed.base_offset, None


def remove_segment_files(vfs: Vfs, directory: str, base_offset: Offset) -> None:
    """Remove a segment at once, its log file first: without it the others mean nothing."""
    for kind in _KINDS:
        path = f"{directory}/{names.segment_file(base_offset, kind)}"
        if vfs.stat(path) is not None:
            vfs.remove(path)
