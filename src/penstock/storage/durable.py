"""The part of a log that knows what is on disk for certain, and brings the rest there.

Flushing takes three steps, because syncing may run on another thread: `prepare_flush`, `FlushWork.run`,
`finish_flush`; so does a checkpoint. What a failed write or sync left behind is put right before anything is
written on top of it (`_mend`).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from penstock.base.ids import Offset, TopicPartition
from penstock.storage import names
from penstock.storage.aborted import FileSum
from penstock.storage.checkpoints import Extent, Hole, RecoveryPoint
from penstock.storage.deletion import remove_segment_files
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import CorruptLog, StorageError
from penstock.storage.openfiles import FileRef, OpenFiles
from penstock.storage.producers import Producers
from penstock.storage.reading import LogReader
from penstock.storage.scan import scan_batches
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.storage.snapshots import remove_snapshots, remove_snapshots_above, write_snapshot
from penstock.storage.syncing import CheckpointWork, FlushWork
from penstock.vfs import Draft


class Points(Protocol):
    """Where a log notes what must be on disk before it goes on."""

    def save_recovery_point(self, partition: TopicPartition, point: RecoveryPoint) -> None: ...

    def save_log_start(self, partition: TopicPartition, offset: Offset) -> None: ...

    def leave_out(self, partition: TopicPartition, segments: Collection[Offset]) -> None:
        """Have the checkpoint not know of segments that are about to be replaced, by their base offsets."""


class DurableLog(LogReader):
    """What `Log` inherits, with what it reads; it appends nothing."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        files: OpenFiles,
        segments: SegmentList,
        *,
        log_start: Offset,
        producers: Producers,
        epochs: LeaderEpochs,
        recovery_point: RecoveryPoint,
        is_clean: bool,
        epochs_saved: Sequence[EpochStart] | None,
        unsynced: Iterable[FileRef],
        snapshots: Iterable[Offset],
    ) -> None:
        super().__init__(partition, directory, files.vfs, segments, log_start)
        self.files = files
        self.producers = producers
        self.epochs = epochs
        self.recovery_point = recovery_point
        self.flushed: Offset = recovery_point.offset
        """Everything below is on disk."""
        self._dirty: list[Segment] = [
            segment
            for segment in segments
            if segment.flushed_bytes < segment.size or segment is segments.active
        ]
        """Segments with bytes that are not flushed, oldest first; the active one is always among them."""
        # After a crash nothing is known of the names, nor of what recovery found out about epochs.
        self._names_changed = 0 if is_clean else 1
        self._names_synced = 0
        """Segment files made, and how many of their names are durable."""
        self._unsynced: list[FileRef] = list(unsynced)
        """Indexes of sealed segments and snapshots that the next checkpoint must sync."""
        self._topic_id_ref = next(
            (ref for ref in self._unsynced if ref.path.endswith(names.PARTITION_METADATA)), None
        )
        """The file that says of which topic the log is, until the first flush: a log that has lost it has lost what
        was never flushed, and may go (`Replicas`)."""
        self._has_new_files = False
        """There are files, beside segments, whose names the next checkpoint must make durable."""
        self._epochs_saved: Sequence[EpochStart] | None = epochs_saved if is_clean else None
        """The epochs that are in their file for certain; None where that is not known."""
        self._has_torn_tail = False
        """Behind the active segment's end there are bytes on disk, of a failed write or cut off, that must go."""
        self._doomed: list[Offset] = []
        """Segments that were cut off and whose files must go with them, by base offset."""
        self._checkpointing: CheckpointWork | None = None
        """The checkpoint under way. What it syncs is not in `_unsynced`."""
        self._is_suspect = False
        """A sync failed: what is not flushed must be written again before it can be synced."""
        self._snapshots: set[Offset] = {recovery_point.offset, *snapshots}
        """Where checkpoints left a snapshot: an older one counts until the newer point is saved."""
        self.generation = 0
        """Counts truncations: a flush that began before one proves nothing after it."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a write or a sync failed, and nothing has been written since: the disk may be out of order."""
        return self._has_torn_tail or self._is_suspect

    @property
    def txn_sums(self) -> dict[Offset, FileSum]:
        """By segment: what the transaction indexes are known to be, of those that have entries."""
        known = ((segment.base_offset, segment.txn_index.sum) for segment in self.segments)
        return {base_offset: each for base_offset, each in known if each is not None}

    def extents(self, point: RecoveryPoint, without: Collection[Offset] = ()) -> list[Extent]:
        """The sealed segments below a recovery point, for the checkpoint: one that is missing later was lost."""
        sealed = self.segments[: self.segments.index_of(point.segment)]
        return [Extent(each.base_offset, each.size) for each in sealed if each.base_offset not in without]

    @property
    def holes(self) -> list[Hole]:
        """What is missing between segments, above the log start."""
        return [each.hole for each in self.segments if each.hole and each.hole.end > self.log_start]

    def save_doubts(self) -> None:
        """Make it durable which transactions are in doubt. A snapshot of the same offset may not know of them."""
        self._unsynced += write_snapshot(self.vfs, self.directory, self.producers)
        self._has_new_files = True
        self._snapshots.add(self.producers.end_offset)
        self.checkpoint()

    @property
    def is_flushed(self) -> bool:
        return (
            self.flushed >= self.log_end
            and self._names_synced == self._names_changed
            and not self._is_suspect
        )

    def prepare_flush(self) -> FlushWork | None:
        """What must be synced for everything written so far to be durable; None if it is already."""
        if self.is_flushed:
            return None
        self._mend()
        return FlushWork(
            self.log_end,
            self.generation,
            tuple((segment, segment.size) for segment in self._dirty if segment.size > segment.flushed_bytes),
            self._names_changed,
            self.directory if self._names_synced != self._names_changed else None,
            self.vfs,
            self._topic_id_ref,
        )

    def finish_flush(self, work: FlushWork, error: OSError | None = None) -> bool:
        """Count a flush as done, or raise `StorageError`: then nothing of it is durable.

        False if it proves nothing, because the log was cut, or another flush failed, since it was prepared.
        What is durable is below `flushed`, always.
        """
        if error is not None:
            self._is_suspect = True
            raise StorageError(
                f"cannot sync {self.directory}: {error.strerror or error}; "
                f"offsets {self.flushed} to {work.log_end} are not on disk"
            ) from error
        if work.generation != self.generation or self._is_suspect:
            return False
        for segment, size in work.segments:
            # Another flush of the same segment may have begun later and ended sooner.
            segment.flushed_bytes = max(segment.flushed_bytes, size)
        self.flushed = max(self.flushed, work.log_end)
        active = self.segments.active
        self._dirty = [each for each in self._dirty if each.flushed_bytes < each.size or each is active]
        self._names_synced = max(self._names_synced, work.names_changed)
        self._topic_id_ref = None
        return True

    def flush(self) -> None:
        """Make everything written durable, here and now."""
        work = self.prepare_flush()
        if work is None:
            return
        try:
            work.run()
        except OSError as error:
            self.finish_flush(work, error)
        self.finish_flush(work)

    def checkpoint(self, *, is_last: bool = False) -> RecoveryPoint:
        """Make log, indexes, epochs and producer state durable, here and now: recovery will start from here.

        The caller saves the point that this returns. With `is_last`, before a clean stop, the time index is
        finished as for a sealed segment: Kafka believes its last entry.
        """
        if self.is_checkpointed(is_last=is_last):
            return self.recovery_point
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
        return self.recovery_point

    def is_checkpointed(self, *, is_last: bool = False) -> bool:
        """Whether a checkpoint would find nothing to write, sync or note."""
        active = self.segments.active
        return (
            not self._unsynced
            and not self._has_new_files
            and self._checkpointing is None
            and self.recovery_point == RecoveryPoint(self.log_end, active.base_offset, active.size)
            and self.is_flushed
            and self._has_saved_epochs
            and (not is_last or active.is_time_index_finished)
            and all(segment.has_saved_indexes for segment in self.segments)
        )

    @property
    def epochs_saved(self) -> Sequence[EpochStart]:
        """As the checkpoint file has them; none where that is not known."""
        return self._epochs_saved or ()

    @property
    def _has_saved_epochs(self) -> bool:
        """Whether the file has all epochs that have records. A start forgets the others, as Kafka's does."""
        saved, end = self._epochs_saved, self.log_end
        if saved is None:
            return False
        entries = [entry for entry in self.epochs.entries if entry.offset < end]
        return entries == [entry for entry in saved if entry.offset < end]

    def prepare_checkpoint(self, *, is_last: bool = False) -> CheckpointWork:
        """Write what must be on disk for recovery to start at the log end; to be synced, on any thread.

        `CheckpointWork.run` syncs it, `install_checkpoint` gives names, `sync_names` makes them durable and
        `finish_checkpoint` makes it count. A checkpoint that is prepared while another is under way supersedes it.
        """
        flush = self.prepare_flush()
        active = self.segments.active
        if self._checkpointing is not None:
            self._take_back(self._checkpointing)
        epochs = None
        try:
            self._complete_txn_index()
            if is_last:
                active.finish_time_index()
            for segment in self.segments:
                self._has_new_files |= not segment.has_saved_indexes
                self._unsynced += segment.save_indexes()
                if segment is not active:
                    segment.release_indexes()
            if self.log_end != self.recovery_point.offset:
                self._has_new_files = True
                self._unsynced += write_snapshot(self.vfs, self.directory, self.producers)
                self._snapshots.add(self.log_end)
                self._forget_snapshots(keep={self.recovery_point.offset, self.log_end})
            if not self._has_saved_epochs:
                epochs = Draft(self.vfs, f"{self.directory}/{names.LEADER_EPOCHS}", self.epochs.encode())
        except OSError as error:
            # Which of the indexes were written before the error is not known.
            self._unsynced += [ref for segment in self.segments for ref in segment.index_refs]
            raise StorageError(f"cannot checkpoint {self.directory}: {error.strerror or error}") from error
        point = RecoveryPoint(self.log_end, active.base_offset, active.size)
        work = CheckpointWork(
            point,
            self.generation,
            flush,
            self.directory,
            self.files,
            self._unsynced,
            epochs,
            has_new_files=self._has_new_files,
        )
        self._unsynced, self._has_new_files = [], False
        if epochs is not None:
            self._epochs_saved = tuple(self.epochs.entries)
        self._checkpointing = work
        return work

    def install_checkpoint(self, work: CheckpointWork, error: OSError | None = None) -> bool:
        """Take note of what was synced; False if it counts for nothing, because something else came between.

        Raises `StorageError` if the disk failed: then the next checkpoint does it again.
        """
        is_current = work is self._checkpointing
        if not is_current or error is not None:
            self._take_back(work)
        if work.flush is not None and not (work.is_flushed and work.flush.directory):
            # Else it is durable when the names are: see `finish_checkpoint`.
            is_current &= self.finish_flush(work.flush, None if work.is_flushed else error)
        if error is not None:
            if work.is_flushed and len(work.synced) < len(work.refs):
                # A snapshot has a CRC: what becomes of one is noticed, and an older one serves.
                failed = work.refs[len(work.synced)]
                for segment in self.segments:
                    if failed in segment.refs.values():
                        segment.doubt_indexes()
            raise self._checkpoint_failed(error)
        if not is_current or work.generation != self.generation:
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
        """Make a checkpoint count: recovery may start from its point, which the caller saves.

        False if it counts for nothing, and an error, as for `install_checkpoint`.
        """
        is_current = work is self._checkpointing and work.generation == self.generation
        if error is not None or not is_current:
            self._take_back(work)
            if error is not None:
                raise self._checkpoint_failed(error) from error
            return False
        if work.flush is not None and work.flush.directory and not self.finish_flush(work.flush):
            self._take_back(work)
            return False
        self._checkpointing = None
        self.recovery_point = work.point
        return True

    def _checkpoint_failed(self, error: OSError) -> StorageError:
        return StorageError(f"cannot checkpoint {self.directory}: {error.strerror or error}")

    def _take_back(self, work: CheckpointWork) -> None:
        """Nothing of it is known to be durable: what it was to sync is for the next checkpoint."""
        if work is self._checkpointing:
            self._checkpointing = None
            self._unsynced += work.refs
            self._has_new_files |= work.has_new_files
            if work.epochs is not None:
                self._epochs_saved = None

    def _forget_snapshots(self, keep: set[Offset]) -> None:
        """Remove checkpoints' snapshots, unless a segment begins there: those stay, as Kafka keeps them."""
        bases = {segment.base_offset for segment in self.segments}
        remove_snapshots(self.vfs, self.directory, sorted(self._snapshots - keep - bases))
        self._snapshots &= keep

    def _complete_txn_index(self) -> None:
        """Kafka makes no transaction index until something is aborted, and then goes by what is in the file:
        where the active segment came without one, an abort here must reach it, and all before it."""
        active = self.segments.active
        if active.txn_index.is_partial:
            self._rebuild_txn_indexes(self.segments, active.base_offset)

    def _mend(self) -> None:
        """Put right what an earlier failure left behind, before anything is written on top of it."""
        if not (self._has_torn_tail or self._is_suspect):
            return
        if self._has_torn_tail:
            self._cut_tail()
        if self._is_suspect:
            try:
                for segment in self._dirty:
                    self._write_again(segment)
            except OSError as error:
                raise StorageError(
                    f"cannot write {self.directory} again: {error.strerror or error}"
                ) from error
            self.generation += 1
            self._is_suspect = False

    def _cut_tail(self) -> None:
        """Take from the disk what is no longer, or never was, in the log: behind the end of the active segment.

        Synced before anything is appended: or a power cut might bring old bytes back between new ones.
        """
        active = self.segments.active
        try:
            # Last to first, so that whatever a crash leaves is the log without its end, never with a hole.
            for base_offset in reversed(self._doomed):
                remove_segment_files(self.vfs, self.directory, base_offset)
            remove_snapshots_above(self.vfs, self.directory, self.log_end)
            self._doomed = []
            file = self.files.open(active.ref, create=True)
            self.vfs.sync_dir(self.directory)
            file.truncate(active.size)
            file.sync()
        except OSError as error:
            # A failed sync leaves in doubt what the segment has that was not flushed.
            self._is_suspect = True
            self.files.sync_failed()
            raise StorageError(
                f"cannot cut off what is behind offset {self.log_end} in {self.directory}: "
                f"{error.strerror or error}"
            ) from error
        self._has_torn_tail = False

    def _write_again(self, segment: Segment) -> None:
        """Write what is not flushed once more: after a failed sync the kernel may think it clean.

        It is read back from the kernel's cache, so every CRC is checked on the way: should the pages have
        been dropped, the error says so, and a restart cuts them off.
        """
        file = segment.file()
        for position, batch in scan_batches(file, segment.flushed_bytes, segment.size):
            if not batch.crc_valid():
                raise CorruptLog(file.path, position, "lost by the disk after a failed sync")
            file.pwrite([batch.view], position)
