"""The way of a batch through a replica: staged, written, committed, synced; and who is told at each step.

    stage      checked, given its offset; in memory               many times a turn
    write      in the file, with one call for the whole turn      followers see it from here on
    commit     in the files of every replica in sync              readers see it from here on: the high watermark
    sync       on disk; one sync for all that wait                who asked for it is answered

Which of these a producer waits for is said by its `acks` and by `durability.fsync`:

    acks 0, 1     written
    acks all      committed; and synced here, if this is the only replica in sync (`alone`), or `always`, or `never`
    flush.messages reached: synced, whatever acks says

A partition with one replica is committed as it is written: there is nobody to ask, and no work beside the comparison
that finds it. After a failed write or sync nothing that waited for it is acknowledged.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition, Uuid
from penstock.base.world import Timer, World
from penstock.metadata.controller.requests import DAMAGED, UNWRITABLE
from penstock.records.batch import CONTROL_MASK, FLAGS_AT
from penstock.replica.group_commit import GroupCommit
from penstock.replica.in_sync import InSync
from penstock.replica.inspections import Inspections
from penstock.replica.isr_changes import IsrChanges
from penstock.replica.refused_batches import RefusedBatches
from penstock.replica.stalled_commit import StalledCommit
from penstock.replica.sync_lane import SyncLane
from penstock.replica.waiting import ALL_IN_SYNC, Durability, Foretold, Tail, Watcher, Writer
from penstock.storage import Appended, Inspected, Log, Origin, StorageError
from penstock.storage.producers import NumberedBatch

logger = logging.getLogger(__name__)

NOBODY: Final = -1
"""Who leads a partition that nobody leads."""

OVERDUE_CHECK_MS: Final = 100
"""How often, while producers wait for a sync or for followers, it is looked for those whose time is up."""

TOO_FEW_MS: Final = 1000
"""How long clients wait for followers while fewer than `min.insync.replicas` are in sync: most breaks are shorter."""

LowWatermarkReached = Callable[[KafkaError | None], None]
"""Told that it is so, or that it will not be heard of here."""

_FOREVER = 2**63 - 1
_CLIENT = Origin.CLIENT


class DataPath:
    """What a `Partition` does with records."""

    __slots__ = (
        "_changes",
        "_committing",
        "_durability",
        "_ends_transaction",
        "_flush_timer",
        "_inspections",
        "_is_staged",
        "_lowering",
        "_may_look",
        "_overdue_timer",
        "_staged_bytes",
        "_stalled",
        "_syncs",
        "_tails",
        "_too_few_ms",
        "_uncommitted_ends",
        "_unwritten",
        "_watchers",
        "_world",
        "_write_later",
        "bytes_out",
        "copied_bytes",
        "copied_records",
        "epoch_start",
        "followers",
        "foretold",
        "high_watermark",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "leader_high_watermark",
        "leader_id",
        "log",
        "messages_out",
        "min_in_sync",
        "number",
        "partition_epoch",
        "refused",
        "topic",
        "topic_id",
    )

    high_watermark: Offset
    """First offset that is not on every replica in sync. Consumers see what is below. Never goes back while the
    node lives."""

    def __init__(
        self,
        log: Log,
        topic_id: Uuid,
        world: World,
        lane: SyncLane,
        durability: Durability,
        write_later: Callable[[Callable[[], None]], None],
        changes: IsrChanges | None = None,
        high_watermark: Offset = 0,
        inspections: Inspections | None = None,
        refused: RefusedBatches | None = None,
    ) -> None:
        """`changes` takes wishes for another ISR, where there are other brokers. `high_watermark` is what a former
        life has left. `inspections` judges batches beside the loop; without it, all are judged on it. `refused` is
        the node's."""
        self.topic, self.number = log.partition.topic, log.partition.partition
        self.topic_id, self.log = topic_id, log
        self.refused = RefusedBatches() if refused is None else refused
        self.leader_id = NOBODY
        self.leader_epoch: LeaderEpoch = 0
        self.partition_epoch = -1
        """Moves with every change of the partition, those of its ISR included."""
        self.epoch_start: Offset = 0
        """While it is led here: where the log ended when that began."""
        self.is_leader = False
        self.followers: InSync | None = None
        """While it is led here: its other replicas; None if it has none."""
        self.in_sync = 1
        """Replicas in sync, this one included, as the controller has it."""
        self.min_in_sync = 1
        self.high_watermark = max(log.log_start, min(high_watermark, log.log_end))
        self.leader_high_watermark: Offset = self.high_watermark
        """While it follows: what its leader said last, which may be ahead of the log here."""
        self._world, self._durability = world, durability
        self._write_later, self._changes = write_later, changes
        self._inspections, self._stalled = inspections, StalledCommit()
        self._may_look = None if inspections is None else inspections.may_look
        self._is_staged = False
        """Something is staged, and `write` will be called at the end of the turn."""
        self._staged_bytes = 0
        self._ends_transaction = False
        """Something that is staged may end a transaction."""
        self._unwritten: list[Writer] = []
        self.foretold: list[Foretold] = []
        """Replies to batches that are staged, by offset but for retries: they hear of the write only if it fails."""
        self._committing: deque[Writer] = deque()
        """Written, and waiting for followers; by offset, but for retries."""
        self._uncommitted_ends: deque[tuple[Offset, Offset]] = deque()
        """Markers above the high watermark: their offsets, and what was stable before. Until a marker is committed
        its transaction is undecided for readers: another leader may not have it."""
        self._syncs = GroupCommit(log, lane, self._settle, lambda: self.disk_failed(DAMAGED))
        self._too_few_ms: int | None = None
        """Since when too few replicas are in sync, as far as somebody waits for more."""
        self._overdue_timer: Timer | None = None
        """Runs while somebody waits for followers or a sync, for those who cannot wait longer."""
        self._flush_timer: Timer | None = None
        """Runs while records are unsynced, if `flush.ms` limits how long they may be."""
        self._watchers: dict[Watcher, None] = {}
        self._tails: dict[Tail, None] = {}
        self._lowering: list[tuple[Offset, LowWatermarkReached]] = []
        """Who waits until no replica has anything below an offset."""
        self.bytes_out = self.messages_out = 0
        """What clients were given of it."""
        self.copied_bytes = self.copied_records = 0
        """What came from other leaders."""

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} {self.log.log_start}..{self.high_watermark}>"

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    @property
    def bytes_in(self) -> int:
        """What was written to it while it was led here."""
        return self.log.written_bytes - self.copied_bytes

    @property
    def messages_in(self) -> int:
        return self.log.written_records - self.copied_records

    @property
    def last_stable(self) -> Offset:
        """First offset that a reader of committed data may not see yet. Invariant: at most the high watermark."""
        stable = min(self.high_watermark, self.log.last_stable)
        return min(stable, self._uncommitted_ends[0][1]) if self._uncommitted_ends else stable

    @property
    def waiting(self) -> int:
        """Batches that wait to be written, replicated or synced."""
        return len(self._unwritten) + len(self._committing) + len(self._syncs.waiting)

    @property
    def least_in_sync(self) -> int:
        """So many must be in sync: of a partition that has fewer replicas than are asked for, all."""
        followers = self.followers
        return min(self.min_in_sync, 1 if followers is None else len(followers.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether it is led here and so few are in sync that nothing more is committed."""
        return self.followers is not None and self.in_sync < self.least_in_sync

    @property
    def may_be_deposed(self) -> bool:
        """Whether another replica may lead it by now, and this node has not heard of it: it was cut off, or stood
        still. A partition with a single replica can be led by nobody else."""
        changes = self._changes
        return self.followers is not None and changes is not None and not changes.is_in_touch()

    # -- writing ---------------------------------------------------------------------------------------

    def check_refused(self, records: memoryview) -> None:
        """Refuse a batch that is behind a refused one of the same producer, with the same error."""
        if self.refused:
            now_ms = self._world.clock_ns() // 1_000_000
            self.refused.check(self.log, self.topic_id, records, now_ms)

    def stage(
        self,
        records: memoryview,
        acks: int,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
        inspected: Inspected | None = None,
    ) -> Appended:
        """Check a batch and give it its offset; `wait` for it right after. Raises what the producer is to be told, or
        `NeedsInspection` where a client's batch takes too long to look at (`replica.inspections`)."""
        if inspected is not None and not self.is_leader:
            raise KafkaError(
                f"{self.name} is led elsewhere now; refresh metadata and retry",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        if acks == ALL_IN_SYNC and self.in_sync < self.min_in_sync and self.in_sync < self.least_in_sync:
            raise KafkaError(
                f"{self.name} has {self.in_sync} replicas in sync, {self.least_in_sync} are needed",
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        followers = self.followers
        if followers is not None:
            followers.left_behind(self.log.log_end)  # what was staged is written now if a segment is full
        stable = self.last_stable if origin is not _CLIENT and followers is not None else None
        try:
            appended = self.log.stage(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                may_look=self._may_look,
                inspected=inspected,
            )
        except StorageError as error:
            logger.error("%s", error)
            self._written(error)
            self.disk_failed(UNWRITABLE)
            raise
        if origin is not _CLIENT:
            self._ends_transaction = True
            if stable is not None and records[FLAGS_AT] & CONTROL_MASK:
                self._uncommitted_ends.append((appended.last_offset, stable))
        self._staged_bytes += len(records)
        if not self._is_staged:
            self._is_staged = True
            self._write_later(self.write)
        return appended

    def stage_own(
        self, batch: bytearray, now_ms: TimestampMs, staged: Callable[[Appended | KafkaError], None]
    ) -> None:
        """Stage a batch that this node has made for a client, and call `staged` with what came of it: at once, unless
        it, or one before it, takes long to look at or to bring into the topic's codec. Their order is kept."""

        def stage(inspected: Inspected | None) -> Appended:
            return self.stage(memoryview(batch), ALL_IN_SYNC, now_ms, inspected=inspected)

        if self._inspections is not None:
            self._inspections.stage_in_order(self, stage, staged)
            return
        outcome: Appended | KafkaError
        try:
            outcome = stage(None)
        except KafkaError as error:
            outcome = error
        staged(outcome)

    def stage_plain(
        self,
        view: memoryview,
        length: int,
        last_offset_delta: int,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
    ) -> Offset:
        """`Log.stage_plain`, for a producer that waits for the write alone: put what it is told into `foretold`."""
        offset = self.log.stage_plain(
            view, length, last_offset_delta, max_timestamp, self.leader_epoch, now_ms
        )
        if offset >= 0:
            self._staged_bytes += length
            if not self._is_staged:
                self._is_staged = True
                self._write_later(self.write)
        return offset

    def wait(self, writer: Writer) -> None:
        """Have a writer settled when its batch is what it asked for."""
        self._unwritten.append(writer)

    def wait_for_written(self, writer: Writer) -> None:
        """The same for a batch that is in the log already: a node that was killed leaves some that are not synced."""
        self.wait(writer)
        if not self._is_staged:
            self._is_staged = True
            self._write_later(self.write)

    def write(self) -> None:
        """Write what was staged in this turn, and answer who waits for no more than that."""
        self._is_staged = False
        if not self.is_leader:
            return  # it stepped down in this very turn: everyone has been told, and the log may be gone
        error: StorageError | None = None
        if self.followers is not None:
            self.followers.left_behind(self.log.log_end)
        try:
            self.log.write_staged()
        except StorageError as failure:
            logger.error("%s", failure)
            error = failure
        self._written(error)
        if error is not None:
            self.disk_failed(UNWRITABLE)

    def disk_failed(self, state: int) -> None:
        """Something could not be written here (UNWRITABLE), or synced or read (DAMAGED): for whoever knows who else
        could lead."""
        raise NotImplementedError

    def _written(self, error: StorageError | None) -> None:
        """What is below the log's end is in the log; nothing else that was staged is."""
        log = self.log
        log_end = log.log_end
        unwritten, self._unwritten = self._unwritten, []
        foretold, self.foretold = self.foretold, []
        if error is not None:
            self._write_failed(error, foretold)
        if log_end > self.high_watermark:
            self._advance()
        unsynced = log_end - log.flushed
        sync_all = unsynced >= log.settings.flush_messages
        sync_committed = self._syncs_committed
        committed = log_end if self.followers is None else self.high_watermark
        for writer in unwritten:
            last_offset = writer.appended.last_offset
            if last_offset >= log_end:
                writer.settle(error or StorageError(f"{self.name} lost what was staged"))
            elif last_offset >= committed and writer.acks == ALL_IN_SYNC:
                self._committing.append(writer)
            elif (sync_all or (sync_committed and writer.acks == ALL_IN_SYNC)) and last_offset >= log.flushed:
                self._syncs.waiting.append(writer)
            else:
                writer.settle(None)
        if self._committing or self._syncs.waiting:
            self._expect_overdue()
        if self._syncs.waiting or sync_all or (sync_committed and self._committing):
            self._syncs.flush()
        elif unsynced and log.settings.flush_ms != _FOREVER and self._flush_timer is None:
            self._flush_timer = self._world.call_later(log.settings.flush_ms, self._flush_is_due)

    def _write_failed(self, error: StorageError, foretold: list[Foretold]) -> None:
        self._forget_lost_ends()
        self._note_refused(self.log.unstaged, error)
        self.log.unstaged = []
        for reply in foretold:
            if reply.last_offset >= self.log.log_end:
                reply.settle(error)

    def _note_refused(self, batches: Iterable[NumberedBatch], error: KafkaError) -> None:
        """These batches are not in the log, or may not stay there, and their producers are told so."""
        now_ms = self._world.clock_ns() // 1_000_000
        for batch in batches:
            self.refused.note((self.topic_id, self.number), batch, error, now_ms, self.log.producers)

    def _unanswered(self, foretold: list[Foretold], writers: list[Writer]) -> list[NumberedBatch]:
        """Of what producers wait for, the first batch of each. The next leader need not have it, and this replica may
        lead again without it."""
        last_offsets = [each.last_offset for each in foretold]
        last_offsets += [each.appended.last_offset for each in writers]
        producers = self.log.producers
        return producers.first_from(max(self.high_watermark, min(last_offsets)), producers.by_id)

    @property
    def _syncs_committed(self) -> bool:
        if self._durability is Durability.ALONE:
            return self.in_sync == 1
        return self._durability is Durability.ALWAYS

    def _flush_is_due(self) -> None:
        self._flush_timer = None
        self._syncs.flush()

    def accept_loss(self, first_offset: Offset) -> None:
        """Let readers of committed records pass a transaction in doubt; durable when this returns."""
        self.log.accept_loss(first_offset)
        for watcher in list(self._watchers):
            watcher.decided()

    # -- committing ------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Move the high watermark to what every replica in sync has."""
        if self.followers is not None:
            self._commit(self.followers)
            return
        self.high_watermark = max(self.high_watermark, self.log.log_end)
        more, self._staged_bytes = self._staged_bytes, 0
        if self._committing:  # for followers that are gone
            self._settle_committed()
        if self._watchers:
            for watcher in list(self._watchers):
                if self._ends_transaction:
                    watcher.decided()
                else:
                    watcher.grew(more)
        self._ends_transaction = False

    def _commit(self, followers: InSync) -> None:
        if self._staged_bytes and not self._is_staged:  # what is staged is told of when it is written
            more, self._staged_bytes = self._staged_bytes, 0
            for tail in list(self._tails):
                tail.wrote(more)
        if self.in_sync < self.least_in_sync:
            return  # too few to vouch for anything: who is elected next need not have it (KIP-966)
        changes = self._changes
        if changes is None:
            end = followers.committed_end(self.log.log_end, 0, -1, lambda *_: False)
        else:
            end = followers.committed_end(
                self.log.log_end, changes.now_ms(), changes.lag_ms_max, changes.is_eligible
            )
        if end <= self.high_watermark:
            return
        self.high_watermark = end
        ends = self._uncommitted_ends
        while ends and ends[0][0] < end:
            ends.popleft()
        if self._committing:
            self._settle_committed()
        for watcher in list(self._watchers):
            watcher.decided()
        for tail in list(self._tails):
            tail.moved()

    def _settle_committed(self) -> None:
        """Answer who waited for followers, or have them wait for the disk."""
        log, committing, high_watermark = self.log, self._committing, self.high_watermark
        syncs = self._syncs_committed or log.log_end - log.flushed >= log.settings.flush_messages
        while committing and committing[0].appended.last_offset < high_watermark:
            writer = committing.popleft()
            if syncs and writer.appended.last_offset >= log.flushed:
                self._syncs.waiting.append(writer)
            else:
                self._settle(writer, None)
        if self._syncs.waiting:
            self._syncs.flush()

    def _settle(self, writer: Writer, error: KafkaError | None) -> None:
        """It is committed, and on disk if that was asked for; but what vouches for it may have become too little."""
        if error is None and writer.acks == ALL_IN_SYNC and self.is_under_min_isr:
            error = self._too_few()
        writer.settle(error)

    def _forget_lost_ends(self) -> None:
        """Markers that could not be written have ended nothing."""
        ends = self._uncommitted_ends
        while ends and ends[-1][0] >= self.log.log_end:
            ends.pop()

    def _expect_overdue(self) -> None:
        if self._overdue_timer is None:
            self._overdue_timer = self._world.call_later(OVERDUE_CHECK_MS, self._give_up_overdue)

    def _give_up_overdue(self) -> None:
        """Answer those for whom it takes too long. What they wrote stays, and may yet become durable."""
        self._overdue_timer = None
        if self._committing:
            self._advance()  # the time for which a replica outside the ISR is waited for may be over
        now_ms = self._world.now_ms()
        for waiting, what in (
            (self._committing, "replicated"),
            (self._syncs.waiting, "synced"),
        ):
            overdue = [each for each in waiting if each.deadline_ms <= now_ms]
            if not overdue:
                continue
            kept = [each for each in waiting if each.deadline_ms > now_ms]
            waiting.clear()
            waiting.extend(kept)
            for writer in overdue:
                writer.settle(
                    KafkaError(f"{self.name} could not be {what} in time", ErrorCode.REQUEST_TIMED_OUT)
                )
        if self.is_under_min_isr:
            self._answer_too_few(now_ms)
        else:
            self._too_few_ms = None
        if self._committing and self.may_be_deposed:
            if self._stalled.is_overdue(self.high_watermark, self._world.clock_ns() // 1_000_000):
                self._answer_deposed()
        else:
            self._stalled.reset()
        if self._committing or self._syncs.waiting:
            self._expect_overdue()

    def _answer_deposed(self) -> None:
        """Send clients to look for the next leader. Their batches stay in the log: if this replica still leads,
        retries are answered with the offsets of these batches."""
        clients = self._take_clients()
        if not clients:
            return
        why = KafkaError(
            f"This broker may no longer lead {self.name}: neither the controller nor the ISR was heard of late. "
            "Refresh metadata and retry.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        self._note_refused(self._unanswered([], clients), why)
        for writer in clients:
            writer.settle(why)

    def _answer_too_few(self, now_ms: TimestampMs) -> None:
        """Tell clients that nothing is committed with so few replicas in sync, before their time is up. Coordinators
        wait for what becomes of their writes in any case."""
        if self._too_few_ms is None:
            self._too_few_ms = now_ms
        if now_ms - self._too_few_ms < TOO_FEW_MS:
            return
        for writer in self._take_clients():
            writer.settle(self._too_few())

    def _take_clients(self) -> list[Writer]:
        """Remove and return who waits for followers, but for coordinators."""
        clients = [each for each in self._committing if each.deadline_ms != _FOREVER]
        self._committing = deque(each for each in self._committing if each.deadline_ms == _FOREVER)
        return clients

    def _too_few(self) -> KafkaError:
        return KafkaError(
            f"{self.name} has {self.in_sync} replicas in sync by now, {self.least_in_sync} are needed",
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )

    # -- reading ---------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def tail(self, tail: Tail) -> None:
        """Tell a follower of everything that is written from now on."""
        self._tails[tail] = None

    def untail(self, tail: Tail) -> None:
        self._tails.pop(tail, None)

    def delete_records(self, offset: Offset) -> Offset:
        """Have the log begin at an offset, -1 for the high watermark; where it begins now."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                f"{self.name} ends at {self.high_watermark}, records before {offset} cannot be deleted",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if offset > self.log.log_start:
            self.log.advance_start(offset)
            for watcher in list(self._watchers):
                watcher.changed()
            for tail in list(self._tails):
                tail.changed()
        return self.log.log_start
