"""Flushes and checkpoints as work for any thread: prepared and finished by `LogFlusher`.

Nothing here changes the log. Its writer continues meanwhile, and `LogFlusher` checks at the end whether the result is
still valid.
"""

from contextlib import suppress
from typing import NamedTuple

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.segment import Segment
from penstock.vfs import Draft, Vfs


class FlushWork(NamedTuple):
    """Files to sync, on any thread; then call `LogFlusher.finish_flush`."""

    log_end: Offset
    generation: int
    segments: tuple[tuple[Segment, int], ...]
    names_changed: int
    directory: str | None
    """Set if new directory entries must be synced too."""
    vfs: Vfs
    topic_id: FileRef | None = None
    """`partition.metadata`, until it is durable: it must be before any record."""

    def run(self) -> None:
        self.sync_files()
        if self.directory is not None:
            self.vfs.sync_dir(self.directory)

    def lone_segment(self) -> Segment | None:
        """The segment if its file is all there is to sync; otherwise None."""
        if self.directory is not None or self.topic_id is not None or len(self.segments) != 1:
            return None
        return self.segments[0][0]

    def sync_files(self) -> None:
        if self.topic_id is not None:
            with suppress(FileNotFoundError):  # the log has none
                file = self.vfs.open(self.topic_id.path, write=True)
                try:
                    file.sync()
                finally:
                    file.close()
        for segment, _ in self.segments:
            try:
                segment.sync()
            except FileNotFoundError:
                if not segment.gone:  # otherwise it was truncated meanwhile, and the flush is void
                    raise


class CheckpointWork:
    """Files of a checkpoint to sync, on any thread; see `LogFlusher.prepare_checkpoint`."""

    def __init__(
        self,
        point: RecoveryPoint,
        generation: int,
        flush: FlushWork | None,
        directory: str,
        files: OpenFiles,
        refs: list[FileRef],
        epochs: Draft | None,
        *,
        has_new_files: bool,
    ) -> None:
        self.point = point
        self.generation = generation
        self.flush = flush
        self.is_flushed = flush is None
        self.refs = list(dict.fromkeys(refs))
        """Indexes, snapshots and `partition.metadata`."""
        self.synced: list[FileRef] = []
        """Those of them that are synced, in the same order."""
        self.epochs = epochs
        self.has_new_files = has_new_files
        """New files other than segments and epochs."""
        self._directory = directory
        self._files = files

    def run(self) -> None:
        if self.flush is not None:
            self.flush.sync_files()  # directory entries are synced once, in `sync_names`
            self.is_flushed = True
        for ref in self.refs:
            with suppress(FileNotFoundError):  # it left with its segment
                self._files.open(ref).sync()
            if ref.path.endswith((names.SNAPSHOT, names.SEQUENCES, names.PARTITION_METADATA)):
                self._files.forget(ref)
            self.synced.append(ref)
        if self.epochs is not None:
            self.epochs.sync()

    @property
    def has_new_names(self) -> bool:
        has_new_segments = self.flush is not None and self.flush.directory is not None
        return has_new_segments or self.has_new_files or self.epochs is not None

    def sync_names(self) -> None:
        if self.has_new_names:
            self._files.vfs.sync_dir(self._directory)
