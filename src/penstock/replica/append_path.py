"""Appends to a partition that this broker leads.

    stage      validated, and given its offset; in memory         many batches in a tick of the loop
    write      in the file; one write for the whole tick          followers can fetch it
    commit     on every replica of the ISR                        below the high watermark: consumers can read it
    sync       on disk; one sync for all batches that wait        `leader_syncs`

When a producer gets its acknowledgement depends on its `acks` and on `durability.fsync`:

    acks 0, 1     written
    acks all      committed; also synced here, with `always`, or with `alone` while the ISR is this replica alone
    flush.messages reached: synced, whatever `acks` is

A partition with one replica commits what it writes. After a failed write no batch that was staged for it is
acknowledged.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NEVER_MS, Offset, TimestampMs
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.metadata.controller.requests import UNWRITABLE
from penstock.records.batch import CONTROL_MASK, FLAGS_AT
from penstock.replica.delayed_operations import ALL_IN_SYNC, DelayedProduce, PreparedReply
from penstock.replica.inspections import Inspections
from penstock.replica.pending_acks import PendingAcks
from penstock.replica.refused_batches import RefusedBatches
from penstock.storage import Appended, Inspected, Origin, StorageError
from penstock.storage.producers import NumberedBatch

if TYPE_CHECKING:
    from penstock.replica.partition import Partition

logger = logging.getLogger(__name__)

_CLIENT: Final = Origin.CLIENT


class AppendPath:
    """The appends of one partition. Uses the partition's leader epoch and ISR, and has it advance the high watermark
    after each write."""

    __slots__ = (
        "_acks",
        "_flush_timer",
        "_has_loop_time",
        "_inspections",
        "_partition",
        "_refused",
        "_unwritten",
        "_world",
        "_write_later",
        "ends_transaction",
        "is_staged",
        "prepared_replies",
        "staged_bytes",
        "uncommitted_markers",
    )

    def __init__(
        self,
        partition: "Partition",
        acks: PendingAcks,
        world: World,
        write_later: Callable[[Callable[[], None]], None],
        inspections: Inspections | None,
        refused: RefusedBatches,
    ) -> None:
        """`write_later` has a function called at the end of the loop's tick, before replies are sent. `inspections`
        validates large batches off the loop; without it, all are validated on the loop."""
        self._partition = partition
        self._acks = acks
        self._world = world
        self._write_later = write_later
        self._inspections = inspections
        self._has_loop_time = None if inspections is None else inspections.has_loop_time
        self._refused = refused
        self.is_staged = False
        """Batches are staged, and `write` will be called at the end of the tick."""
        self.staged_bytes = 0
        """Staged or written, and not yet announced to consumers or followers."""
        self.ends_transaction = False
        """One of the staged batches may end a transaction."""
        self._unwritten: list[DelayedProduce] = []
        self.prepared_replies: list[PreparedReply] = []
        """Replies to staged batches, ordered by offset except for retries. They are settled if the write fails."""
        self.uncommitted_markers: deque[tuple[Offset, Offset]] = deque()
        """Transaction markers above the high watermark: the offset of each, and the last stable offset before it.
        Until a marker is committed its transaction is undecided: the next leader may not have the marker."""
        self._flush_timer: Timer | None = None
        """Runs while records are unsynced, if `flush.ms` limits how long."""

    @property
    def unwritten(self) -> int:
        """Batches that wait for the write at the end of the tick."""
        return len(self._unwritten)

    # -- staging ---------------------------------------------------------------------------------------

    def check_refused(self, records: memoryview) -> None:
        """Refuse a batch that follows a refused batch of the same producer, with the same error."""
        if self._refused:
            partition = self._partition
            now_ms = self._world.clock_ns() // 1_000_000
            self._refused.check(partition.log, partition.topic_id, records, now_ms)

    def stage(
        self,
        records: memoryview,
        acks: int,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
        inspected: Inspected | None = None,
    ) -> Appended:
        """Validate a batch and give it its offset; call `wait` right after. Raises the error for the producer, or
        `NeedsInspection` if validation on the loop would take too long (`replica.inspections`)."""
        partition = self._partition
        if inspected is not None and not partition.is_leader:
            raise KafkaError(
                f"this broker no longer leads {partition.name}; refresh metadata and retry",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        in_sync = partition.isr_size
        if acks == ALL_IN_SYNC and in_sync < partition.min_isr and in_sync < partition.required_isr:
            raise KafkaError(
                f"{partition.name} has {in_sync} replicas in sync, {partition.required_isr} are needed",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        log, isr = partition.log, partition.isr
        if isr is not None:
            isr.note_caught_up(log.log_end)  # a full segment has `stage` write what is staged
        stable = partition.last_stable if origin is not _CLIENT and isr is not None else None
        try:
            appended = log.stage(
                records,
                leader_epoch=partition.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                has_loop_time=self._has_loop_time,
                inspected=inspected,
            )
        except StorageError as error:
            logger.error("%s", error)
            self._written(error)
            partition.disk_failed(UNWRITABLE)
            raise
        if origin is not _CLIENT:
            self.ends_transaction = True
            if stable is not None and records[FLAGS_AT] & CONTROL_MASK:
                self.uncommitted_markers.append((appended.last_offset, stable))
        self.staged_bytes += len(records)
        if not self.is_staged:
            self.is_staged = True
            self._write_later(self.write)
        return appended

    def stage_own(self, batch: bytearray, now_ms: TimestampMs) -> Promise[Appended]:
        """Stage a batch that this broker built for a client: at once, unless this batch or one before it is validated
        or recompressed off the loop. The order is kept."""

        def stage(inspected: Inspected | None) -> Appended:
            return self.stage(memoryview(batch), ALL_IN_SYNC, now_ms, inspected=inspected)

        if self._inspections is not None:
            return self._inspections.stage_in_order(self._partition, stage)
        appended: Promise[Appended] = Promise()
        try:
            appended.resolve(stage(None))
        except KafkaError as error:
            appended.fail(error)
        return appended

    def stage_plain(
        self,
        view: memoryview,
        length: int,
        last_offset_delta: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
    ) -> Offset:
        """`Log.stage_plain`, for the fast path of Produce. Add the reply to `prepared_replies`, or `wait`."""
        partition = self._partition
        offset = partition.log.stage_plain(
            view, length, last_offset_delta, max_timestamp, partition.leader_epoch, now_ms
        )
        if offset >= 0:
            self.staged_bytes += length
            if not self.is_staged:
                self.is_staged = True
                self._write_later(self.write)
        return offset

    def wait(self, produce: DelayedProduce) -> None:
        """Settle a request when its staged batch is as durable as its `acks` requires."""
        self._unwritten.append(produce)

    def wait_for_written(self, produce: DelayedProduce) -> None:
        """`wait` for a batch that is in the log already: after a crash, such a batch may be unsynced."""
        self.wait(produce)
        if not self.is_staged:
            self.is_staged = True
            self._write_later(self.write)

    # -- writing ---------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what was staged in this tick, and settle the requests that wait only for the write."""
        self.is_staged = False
        partition = self._partition
        if not partition.is_leader:
            return  # it stepped down in this tick: all requests have failed, and the log may be deleted
        error: StorageError | None = None
        log = partition.log
        if partition.isr is not None:
            partition.isr.note_caught_up(log.log_end)
        try:
            log.write_staged()
        except StorageError as failure:
            logger.error("%s", failure)
            error = failure
        self._written(error)
        if error is not None:
            partition.disk_failed(UNWRITABLE)

    def _written(self, error: StorageError | None) -> None:
        """Batches below the log end are written; all others that were staged are not."""
        partition, acks = self._partition, self._acks
        log = partition.log
        log_end = log.log_end
        unwritten, self._unwritten = self._unwritten, []
        replies, self.prepared_replies = self.prepared_replies, []
        if error is not None:
            self._write_failed(error, replies)
        if log_end > partition.high_watermark:
            partition.advance_high_watermark()
        unsynced = log_end - log.flushed
        sync_all = unsynced >= log.settings.flush_messages
        sync_committed = acks.syncs_committed
        committed = log_end if partition.isr is None else partition.high_watermark
        for produce in unwritten:
            last_offset = produce.appended.last_offset
            if last_offset >= log_end:
                produce.settle(error or StorageError(f"{partition.name} lost what was staged"))
            elif last_offset >= committed and produce.acks == ALL_IN_SYNC:
                acks.replicating.append(produce)
            elif (
                sync_all or (sync_committed and produce.acks == ALL_IN_SYNC)
            ) and last_offset >= log.flushed:
                acks.syncs.waiting.append(produce)
            else:
                produce.settle(None)
        if acks.replicating or acks.syncs.waiting:
            acks.check_deadlines()
        if acks.syncs.waiting or sync_all or (sync_committed and acks.replicating):
            acks.syncs.flush()
        elif unsynced and log.settings.flush_ms != NEVER_MS and self._flush_timer is None:
            self._flush_timer = self._world.call_later(log.settings.flush_ms, self._flush_is_due)

    def _flush_is_due(self) -> None:
        self._flush_timer = None
        self._acks.syncs.flush()

    def _write_failed(self, error: StorageError, replies: list[PreparedReply]) -> None:
        log, markers = self._partition.log, self.uncommitted_markers
        while markers and markers[-1][0] >= log.log_end:
            markers.pop()  # a marker that was not written ends no transaction
        self._note_refused(log.unstaged, error)
        log.unstaged = []
        for reply in replies:
            if reply.last_offset >= log.log_end:
                reply.settle(error)

    # -- refusing --------------------------------------------------------------------------------------

    def _note_refused(self, batches: Iterable[NumberedBatch], error: KafkaError) -> None:
        """These batches are not in the log, or may be truncated, and their producers get this error."""
        partition = self._partition
        now_ms = self._world.clock_ns() // 1_000_000
        for batch in batches:
            self._refused.note(
                (partition.topic_id, partition.number), batch, error, now_ms, partition.log.producers
            )

    def note_unacknowledged(self, last_offsets: list[Offset], error: KafkaError) -> None:
        """Of the batches from the first of these offsets on, note each producer's first one as refused: the next
        leader need not have it, and this replica may lead again without it."""
        producers = self._partition.log.producers
        first = max(self._partition.high_watermark, min(last_offsets))
        self._note_refused(producers.first_from(first, producers.by_id), error)

    def abandon(self, why: KafkaError) -> None:
        """Fail all requests: this broker no longer leads the partition, and what is staged will not be written."""
        replies, self.prepared_replies = self.prepared_replies, []
        produces = [*self._unwritten, *self._acks.take_all()]
        self._unwritten = []
        if replies or produces:
            last_offsets = [each.last_offset for each in replies]
            last_offsets += [each.appended.last_offset for each in produces]
            self.note_unacknowledged(last_offsets, why)
        self._partition.log.drop_staged()
        self.staged_bytes = 0
        self.uncommitted_markers.clear()
        for reply in replies:
            reply.settle(why)
        for produce in produces:
            produce.settle(why)
