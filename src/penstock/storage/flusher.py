"""Flushes and checkpoints a log, and repairs what a failed write or sync left on disk.

A flush takes three steps, because syncing may run on another thread: `prepare_flush`, `FlushWork.run`, `finish_flush`.
A checkpoint takes five: `prepare_checkpoint`, `CheckpointWork.run`, `install_checkpoint`, `CheckpointWork.sync_names`,
`finish_checkpoint`. What a failed write or sync left behind is repaired before anything is written after it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.deletion import remove_segment_files
from penstock.storage.epochs import EpochStart
from penstock.storage.errors import CorruptLog, StorageError
from penstock.storage.open_files import FileRef
from penstock.storage.scan import scan_batches
from penstock.storage.segment import Segment
from penstock.storage.snapshots import remove_snapshots, remove_snapshots_above, write_snapshot
from penstock.storage.syncing import CheckpointWork, FlushWork
from penstock.vfs import Draft

if TYPE_CHECKING:
    from penstock.storage.log import Log


class LogFlusher:
    """Tracks which files of a log are not durable yet, and makes them so."""

    __slots__ = (
        "_checkpointing",
        "_dirty",
        "_doomed",
        "_epochs_saved",
        "_has_new_files",
        "_has_torn_tail",
        "_is_suspect",
        "_log",
        "_names_changed",
        "_names_synced",
        "_snapshots",
        "_topic_id_ref",
        "_unsynced",
    )

    def __init__(
        self,
        log: "Log",
        *,
        is_clean: bool,
        epochs_saved: Sequence[EpochStart] | None,
        unsynced: Iterable[FileRef],
        snapshots: Iterable[Offset],
    ) -> None:
        self._log = log
        self._dirty: list[Segment] = [
            segment
            for segment in log.segments
            if segment.flushed_bytes < segment.size or segment is log.segments.active
        ]
        """Segments with bytes that are not flushed, oldest first; always includes the active one."""
        # After a crash neither the durable file names nor the saved epochs are known.
        self._names_changed = 0 if is_clean else 1
        self._names_synced = 0
        """Segment files created, and how many of their names are durable."""
        self._unsynced: list[FileRef] = list(unsynced)
        """Indexes of sealed segments and snapshots that the next checkpoint must sync."""
        self._topic_id_ref = next(
            (ref for ref in self._unsynced if ref.path.endswith(names.PARTITION_METADATA)), None
        )
        """`partition.metadata`, until the first flush: a log without it was never flushed, and may be deleted
        (`Replicas`)."""
        self._has_new_files = False
        """The next checkpoint must make names durable of files that are not segments."""
        self._epochs_saved: Sequence[EpochStart] | None = epochs_saved if is_clean else None
        """The epochs that are durable in their file; None if unknown."""
        self._has_torn_tail = False
        """The files have bytes after the log end, of a failed write or a truncation, that must be removed."""
        self._doomed: list[Offset] = []
        """Truncated segments whose files must be removed, by base offset."""
        self._checkpointing: CheckpointWork | None = None
        """The checkpoint in progress. The files that it syncs are not in `_unsynced`."""
        self._is_suspect = False
        """A sync failed: unflushed bytes must be written again before they can be synced."""
        self._snapshots: set[Offset] = {log.recovery_point.offset, *snapshots}
        """Snapshots of checkpoints: an older one is needed until the newer recovery point is saved."""

    @property
    def has_failed_write(self) -> bool:
        """Whether a write or a sync failed and nothing was written since."""
        return self._has_torn_tail or self._is_suspect

    def save_doubts(self) -> None:
        """Make durable which transactions are in doubt, which an older snapshot of the same offset may lack."""
        log = self._log
        self._unsynced += write_snapshot(log.vfs, log.directory, log.producers)
        self._has_new_files = True
        self._snapshots.add(log.producers.end_offset)
        self.checkpoint()

    @property
    def is_flushed(self) -> bool:
        log = self._log
        return (
            log.flushed >= log.log_end and self._names_synced == self._names_changed and not self._is_suspect
        )

    def prepare_flush(self) -> FlushWork | None:
        """The syncs that make everything written so far durable; None if it already is."""
        log = self._log
        if self.is_flushed:
            return None
        self.repair()
        return FlushWork(
            log.log_end,
            log.generation,
            tuple((segment, segment.size) for segment in self._dirty if segment.size > segment.flushed_bytes),
            self._names_changed,
            log.directory if self._names_synced != self._names_changed else None,
            log.vfs,
            self._topic_id_ref,
        )

    def finish_flush(self, work: FlushWork, error: OSError | None = None) -> bool:
        """Advance `flushed` after a flush; raise `StorageError` if it failed.

        False, and nothing advances, if the log was truncated or another flush failed since this one was prepared.
        """
        log = self._log
        if error is not None:
            self._is_suspect = True
            raise StorageError(
                f"cannot sync {log.directory}: {error.strerror or error}; "
                f"offsets {log.flushed} to {work.log_end} are not on disk"
            ) from error
        if work.generation != log.generation or self._is_suspect:
            return False
        for segment, size in work.segments:
            # Another flush of the same segment may have begun later and ended sooner.
            segment.flushed_bytes = max(segment.flushed_bytes, size)
        log.flushed = max(log.flushed, work.log_end)
        active = log.segments.active
        self._dirty = [each for each in self._dirty if each.flushed_bytes < each.size or each is active]
        self._names_synced = max(self._names_synced, work.names_changed)
        self._topic_id_ref = None
        return True

    def flush(self) -> None:
        """Make everything written durable before returning."""
        work = self.prepare_flush()
        if work is None:
            return
        try:
            work.run()
        except OSError as error:
            self.finish_flush(work, error)
        self.finish_flush(work)

    def checkpoint(self, *, is_last: bool = False) -> RecoveryPoint:
        """Make log, indexes, epochs and producer state durable before returning, and return the recovery point.

        The caller saves that point. With `is_last`, before a clean stop, the time index is completed as for a sealed
        segment: Kafka relies on its last entry.
        """
        log = self._log
        if self.is_checkpointed(is_last=is_last):
            return log.recovery_point
        work = self.prepare_checkpoint(is_last=is_last)
        error = None
        try:
            work.run()
        except OSError as failure:
            error = failure
        self.install_checkpoint(work, error)
        try:
            work.sync_names()
        except OSError as failure:
            error = failure
        self.finish_checkpoint(work, error)
        return log.recovery_point

    def is_checkpointed(self, *, is_last: bool = False) -> bool:
        """Whether a checkpoint would have nothing to write or sync."""
        log = self._log
        active = log.segments.active
        return (
            log.staged_end == log.log_end
            and not self._unsynced
            and not self._has_new_files
            and self._checkpointing is None
            and log.recovery_point == RecoveryPoint(log.log_end, active.base_offset, active.size)
            and self.is_flushed
            and self._has_saved_epochs
            and (not is_last or active.is_time_index_finished)
            and all(segment.has_saved_indexes for segment in log.segments)
        )

    @property
    def epochs_saved(self) -> Sequence[EpochStart]:
        """The epochs in the checkpoint file; empty if unknown."""
        return self._epochs_saved or ()

    @property
    def _has_saved_epochs(self) -> bool:
        """Whether the file has all epochs that have records. A restart drops the others, as in Kafka."""
        log = self._log
        saved, end = self._epochs_saved, log.log_end
        if saved is None:
            return False
        entries = [entry for entry in log.epochs.entries if entry.offset < end]
        return entries == [entry for entry in saved if entry.offset < end]

    def prepare_checkpoint(self, *, is_last: bool = False) -> CheckpointWork:
        """Write everything that recovery needs to start at the log end; `CheckpointWork.run` then syncs it, on any
        thread.

        `install_checkpoint` renames files into place, `sync_names` makes the names durable, and `finish_checkpoint`
        advances the recovery point. A checkpoint prepared while another is in progress supersedes it.
        """
        log = self._log
        log.write_staged()
        flush = self.prepare_flush()
        active = log.segments.active
        if self._checkpointing is not None:
            self._take_back(self._checkpointing)
        epochs = None
        try:
            self._complete_txn_index()
            if is_last:
                active.finish_time_index()
            for segment in log.segments:
                self._has_new_files |= not segment.has_saved_indexes
                self._unsynced += segment.save_indexes()
                if segment is not active:
                    segment.release_indexes()
            if log.log_end != log.recovery_point.offset:
                self._has_new_files = True
                self._unsynced += write_snapshot(log.vfs, log.directory, log.producers)
                self._snapshots.add(log.log_end)
                self._forget_snapshots(keep={log.recovery_point.offset, log.log_end})
            if not self._has_saved_epochs:
                epochs = Draft(log.vfs, f"{log.directory}/{names.LEADER_EPOCHS}", log.epochs.encode())
        except OSError as error:
            # Which of the indexes were written before the error is not known.
            self._unsynced += [ref for segment in log.segments for ref in segment.index_refs]
            raise StorageError(f"cannot checkpoint {log.directory}: {error.strerror or error}") from error
        point = RecoveryPoint(log.log_end, active.base_offset, active.size)
        work = CheckpointWork(
            point,
            log.generation,
            flush,
            log.directory,
            log.files,
            self._unsynced,
            epochs,
            has_new_files=self._has_new_files,
        )
        self._unsynced, self._has_new_files = [], False
        if epochs is not None:
            self._epochs_saved = tuple(log.epochs.entries)
        self._checkpointing = work
        return work

    def install_checkpoint(self, work: CheckpointWork, error: OSError | None = None) -> bool:
        """Record what was synced; False if the checkpoint was superseded or the log truncated.

        Raises `StorageError` if the disk failed: the next checkpoint tries again.
        """
        log = self._log
        is_current = work is self._checkpointing
        if not is_current or error is not None:
            self._take_back(work)
        if work.flush is not None and not (work.is_flushed and work.flush.directory):
            # Otherwise it becomes durable with the names, in `finish_checkpoint`.
            is_current &= self.finish_flush(work.flush, None if work.is_flushed else error)
        if error is not None:
            if work.is_flushed and len(work.synced) < len(work.refs):
                # Snapshots have a CRC: a damaged one is detected and an older one is used.
                failed = work.refs[len(work.synced)]
                for segment in log.segments:
                    if failed in segment.refs.values():
                        segment.doubt_indexes()
            raise self._checkpoint_failed(error)
        if not is_current or work.generation != log.generation:
            self._take_back(work)
            return False
        if work.epochs is not None:
            try:
                work.epochs.install()
            except OSError as failure:
                self._take_back(work)
                raise self._checkpoint_failed(failure) from failure
        return True

    def finish_checkpoint(self, work: CheckpointWork, error: OSError | None = None) -> bool:
        """Advance the recovery point, which the caller saves. Returns and raises as `install_checkpoint` does."""
        log = self._log
        is_current = work is self._checkpointing and work.generation == log.generation
        if error is not None or not is_current:
            self._take_back(work)
            if error is not None:
                raise self._checkpoint_failed(error) from error
            return False
        if work.flush is not None and work.flush.directory and not self.finish_flush(work.flush):
            self._take_back(work)
            return False
        self._checkpointing = None
        log.recovery_point = work.point
        return True

    def abandon_checkpoint(self) -> None:
        """Segments are about to be replaced, and a checkpoint in progress may have its recovery point in one."""
        if self._checkpointing is not None:
            self._take_back(self._checkpointing)

    def _checkpoint_failed(self, error: OSError) -> StorageError:
        return StorageError(f"cannot checkpoint {self._log.directory}: {error.strerror or error}")

    def _take_back(self, work: CheckpointWork) -> None:
        """Abandon a checkpoint: the next one syncs its files."""
        if work is self._checkpointing:
            self._checkpointing = None
            self._unsynced += work.refs
            self._has_new_files |= work.has_new_files
            if work.epochs is not None:
                self._epochs_saved = None

    def _forget_snapshots(self, keep: set[Offset]) -> None:
        """Remove the snapshots of older checkpoints. Those at the start of a segment stay, as in Kafka."""
        log = self._log
        bases = {segment.base_offset for segment in log.segments}
        remove_snapshots(log.vfs, log.directory, sorted(self._snapshots - keep - bases))
        self._snapshots &= keep

    def _complete_txn_index(self) -> None:
        """Complete the active segment's transaction index if its file was missing.

        Kafka creates the file with the first abort and then relies on its contents.
        """
        log = self._log
        active = log.segments.active
        if active.txn_index.is_partial:
            log.reader.rebuild_txn_indexes(log.segments, active.base_offset)

    def roll(self, sealed: Segment, fresh: Segment) -> None:
        """Write the indexes of a sealed segment and a snapshot, and create the next segment's files."""
        log = self._log
        self._complete_txn_index()
        self._unsynced += sealed.seal()
        self._unsynced += write_snapshot(log.vfs, log.directory, log.producers)
        # Last, and nothing after it fails: an empty segment in the middle of the log would end it there.
        fresh.create()
        self._dirty.append(fresh)
        self._names_changed += 1

    def detach(self, segments: Sequence[Segment]) -> None:
        """Forget the files of segments that leave the log."""
        leaving = set(segments)
        self._dirty = [segment for segment in self._dirty if segment not in leaving]
        lost = {index.ref for each in segments for index in (each.index, each.time_index, each.txn_index)}
        self._unsynced = [ref for ref in self._unsynced if ref not in lost]

    def truncated(self, dropped: Sequence[Segment], active: Segment, end: Offset) -> None:
        """Note that the log now ends in a new active segment; `cut_tail` then removes the rest from the disk."""
        self._has_torn_tail, self._is_suspect = True, False
        doomed = self._doomed + [each.base_offset for each in dropped]
        self._doomed = [each for each in doomed if each != active.base_offset]
        self._dirty.append(active)
        # The new active segment's indexes may have been written, but not synced yet, under its old name.
        self._unsynced = [ref for ref in self._unsynced if not _is_snapshot_above(ref, end)]
        self._unsynced += [active.index.ref, active.time_index.ref]
        self._snapshots = {each for each in self._snapshots if each <= end}

    def write_failed(self) -> None:
        """A failed write may have left bytes after the log end."""
        self._has_torn_tail = True

    def repair(self) -> None:
        """Repair what an earlier failure left on disk, before anything is written after it."""
        if not (self._has_torn_tail or self._is_suspect):
            return
        log = self._log
        if self._has_torn_tail:
            self.cut_tail()
        if self._is_suspect:
            try:
                for segment in self._dirty:
                    self._write_again(segment)
            except OSError as error:
                raise StorageError(
                    f"cannot write {log.directory} again: {error.strerror or error}"
                ) from error
            log.generation += 1
            self._is_suspect = False

    def cut_tail(self) -> None:
        """Remove everything on disk after the end of the active segment.

        Synced before anything is appended: otherwise a power cut might bring old bytes back between new ones.
        """
        log = self._log
        active = log.segments.active
        try:
            # Last to first: a crash in between leaves a shorter log, never one with a hole.
            for base_offset in reversed(self._doomed):
                remove_segment_files(log.vfs, log.directory, base_offset)
            remove_snapshots_above(log.vfs, log.directory, log.log_end)
            self._doomed = []
            file = log.files.open(active.ref, create=True)
            log.vfs.sync_dir(log.directory)
            file.truncate(active.size)
            file.sync()
        except OSError as error:
            # After a failed sync the unflushed bytes of the segment may be lost.
            self._is_suspect = True
            log.files.sync_failed()
            raise StorageError(
                f"cannot truncate {log.directory} at offset {log.log_end}: {error.strerror or error}"
            ) from error
        self._has_torn_tail = False

    def _write_again(self, segment: Segment) -> None:
        """Write unflushed batches again: after a failed sync the kernel may take their pages for clean.

        The bytes come from the page cache, so each CRC is checked: if the pages were dropped, this fails, and
        recovery after a restart truncates them.
        """
        file = segment.file()
        for position, batch in scan_batches(file, segment.flushed_bytes, segment.size):
            if not batch.crc_valid():
                raise CorruptLog(file.path, position, "lost by the disk after a failed sync")
            file.pwrite([batch.view], position)


def _is_snapshot_above(ref: FileRef, offset: Offset) -> bool:
    parsed = names.parse_segment_file(ref.path.rpartition("/")[2])
    return (
        parsed is not None
        and parsed.kind in (names.SNAPSHOT, names.SEQUENCES)
        and parsed.base_offset > offset
    )
