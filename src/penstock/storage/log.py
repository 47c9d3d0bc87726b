"""One partition's log: a single writer, any number of readers.

    log_start            recovery_point     flushed           log_end    staged
    |--- segments ---|---- segments ----|----- active segment -----|........|
      gone below       certainly on disk   synced, not yet            accepted,
                       after a restart     checkpointed               not yet written

Appending takes two steps, so that all that arrives in one turn of the loop costs one write: `stage` checks a
batch and gives it its offset, `write_staged` writes everything staged. How it gets to the disk for certain is
told in `durable`, how it is read in `reading`.

What always holds: log_start <= log_end; recovery_point <= flushed <= log_end; the indexes, producer state
and epochs in memory are those of the batches written; a failed write leaves no trace.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId, TimestampMs, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import (
    LOG_OVERHEAD,
    PACK_PLACE,
    Codec,
    MayLook,
    RecordBatch,
    TooMuchToLookAt,
    iter_batches,
    stamp,
    validate_header,
    validate_produced,
)
from penstock.storage import names
from penstock.storage.aborted import AbortedTxn
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.durable import DurableLog, Points
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import CorruptLog, OffsetOutOfRange, StorageError
from penstock.storage.inspection import Inspected, Inspection, NeedsInspection
from penstock.storage.openfiles import FileRef, OpenFiles
from penstock.storage.producers import NumberedBatch, Producer, Producers
from penstock.storage.rules import CODECS, Origin, recompressed, rules_for
from penstock.storage.scan import BATCH_BYTES_MAX, RELATIVE_OFFSET_MAX
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.storage.snapshots import remove_snapshots_above, write_snapshot
from penstock.storage.syncing import CheckpointWork

PRODUCER_IDLE_MS_MAX = 24 * 60 * 60 * 1000
"""Kafka's `producer.id.expiration.ms`."""

LEADER_EPOCH_MAX: LeaderEpoch = 2**31 - 1
"""What fits into a batch's header."""


_new = tuple.__new__
_CLIENT = Origin.CLIENT


class Appended(NamedTuple):
    """Where a batch went; for a retry, where its first copy is."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs = NO_TIMESTAMP
    """When the topic's timestamps are the broker's: what it gave."""
    is_duplicate: bool = False


class Log(DurableLog):
    """Made by `recovery.open_log` or `recovery.create_log`."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        files: OpenFiles,
        settings: LogSettings,
        points: Points,
        segments: SegmentList,
        *,
        log_start: Offset,
        producers: Producers,
        epochs: LeaderEpochs,
        recovery_point: RecoveryPoint,
        topic_id: bytes | None = None,
        is_clean: bool = True,
        epochs_saved: Sequence[EpochStart] | None = None,
        unsynced: Iterable[FileRef] = (),
        snapshots: Iterable[Offset] = (),
    ) -> None:
        super().__init__(
            partition,
            directory,
            files,
            segments,
            log_start=log_start,
            producers=producers,
            epochs=epochs,
            recovery_point=recovery_point,
            is_clean=is_clean,
            epochs_saved=epochs_saved,
            unsynced=unsynced,
            snapshots=snapshots,
        )
        self.points = points
        self.topic_id = topic_id
        self.clean_to: Offset = log_start
        """Compaction has come this far: below, each key is there once."""
        self.tombstones_until: TimestampMs | None = None
        """When the next kept tombstone or marker may go; known since the last round of compaction."""
        self.configure(settings)
        self._staged: list[tuple[memoryview, Offset, TimestampMs]] = []
        """Batches that have their offset and are not written: bytes, last offset, largest timestamp."""
        self._staged_epochs: list[tuple[LeaderEpoch, Offset]] = []
        """Leader epochs that they begin."""
        self._staged_bytes = 0
        self._staged_aborts: list[AbortedTxn] = []
        """Transactions that staged markers abort."""
        self._before_staged: list[tuple[ProducerId, Producer | None]] = []
        self.unstaged: list[NumberedBatch] = []
        """The first batch of each idempotent producer that was staged when staged batches were last dropped."""
        """What to put back, last first, should the write fail."""
        self._staged_end = self.log_end
        self.written_bytes = self.written_records = 0
        """Since the log was opened; in offsets, as Kafka counts records."""

    def __repr__(self) -> str:
        return f"<Log {self.partition} {self.log_start}..{self.log_end}>"

    def configure(self, settings: LogSettings) -> None:
        """Take over changed settings; they hold from the next append on."""
        self.settings = settings
        self.segments.active.room_bytes = 0
        self._log_append_time = settings.message_timestamp_type == "LogAppendTime"
        self._rules = {origin: rules_for(settings, origin) for origin in Origin}
        self._client_rules = self._rules[Origin.CLIENT]
        self._codec: Codec | None = CODECS.get(settings.compression_type)
        """What clients' batches are stored in; None for whatever they came in."""
        rules = self._client_rules
        is_plain = not (
            rules.check_records or rules.compacted or rules.log_append_time or self._codec is not None
        )
        self.plain_bytes_max = rules.max_message_bytes if is_plain else 0
        """Up to this size a client's batch is taken as it comes, once its header and CRC are found good; 0 where the
        topic's settings want more than that."""
        self.segments.active.interval_bytes = settings.index_interval_bytes

    @property
    def staged_end(self) -> Offset:
        """The offset that the next batch gets."""
        return self._staged_end

    @property
    def last_stable(self) -> Offset:
        """First offset of the oldest open transaction, or the log end.

        A transaction is open until its marker is written: one that is only staged has decided nothing for readers, and
        the transaction index does not know of it.
        """
        undecided = self.producers.first_undecided
        stable = self.log_end if undecided is None else undecided
        for _, before in self._before_staged:
            if before is not None and before.txn_first_offset is not None:
                stable = min(stable, before.txn_first_offset)
        return stable

    # -- appending -------------------------------------------------------------------------------------

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
    ) -> Appended:
        """Check a batch, give it the next offset and write it."""
        appended = self.stage(data, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)
        self.write_staged()
        return appended

    def stage(  # noqa: PLR0912  # the steps of an append, in Kafka's order
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
        may_look: MayLook | None = None,
        inspected: Inspected | None = None,
    ) -> Appended:
        """Check a batch as a leader does and give it the next offset, in place; it is written later.

        `data` must hold exactly one batch and stay untouched until it is written. Raises `KafkaError` with
        the code for the client when the batch is not good, and then leaves everything as it was; but
        `StorageError` means that the disk failed: of what was staged before, that is in the log which lies below
        `log_end`, and nothing else.

        With `may_look`, raises `NeedsInspection` where the event loop would be held for too long; `inspected` is then
        what came of the inspection. Without it the records are looked at here, however long that takes.
        """
        batch = RecordBatch.parse(data)
        if batch.size != len(data):
            raise KafkaError(
                f"the batch has {batch.size} bytes, the request {len(data)}: expected one batch",
                ErrorCode.INVALID_RECORD,
            )
        is_client = origin is _CLIENT
        if inspected is not None and not inspected.holds_for(self.settings):
            inspected = None
        try:
            if inspected is not None:
                validate_header(batch, self._client_rules, now_ms)
            elif is_client:
                validate_produced(batch, self._client_rules, now_ms, may_look)
            else:
                validate_produced(batch, self._rules[origin], now_ms)
        except TooMuchToLookAt:
            raise NeedsInspection(Inspection(bytes(data), self.settings, now_ms)) from None
        if batch.producer_id >= 0:
            if batch.is_control:
                self.producers.check_marker(batch)
            elif is_client:
                kept = self.producers.check(batch)
                if kept is not None:
                    append_time = kept.timestamp if self._log_append_time else NO_TIMESTAMP
                    return Appended(kept.first_offset, kept.last_offset, append_time, is_duplicate=True)
        append_time = NO_TIMESTAMP
        if self._log_append_time and not batch.is_control:
            append_time = now_ms
        if self._codec is not None and is_client and batch.codec is not self._codec:
            batch = self._in_codec(batch, self._codec, now_ms, may_look, inspected)
        elif batch.view.readonly:
            batch = RecordBatch.parse(bytearray(data))
        if append_time != NO_TIMESTAMP:
            stamp(batch.view, append_time)
            batch = RecordBatch.parse(batch.view)
        base_offset = self._staged_end
        batch.place(base_offset, leader_epoch)
        self._accept(batch, now_ms)
        return _new(Appended, (base_offset, base_offset + batch.last_offset_delta, append_time, False))

    def _in_codec(
        self,
        batch: RecordBatch,
        codec: Codec,
        now_ms: TimestampMs,
        may_look: MayLook | None,
        inspected: Inspected | None,
    ) -> RecordBatch:
        """The batch in the topic's codec."""
        if inspected is not None and inspected.data is not None:
            return RecordBatch.parse(inspected.data)
        try:
            return recompressed(batch, codec, self.settings, may_look)
        except TooMuchToLookAt:
            raise NeedsInspection(Inspection(bytes(batch.view), self.settings, now_ms)) from None

    def stage_plain(
        self,
        view: memoryview,
        length: int,
        last_offset_delta: int,
        max_timestamp: TimestampMs,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> Offset:
        """Stage a client's batch whose header was read, and checked as `validate_produced` does, by the caller.

        It has no producer id, no flags and at most `plain_bytes_max` bytes. Gives its offset; -1 where `stage` must
        look at it, because its time is out of bounds, or it may begin a segment or a leader epoch.
        """
        active = self.segments.active
        rules = self._client_rules
        base_offset = self._staged_end
        last_offset = base_offset + last_offset_delta
        staged_bytes = self._staged_bytes + length + LOG_OVERHEAD
        if (
            active.size + staged_bytes > active.room_bytes
            or max_timestamp > active.room_timestamp
            or last_offset > active.room_offset
            or leader_epoch > self.epochs.latest
            or not -rules.timestamp_after_max_ms <= now_ms - max_timestamp <= rules.timestamp_before_max_ms
        ):
            return -1
        PACK_PLACE(view, 0, base_offset, length, leader_epoch)
        self._staged.append((view, last_offset, max_timestamp))
        self._staged_bytes = staged_bytes
        self._staged_end = last_offset + 1
        return base_offset

    def stage_replicated(
        self,
        data: bytes | bytearray | memoryview,
        *,
        now_ms: TimestampMs,
        epoch_max: LeaderEpoch = LEADER_EPOCH_MAX,
    ) -> None:
        """Take batches as a leader sent them, offsets and epochs included: all, or none if one is not sound.

        A batch that is cut short at the end, as a fetch may cut it, is left for the next fetch. `epoch_max` is the
        leader's own epoch: it cannot have a batch of a later one.
        """
        batches = list(iter_batches(data))
        expected = self._staged_end
        for batch in batches:
            batch.check_crc()
            if batch.leader_epoch > epoch_max:
                raise KafkaError(
                    f"{self.partition}: a batch of leader epoch {batch.leader_epoch} at offset "
                    f"{batch.base_offset}, expected {epoch_max} at most",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            if batch.base_offset < expected or batch.last_offset_delta < 0 or batch.size > BATCH_BYTES_MAX:
                raise KafkaError(
                    f"{self.partition}: a batch of {batch.size} bytes at offset {batch.base_offset} to "
                    f"{batch.last_offset}, expected {expected} or more and at most {BATCH_BYTES_MAX} bytes",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            expected = batch.next_offset
        for batch in batches:
            self._accept(batch, now_ms)

    def append_replicated(
        self,
        data: bytes | bytearray | memoryview,
        *,
        now_ms: TimestampMs,
        epoch_max: LeaderEpoch = LEADER_EPOCH_MAX,
    ) -> None:
        """`stage_replicated`, and write them with one call."""
        self.stage_replicated(data, now_ms=now_ms, epoch_max=epoch_max)
        self.write_staged()

    def _accept(self, batch: RecordBatch, now_ms: TimestampMs) -> None:
        active = self.segments.active
        start = active.size + self._staged_bytes
        size = batch.size
        last_offset = batch.base_offset + batch.last_offset_delta
        if (
            start + size > active.room_bytes
            or batch.max_timestamp > active.room_timestamp
            or last_offset > active.room_offset
        ) and active.is_full(start, start + size, last_offset, batch.max_timestamp, now_ms, self.settings):
            self.write_staged()
            if last_offset - self.log_end > RELATIVE_OFFSET_MAX:
                self._skip_to(batch.base_offset, now_ms)
            else:
                self.roll(now_ms)
        if batch.producer_id >= 0:
            self._before_staged.append((batch.producer_id, self.producers.by_id.get(batch.producer_id)))
            aborted = self.producers.apply(batch)
            if aborted is not None:
                self._staged_aborts.append(aborted)
        if batch.leader_epoch > self.epochs.latest:
            self._staged_epochs.append((batch.leader_epoch, batch.base_offset))
        self._staged.append((batch.view, last_offset, batch.max_timestamp))
        self._staged_bytes += size
        self._staged_end = last_offset + 1

    def _skip_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Move the log end over a gap that no segment can span, in a copy of a compacted log.

        The recovery point goes along, because recovery takes a gap between segments past it for a lost end.
        """
        self.log_end = self._staged_end = self.producers.end_offset = offset
        self.segments.active.next_offset = offset
        self.roll(now_ms)
        self.points.save_recovery_point(self.partition, self.checkpoint())

    def write_staged(self) -> None:
        """Write everything staged with one call; after an error nothing of it is in the log."""
        staged = self._staged
        if not staged:
            return
        active = self.segments.active
        try:
            self._mend()
            active.file().pwrite([each[0] for each in staged], active.size)
        except OSError as error:
            self._unstage()
            self._has_torn_tail = True
            raise StorageError(
                f"cannot write {active.ref.path}: {error.strerror or error}; nothing was appended"
            ) from error
        except StorageError:
            self._unstage()
            raise
        position = active.size
        # Readers go by the size: it moves before the indexes, so that no entry ever points past it, and after
        # the end offset, so that none takes new bytes for visible ones.
        active.next_offset = self._staged_end
        active.size += self._staged_bytes
        active.note_all(position, staged)
        for epoch, offset in self._staged_epochs:
            self.epochs.assign(epoch, offset)
        for aborted in self._staged_aborts:
            active.txn_index.append(aborted)
        self.written_bytes += self._staged_bytes
        self.written_records += self._staged_end - self.log_end
        self.producers.end_offset = self.log_end = self._staged_end
        self._clear_staged()

    def drop_staged(self) -> None:
        """Take back what was staged and not written: its buffers are about to be used for something else."""
        self._unstage()

    def _unstage(self) -> None:
        staged_by = dict.fromkeys(producer_id for producer_id, _ in self._before_staged)
        self.unstaged = self.producers.first_from(self.log_end, staged_by)
        for producer_id, before in reversed(self._before_staged):
            self.producers.undo(producer_id, before)
        self._staged_end = self.producers.end_offset = self.log_end
        self._clear_staged()

    def _clear_staged(self) -> None:
        self._staged = []
        self._staged_epochs = []
        self._staged_bytes = 0
        self._staged_aborts = []
        self._before_staged = []

    def limit_epochs(self, epoch: LeaderEpoch) -> None:
        """Nobody has led in a later epoch than this, and others have the log too: a batch of a later one is damaged.
        No CRC covers the epoch, and nobody else would take such a batch."""
        self.epoch_max = epoch
        late = next((each for each in self.epochs.entries if each.epoch > epoch), None)
        if late is None:
            return
        segment = self.segments[self.segments.index_of(late.offset)]
        with suppress(CorruptLog, OSError):  # whoever reads it is told so
            spot = segment.find(late.offset)
            if spot is not None and segment.epoch_at(spot.position) > epoch:
                problem = f"leader epoch {segment.epoch_at(spot.position)}, expected {epoch} at most"
                segment.damaged[spot.position] = problem
                self.met_damage(CorruptLog(segment.ref.path, spot.position, problem))

    def accept_loss(self, first_offset: Offset) -> None:
        """Let the last stable offset pass a transaction that is in doubt (`producers`); durable when this returns."""
        self.write_staged()
        self.producers.accept_loss(first_offset)
        self.save_doubts()
        self.points.save_recovery_point(self.partition, self.recovery_point)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Note that a leader of this epoch writes from here on; no file says so before it has written something."""
        self.epochs.assign(epoch, self.log_end)

    def roll(self, now_ms: TimestampMs) -> None:
        """Seal the active segment and begin a new one at the log end."""
        self.write_staged()
        sealed = self.segments.active
        self._mend()
        fresh = Segment(
            self.files,
            self.directory,
            self.log_end,
            interval_bytes=self.settings.index_interval_bytes,
            created_ms=now_ms,
        )
        try:
            self._complete_txn_index()
            self._unsynced += sealed.seal()
            self._unsynced += write_snapshot(self.vfs, self.directory, self.producers)
            # Last, and nothing after it fails: an empty segment in the middle of the log would end it there.
            fresh.create()
        except OSError as error:
            raise StorageError(
                f"cannot begin a segment at offset {self.log_end} in {self.directory}: {error.strerror or error}"
            ) from error
        sealed.release_indexes()
        self.segments = SegmentList([*self.segments, fresh])
        self._dirty.append(fresh)
        self._names_changed += 1

    def is_checkpointed(self, *, is_last: bool = False) -> bool:
        return not self._staged and super().is_checkpointed(is_last=is_last)

    def prepare_checkpoint(self, *, is_last: bool = False) -> CheckpointWork:
        self.write_staged()
        return super().prepare_checkpoint(is_last=is_last)

    # -- cutting ---------------------------------------------------------------------------------------

    def truncate(self, offset: Offset) -> Offset:
        """Drop every batch from offset on, and return the new log end. For followers of a new leader.

        [10-10][11-30][31-100]  truncate(31) -> [10-10][11-30], log end 31
                                truncate(35) -> the same: a batch goes whole

        The recovery point is lowered on disk first: what is written here next has never been synced.
        """
        self._mend()
        if offset >= self.log_end:
            # Who led here and wrote nothing began an epoch that the next leader may never have heard of.
            self.epochs.truncate_end(offset)
            return self.log_end
        if offset < self.segments[0].base_offset:
            self.restart_at(offset, self.segments[0].created_ms)
            return offset
        keep = self.segments.index_of(offset)
        segment = self.segments[keep]
        try:
            spot = segment.find(offset)
        except CorruptLog as error:
            self.met_damage(error)
            raise
        except OSError as error:
            raise StorageError(f"cannot truncate {self.directory}: {error.strerror or error}") from error
        if spot is None:
            return self._cut_at(keep, segment.size, offset)
        return self._cut_at(keep, spot.position, min(offset, spot.base_offset))

    def cut_damage(self) -> Offset:
        """Drop everything from the first hole, or the first batch that is not what was written, and return the new log
        end. For a replica that has the rest from others."""
        self._mend()
        damaged = self._damaged
        for keep, segment in enumerate(self.segments):
            if segment.hole is not None:
                damaged, start = None, segment.hole.start
                if keep == 0:
                    self.restart_at(start, segment.created_ms)
                else:
                    self._cut_at(keep - 1, self.segments[keep - 1].size, start)
                break
            if segment is damaged or (damaged is None and segment.damaged):
                damaged = None
                try:
                    position, end = segment.sound_part()
                except OSError as error:
                    raise StorageError(
                        f"cannot read {segment.ref.path}: {error.strerror or error}"
                    ) from error
                if position < segment.size:
                    self._cut_at(keep, position, end)
                    break
        self._damaged = None
        return self.log_end

    def _cut_at(self, keep: int, position: int, end: Offset) -> Offset:
        """Have the log end within a segment."""
        segment = self.segments[keep]
        try:
            fresh = self._shortened(segment, position, end)
            producers = self._producers_in(self.segments, keep, position, end)
        except OSError as error:
            raise StorageError(f"cannot truncate {self.directory}: {error.strerror or error}") from error
        self._lower_points(RecoveryPoint(end, segment.base_offset, position))
        self._unstage()
        self.producers = producers
        self._replace_from(keep, fresh, end)
        self.epochs.truncate_end(end)
        self._cut_tail()
        return end

    def _shortened(self, segment: Segment, position: int, end: Offset) -> Segment:
        """A segment without its batches from a position on, ready to append."""
        fresh = Segment(
            self.files,
            self.directory,
            segment.base_offset,
            interval_bytes=self.settings.index_interval_bytes,
            size=position,
            created_ms=segment.created_ms,
        )
        fresh.hole = segment.hole
        fresh.flushed_bytes = min(segment.flushed_bytes, position)
        fresh.checked_from = min(segment.checked_from, position)
        if segment.checked_to <= position:
            fresh.checked_to, fresh.checked_offset = segment.checked_to, segment.checked_offset
            fresh.checked_epoch = segment.checked_epoch
        fresh.resume(below=end)
        fresh.txn_index.take(segment.txn_index, below=end)  # which may be newer than its file
        fresh.next_offset = end
        return fresh

    def _lower_points(self, point: RecoveryPoint) -> None:
        """Have recovery expect no more than there will be, before anything is cut off."""
        if self.recovery_point.offset > point.offset:
            self.points.save_recovery_point(self.partition, point)
            self.recovery_point = point
        if self.log_start > point.offset:
            self.points.save_log_start(self.partition, point.offset)
            self.log_start = point.offset

    def _replace_from(self, keep: int, fresh: Segment, end: Offset) -> None:
        """Let the log end here, with a new active segment; `_cut_tail` then brings the disk after it."""
        dropped = self.segments[keep:]
        for segment in dropped:
            segment.is_truncated = True
        self.generation += 1
        self._has_torn_tail = True
        self._doomed += [each.base_offset for each in dropped if each.base_offset != fresh.base_offset]
        self.detach(dropped, [fresh])
        self.log_end = self._staged_end = end
        self.flushed = min(self.flushed, end)
        self.clean_to = min(self.clean_to, end)
        self._dirty.append(fresh)
        # The new active segment's indexes may have been written, but not synced yet, under its old name.
        self._unsynced = [ref for ref in self._unsynced if not _is_snapshot_above(ref, end)]
        self._unsynced += [fresh.index.ref, fresh.time_index.ref]
        self._snapshots = {each for each in self._snapshots if each <= end}

    def restart_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Drop everything and begin anew at an offset: for a follower that is too far behind."""
        # While the files go, the log on disk may be any first part of what it was.
        low = min(offset, self.segments[0].base_offset)
        if self.recovery_point.offset > low:
            point = RecoveryPoint(low, low, 0)
            self.points.save_recovery_point(self.partition, point)
            self.recovery_point = point
        if self.log_start > offset:
            self.points.save_log_start(self.partition, offset)
            self.log_start = offset
        fresh = Segment(
            self.files,
            self.directory,
            offset,
            interval_bytes=self.settings.index_interval_bytes,
            created_ms=now_ms,
        )
        fresh.start_indexes()
        try:
            remove_snapshots_above(self.vfs, self.directory, -1)
        except OSError as error:
            raise StorageError(f"cannot restart {self.directory}: {error.strerror or error}") from error
        self._unstage()
        self._is_suspect = False
        self._doomed = [each for each in self._doomed if each != offset]
        self._replace_from(0, fresh, offset)
        self.flushed = self.clean_to = self.log_start = offset
        self.producers = Producers(offset)
        self.epochs.truncate_end(-1)
        self._cut_tail()
        self.points.save_log_start(self.partition, offset)
        point = RecoveryPoint(offset, offset, 0)
        self.points.save_recovery_point(self.partition, point)
        self.recovery_point = point

    def advance_start(self, offset: Offset) -> None:
        """Hide everything below an offset (DeleteRecords, retention); durable when this returns.

        Segments that lie wholly below it can be deleted afterwards: `deletion.bury`.
        """
        if offset > self.log_end:
            raise OffsetOutOfRange(f"{self.partition} ends at {self.log_end}, cannot start at {offset}")
        if offset <= self.log_start:
            return
        self.points.save_log_start(self.partition, offset)
        self.log_start = offset
        self.clean_to = max(self.clean_to, offset)
        self.epochs.truncate_start(offset)
        self.producers.forget_holes(offset)

    def detach(self, segments: Sequence[Segment], replacements: Sequence[Segment] = ()) -> None:
        """Take segments out of the list, putting others in their place. Their files may be touched afterwards.

        The new list is there before `gone` is set: a reader that sees it always finds something newer.
        """
        leaving = set(segments)
        kept = [segment for segment in self.segments if segment not in leaving]
        self.segments = SegmentList(sorted([*kept, *replacements], key=lambda segment: segment.base_offset))
        for segment in segments:
            segment.gone = True
        self._dirty = [segment for segment in self._dirty if segment not in leaving]
        lost = {index.ref for each in segments for index in (each.index, each.time_index, each.txn_index)}
        self._unsynced = [ref for ref in self._unsynced if ref not in lost]
        for segment in segments:
            segment.forget_files()


def _is_snapshot_above(ref: FileRef, offset: Offset) -> bool:
    parsed = names.parse_segment_file(ref.path.rpartition("/")[2])
    return (
        parsed is not None
        and parsed.kind in (names.SNAPSHOT, names.SEQUENCES)
        and parsed.base_offset > offset
    )
