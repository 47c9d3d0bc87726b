"""One partition's log: a single writer, any number of readers.

    log_start            recovery_point     flushed           log_end    staged
    |--- segments ---|---- segments ----|----- active segment -----|........|
      deleted          recovery starts     synced, not yet            accepted,
      below it         here                checkpointed               not yet written

Appending takes two steps, so that all requests of one tick share one write: `stage` checks a batch and
assigns its offset, `write_staged` writes everything staged. `LogReader` reads, `LogFlusher` makes the log durable,
`truncation` shortens it.

Invariants: log_start <= log_end; recovery_point <= flushed <= log_end; indexes, producer state and epochs in memory
match the batches written; a failed write has no effect.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId, TimestampMs, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import (
    LOG_OVERHEAD,
    PACK_PLACE,
    Codec,
    DecompressedTooLarge,
    HasLoopTime,
    RecordBatch,
    TooLongToValidate,
    iter_batches,
    stamp,
    time_fault,
    validate_header,
    validate_produced,
)
from penstock.records.validate import UNPACKED_ON_LOOP_MAX, is_small, refused_records
from penstock.records.varint import Readable
from penstock.storage import truncation
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import CorruptLog, OffsetOutOfRange, StorageError
from penstock.storage.flusher import LogFlusher
from penstock.storage.inspection import Inspected, Inspection, NeedsInspection
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.producers import NumberedBatch, Producer, Producers
from penstock.storage.reader import LogReader
from penstock.storage.rules import CODECS, Origin, recompressed, rules_for
from penstock.storage.scan import BATCH_BYTES_MAX, RELATIVE_OFFSET_MAX
from penstock.storage.schema_check import SchemaCheck
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.storage.txn_index import AbortedTxn

PRODUCER_IDLE_MS_MAX = 24 * 60 * 60 * 1000
"""Kafka's `producer.id.expiration.ms`."""

LEADER_EPOCH_MAX: LeaderEpoch = 2**31 - 1
"""Largest int32."""


_new = tuple.__new__
_CLIENT = Origin.CLIENT


class Appended(NamedTuple):
    """Offsets of an appended batch; for a retry, those of its first copy."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs = NO_TIMESTAMP
    """The broker's timestamp, with `message.timestamp.type=LogAppendTime`."""
    is_duplicate: bool = False


class Points(Protocol):
    """Saves a log's offsets durably; implemented by the log directory's checkpoint."""

    def save_recovery_point(self, partition: TopicPartition, point: RecoveryPoint) -> None: ...

    def save_log_start(self, partition: TopicPartition, offset: Offset) -> None: ...

    def leave_out(self, partition: TopicPartition, segments: Collection[Offset]) -> None:
        """Remove segments that are about to be replaced, by base offset, from the checkpoint."""


class Log:
    """Appends to one partition's log. Opened by `recovery.open_log` or `recovery.create_log`."""

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
        self.partition = partition
        self.directory = directory
        self.files = files
        self.vfs = files.vfs
        self.segments = segments
        """An immutable list, replaced whole when segments are added or removed."""
        self.log_start = log_start
        """First offset that readers may see. Only a truncation below it lowers it."""
        self.log_end: Offset = segments.active.next_offset
        """First offset not written yet."""
        self.recovery_point = recovery_point
        """Recovery starts here after a crash. Advances with checkpoints."""
        self.flushed: Offset = recovery_point.offset
        """First offset that may not be on disk. Advances with flushes."""
        self.generation = 0
        """Number of truncations: flushes and checkpoints prepared before one are void after it."""
        self.epoch_max: LeaderEpoch | None = None
        """The latest leader epoch, if the log has other replicas: a batch of a later epoch is damaged. None where the
        log has no other replica."""
        self.producers = producers
        self.epochs = epochs
        self.points = points
        self.topic_id = topic_id
        self.clean_to: Offset = log_start
        """End of the compacted part, in which each key occurs once."""
        self.tombstones_until: TimestampMs | None = None
        """When the next kept tombstone or marker expires; known since the last compaction."""
        self.schema_check: SchemaCheck | None = None
        """Set while the topic has `schema.validation`."""
        self.configure(settings)
        self._staged: list[tuple[memoryview, Offset, TimestampMs]] = []
        """Batches with an offset that are not written yet: bytes, last offset, largest timestamp."""
        self._staged_epochs: list[tuple[LeaderEpoch, Offset]] = []
        """Leader epochs that staged batches begin."""
        self._staged_bytes = 0
        self._staged_aborts: list[AbortedTxn] = []
        """Transactions that staged markers abort."""
        self._before_staged: list[tuple[ProducerId, Producer | None]] = []
        """Producer states to restore, last first, if the write fails."""
        self.unstaged: list[NumberedBatch] = []
        """The first batch of each idempotent producer among the staged batches that were last dropped."""
        self._staged_end = self.log_end
        self.written_bytes = self.written_records = 0
        """Since the log was opened. Records are counted in offsets, as in Kafka."""
        self.reader = LogReader(self)
        self.flusher = LogFlusher(
            self, is_clean=is_clean, epochs_saved=epochs_saved, unsynced=unsynced, snapshots=snapshots
        )
        # The hot path calls these without a method of Log in between.
        self.read, self.read_ahead, self.aborted = (
            self.reader.read,
            self.reader.read_ahead,
            self.reader.aborted,
        )
        self.prepare_flush, self.finish_flush = self.flusher.prepare_flush, self.flusher.finish_flush

    def __repr__(self) -> str:
        return f"<Log {self.partition} {self.log_start}..{self.log_end}>"

    def configure(self, settings: LogSettings) -> None:
        """Apply changed settings from the next append on."""
        self.settings = settings
        self.segments.active.room_bytes = 0
        self._log_append_time = settings.message_timestamp_type == "LogAppendTime"
        self._rules = {origin: rules_for(settings, origin) for origin in Origin}
        self._client_rules = self._rules[Origin.CLIENT]
        self._codec: Codec | None = CODECS.get(settings.compression_type)
        """Codec for clients' batches; None keeps the producer's."""
        rules = self._client_rules
        is_plain = not (
            rules.check_records or rules.compacted or rules.log_append_time or self._codec is not None
        )
        self.plain_bytes_max = rules.max_message_bytes if is_plain else 0
        """Up to this size a client's batch needs only header and CRC checked (`stage_plain`); 0 if the topic's
        settings require more."""
        self.segments.active.interval_bytes = settings.index_interval_bytes

    @property
    def staged_end(self) -> Offset:
        """The offset that the next batch gets."""
        return self._staged_end

    @property
    def last_stable(self) -> Offset:
        """First offset of the oldest open transaction, or the log end.

        A transaction is open until its marker is written: a staged marker is not in the transaction index yet.
        """
        undecided = self.producers.first_undecided
        stable = self.log_end if undecided is None else undecided
        for _, before in self._before_staged:
            if before is not None and before.txn_first_offset is not None:
                stable = min(stable, before.txn_first_offset)
        return stable

    @property
    def first_kept(self) -> Offset:
        """First offset whose segment is kept; at most the log start."""
        return self.segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def is_damaged(self) -> bool:
        """Whether the log is known to have a batch that is not what was written."""
        return self.reader.is_damaged

    @property
    def has_failed_write(self) -> bool:
        """Whether a write or a sync failed and nothing was written since."""
        return self.flusher.has_failed_write

    # -- reading and flushing: see `LogReader` and `LogFlusher` -----------------------------------------------

    def batches(self, start: Offset | None = None) -> Iterator[RecordBatch]:
        return self.reader.batches(start)

    def flush(self) -> None:
        self.flusher.flush()

    def checkpoint(self, *, is_last: bool = False) -> RecoveryPoint:
        return self.flusher.checkpoint(is_last=is_last)

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

    def stage(  # noqa: C901, PLR0912  # the steps of an append, in Kafka's order
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
        has_loop_time: HasLoopTime | None = None,
        inspected: Inspected | None = None,
    ) -> Appended:
        """Validate a batch as a leader does and assign the next offset, in place; `write_staged` writes it.

        `data` must hold exactly one batch and stay unchanged until it is written. Raises `KafkaError` with the code
        for the client if the batch is invalid, and then changes nothing. `StorageError` means that the disk failed:
        of the batches staged before, exactly those below `log_end` are in the log.

        With `has_loop_time`, raises `NeedsInspection` if validation would block the event loop for too long;
        `inspected` is then the result of that inspection. Without it, records are validated here, however long that
        takes.
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
                validate_produced(batch, self._client_rules, now_ms, has_loop_time)
            else:
                validate_produced(batch, self._rules[origin], now_ms)
        except TooLongToValidate:
            raise self._needs_inspection(data, now_ms) from None
        if self.schema_check is not None and is_client and inspected is None:
            self._check_schemas(self.schema_check, batch, now_ms, has_loop_time)
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
            batch = self._in_codec(batch, self._codec, now_ms, has_loop_time, inspected)
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
        has_loop_time: HasLoopTime | None,
        inspected: Inspected | None,
    ) -> RecordBatch:
        """The batch in the topic's codec."""
        if inspected is not None and inspected.data is not None:
            return RecordBatch.parse(inspected.data)
        try:
            return recompressed(batch, codec, self.settings, has_loop_time)
        except TooLongToValidate:
            raise self._needs_inspection(batch.view, now_ms) from None

    def _needs_inspection(self, data: Readable, now_ms: TimestampMs) -> NeedsInspection:
        return NeedsInspection(Inspection(bytes(data), self.settings, now_ms, self.schema_check))

    def _check_schemas(
        self,
        check: SchemaCheck,
        batch: RecordBatch,
        now_ms: TimestampMs,
        has_loop_time: HasLoopTime | None,
    ) -> None:
        """Raise unless all records of a client's batch have a known schema. What is refused here is inspected: its
        schema may be new."""
        is_on_loop = has_loop_time is not None
        if is_on_loop and (check.is_full or not is_small(batch)):
            raise self._needs_inspection(batch.view, now_ms)
        limit = UNPACKED_ON_LOOP_MAX if is_on_loop else self._client_rules.max_decompressed_bytes
        try:
            faults = check.faults(batch, limit)
        except DecompressedTooLarge:
            if not is_on_loop:
                raise
            raise self._needs_inspection(batch.view, now_ms) from None
        if faults and is_on_loop:
            raise self._needs_inspection(batch.view, now_ms)
        if faults:
            raise refused_records(batch, faults)

    def timestamp_fault(self, timestamp: TimestampMs, now_ms: TimestampMs) -> str | None:
        """What the topic's settings have against a producer's timestamp."""
        rules = self._client_rules
        return None if rules.log_append_time else time_fault(timestamp, rules, now_ms)

    def stage_plain(
        self,
        view: memoryview,
        length: int,
        last_offset_delta: int,
        max_timestamp: TimestampMs,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
    ) -> Offset:
        """Stage a client's batch whose header the caller has validated as `validate_produced` does.

        It has no producer id, no flags and at most `plain_bytes_max` bytes. Returns its offset, or -1 if `stage` must
        handle it: its timestamp is out of bounds, or it may begin a segment or a leader epoch.
        """
        if self.schema_check is not None and not self.schema_check.passes(view, last_offset_delta):
            return -1
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
        """Stage batches fetched from a leader, with their offsets and epochs: all, or none if one is invalid.

        A partial batch at the end of the fetch is ignored; the next fetch returns it. `epoch_max` is the leader's
        epoch: it cannot have a batch of a later one.
        """
        batches = list(iter_batches(data))
        expected = self._staged_end
        for batch in batches:
            batch.check_crc()
            if batch.leader_epoch > epoch_max:
                raise KafkaError(
                    f"{self.partition}: batch of leader epoch {batch.leader_epoch} at offset "
                    f"{batch.base_offset}, expected {epoch_max} at most",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            if batch.base_offset < expected or batch.last_offset_delta < 0 or batch.size > BATCH_BYTES_MAX:
                raise KafkaError(
                    f"{self.partition}: batch of {batch.size} bytes at offsets {batch.base_offset} to "
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
        """Move the log end over a gap that no segment can span, in a replica of a compacted log.

        The recovery point moves too: recovery would take a gap between segments after it for a lost tail.
        """
        self.end_at(offset)
        self.producers.end_offset = offset
        self.segments.active.next_offset = offset
        self.roll(now_ms)
        self.points.save_recovery_point(self.partition, self.flusher.checkpoint())

    def write_staged(self) -> None:
        """Write everything staged with one call; after an error none of it is in the log."""
        staged = self._staged
        if not staged:
            return
        active = self.segments.active
        try:
            self.flusher.repair()
            active.file().pwrite([each[0] for each in staged], active.size)
        except OSError as error:
            self.drop_staged()
            self.flusher.write_failed()
            raise StorageError(
                f"cannot write {active.ref.path}: {error.strerror or error}; nothing was appended"
            ) from error
        except StorageError:
            self.drop_staged()
            raise
        position = active.size
        # Readers rely on the size. It moves before the indexes, so that no entry points past it, and after the end
        # offset, so that readers do not take new bytes for visible ones.
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
        """Drop everything staged, and undo its effect on producer state."""
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
        """Treat batches of a later leader epoch than this as damaged. The CRC does not cover the epoch, and no
        follower would accept such a batch."""
        self.epoch_max = epoch
        late = next((each for each in self.epochs.entries if each.epoch > epoch), None)
        if late is None:
            return
        segment = self.segments[self.segments.index_of(late.offset)]
        with suppress(CorruptLog, OSError):  # the next read reports it
            spot = segment.find(late.offset)
            if spot is not None and segment.epoch_at(spot.position) > epoch:
                problem = f"leader epoch {segment.epoch_at(spot.position)}, expected {epoch} at most"
                segment.damaged[spot.position] = problem
                self.reader.note_damage(CorruptLog(segment.ref.path, spot.position, problem))

    def accept_loss(self, first_offset: Offset) -> None:
        """Let the last stable offset pass a transaction that is in doubt (`producers`); durable when this returns."""
        self.write_staged()
        self.producers.accept_loss(first_offset)
        self.flusher.save_doubts()
        self.points.save_recovery_point(self.partition, self.recovery_point)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Start a leader epoch at the log end, in memory until its first batch is written."""
        self.epochs.assign(epoch, self.log_end)

    def roll(self, now_ms: TimestampMs) -> None:
        """Seal the active segment and start a new one at the log end."""
        self.write_staged()
        sealed = self.segments.active
        self.flusher.repair()
        fresh = Segment(
            self.files,
            self.directory,
            self.log_end,
            interval_bytes=self.settings.index_interval_bytes,
            created_ms=now_ms,
        )
        try:
            self.flusher.roll(sealed, fresh)
        except OSError as error:
            raise StorageError(
                f"cannot create a segment at offset {self.log_end} in {self.directory}: {error.strerror or error}"
            ) from error
        sealed.release_indexes()
        self.segments = SegmentList([*self.segments, fresh])

    # -- truncating ------------------------------------------------------------------------------------

    def truncate(self, offset: Offset) -> Offset:
        """Drop every batch from offset on, and return the new log end."""
        return truncation.truncate(self, offset)

    def cut_damage(self) -> Offset:
        """Drop everything from the first hole or damaged batch on, and return the new log end."""
        return truncation.cut_damage(self)

    def restart_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Drop everything and start at an offset."""
        truncation.restart_at(self, offset, now_ms)

    def end_at(self, offset: Offset) -> None:
        """Move the log end, where nothing is staged."""
        self.log_end = self._staged_end = offset

    def advance_start(self, offset: Offset) -> None:
        """Hide everything below an offset (DeleteRecords, retention); durable when this returns.

        Segments below it can be deleted afterwards: `deletion.begin_deletion`.
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
        """Remove segments from the list and add their replacements. Their files may be changed afterwards.

        The new list is set before `gone`: a reader that sees `gone` always finds a newer list.
        """
        leaving = set(segments)
        kept = [segment for segment in self.segments if segment not in leaving]
        self.segments = SegmentList(sorted([*kept, *replacements], key=lambda segment: segment.base_offset))
        for segment in segments:
            segment.gone = True
        self.flusher.detach(segments)
        for segment in segments:
            segment.forget_files()
