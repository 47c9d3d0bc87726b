"""One replica of a partition: its role (leader or follower), its ISR and its high watermark.

A leader appends batches (`append_path`) and acknowledges them (`pending_acks`). Followers fetch them; the offsets they
fetch tell the leader what they have (`isr`). When a follower catches up or falls behind, the leader asks the
controller for another ISR (`isr_changes`). A follower learns the high watermark from its leader (`follower_replica`).

`lead` and `follow` apply the newest partition record of the metadata log. Applying one twice does no harm.
"""

import logging
from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.base.world import World
from penstock.metadata.controller.requests import DAMAGED
from penstock.metadata.image import PartitionRegistration
from penstock.replica.append_path import AppendPath
from penstock.replica.delayed_operations import DelayedFetch, DelayedFollowerFetch, Durability
from penstock.replica.inspections import Inspections
from penstock.replica.isr import FetchTime, Isr
from penstock.replica.isr_changes import IsrChanges
from penstock.replica.pending_acks import PendingAcks
from penstock.replica.refused_batches import RefusedBatches
from penstock.replica.sync_lane import SyncLane
from penstock.storage import CorruptLog, Log, StorageError
from penstock.storage.unread import UnreadRecords

logger = logging.getLogger(__name__)

HAND_OVER_RETRY_MS: Final = 100
"""How long a damaged leader waits before it asks for another leader again, while another ISR change is pending."""

NO_LEADER: Final = -1
"""The leader id of a partition without a leader."""

NO_EPOCH: Final = -1
"""The leader epoch of a client that does not know it."""

LowWatermarkReached = Callable[[KafkaError | None], None]
"""Called without an error when the low watermark is reached, or with the reason why it will not be."""


class Partition:
    """A replica on this broker. Made by `Replicas`."""

    __slots__ = (
        "_acks",
        "_changes",
        "_fetches",
        "_follower_fetches",
        "_low_watermark_waiters",
        "_world",
        "appends",
        "bytes_out",
        "check_refused",
        "copied_bytes",
        "copied_records",
        "epoch_start",
        "high_watermark",
        "is_leader",
        "isr",
        "isr_size",
        "leader_epoch",
        "leader_high_watermark",
        "leader_id",
        "log",
        "messages_out",
        "min_isr",
        "number",
        "partition_epoch",
        "stage",
        "stage_own",
        "stage_plain",
        "topic",
        "topic_id",
        "wait",
        "wait_for_written",
        "write",
    )

    high_watermark: Offset
    """First offset that is not on every replica of the ISR. Consumers read below it. Moves back only where the
    log is truncated below it. Invariant: last_stable <= high_watermark, and on a leader high_watermark <= log_end."""

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
        """`changes` sends ISR changes to the controller; None on a node without one. `high_watermark` is the
        checkpointed one. `refused` is shared by all partitions of the node. For `write_later` and `inspections`
        see `AppendPath`."""
        self.topic, self.number = log.partition.topic, log.partition.partition
        self.topic_id, self.log = topic_id, log
        self.leader_id = NO_LEADER
        self.leader_epoch: LeaderEpoch = 0
        self.partition_epoch = -1
        """Moves with every change of the partition in the metadata log, ISR changes included."""
        self.epoch_start: Offset = 0
        """On a leader: the log end when its leader epoch began."""
        self.is_leader = False
        self.isr: Isr | None = None
        """On a leader: its followers and the ISR; None if it is the only replica."""
        self.isr_size = 1
        """Size of the ISR, this replica included, as the controller has it."""
        self.min_isr = 1
        """`min.insync.replicas`."""
        self.high_watermark = max(log.log_start, min(high_watermark, log.log_end))
        self.leader_high_watermark: Offset = self.high_watermark
        """On a follower: the leader's high watermark, which may be beyond the log end here."""
        self._world, self._changes = world, changes
        self._acks = PendingAcks(self, world, lane, durability)
        refused = RefusedBatches() if refused is None else refused
        appends = self.appends = AppendPath(self, self._acks, world, write_later, inspections, refused)
        # Bound here, because a method that forwards would cost a call for each batch.
        self.check_refused, self.write = appends.check_refused, appends.write
        self.stage, self.stage_own, self.stage_plain = appends.stage, appends.stage_own, appends.stage_plain
        self.wait, self.wait_for_written = appends.wait, appends.wait_for_written
        self._fetches: dict[DelayedFetch, None] = {}
        self._follower_fetches: dict[DelayedFollowerFetch, None] = {}
        self._low_watermark_waiters: list[tuple[Offset, LowWatermarkReached]] = []
        self.bytes_out = self.messages_out = 0
        """Fetched by clients."""
        self.copied_bytes = self.copied_records = 0
        """Replicated from leaders."""

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} {self.log.log_start}..{self.high_watermark}>"

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    @property
    def bytes_in(self) -> int:
        """Appended while this broker led."""
        return self.log.written_bytes - self.copied_bytes

    @property
    def messages_in(self) -> int:
        return self.log.written_records - self.copied_records

    @property
    def last_stable(self) -> Offset:
        """First offset that a `read_committed` consumer cannot read yet. Invariant: at most the high watermark."""
        stable = min(self.high_watermark, self.log.last_stable)
        markers = self.appends.uncommitted_markers
        return min(stable, markers[0][1]) if markers else stable

    @property
    def waiting(self) -> int:
        """Batches that wait to be written, replicated or synced."""
        acks = self._acks
        return self.appends.unwritten + len(acks.replicating) + len(acks.syncs.waiting)

    @property
    def required_isr(self) -> int:
        """How many replicas must be in sync: `min.insync.replicas`, or all replicas if there are fewer."""
        isr = self.isr
        return min(self.min_isr, 1 if isr is None else len(isr.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this broker leads and too few replicas are in sync to commit anything."""
        return self.isr is not None and self.isr_size < self.required_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads and a replica is not in sync."""
        return self.isr is not None and self.isr_size <= len(self.isr.followers)

    @property
    def may_be_deposed(self) -> bool:
        """Whether the controller may have elected another leader without this broker knowing: it was cut off, or
        paused. A partition with a single replica cannot have another leader."""
        changes = self._changes
        return self.isr is not None and changes is not None and not changes.has_lease()

    # -- leadership ------------------------------------------------------------------------------------

    def lead(self, placed: PartitionRegistration, min_isr: int) -> None:
        """Become leader, or apply a newer partition record as leader. `placed` is the partition in the cluster
        image."""
        self.min_isr = min_isr
        is_new_epoch = not self.is_leader or placed.leader_epoch != self.leader_epoch
        if is_new_epoch:
            self.is_leader = True
            self.leader_id, self.leader_epoch = placed.leader, placed.leader_epoch
            if len(placed.replicas) > 1:
                self.log.limit_epochs(placed.leader_epoch)
            self.log.begin_epoch(placed.leader_epoch)
            self.high_watermark = min(self.high_watermark, self.log.log_end)
            self.epoch_start = self.log.log_end
        elif placed.partition_epoch < self.partition_epoch:
            self.advance_high_watermark()
            return  # the controller's response arrived before the record
        if is_new_epoch or placed.partition_epoch > self.partition_epoch or self.isr is None:
            self._apply_isr(placed, is_new_epoch)
        self.partition_epoch = placed.partition_epoch
        self.advance_high_watermark()
        if self.log.is_damaged:
            self.damage_found()

    def _apply_isr(self, placed: PartitionRegistration, is_new_epoch: bool) -> None:
        before = self.isr_size if self.is_leader and not is_new_epoch else None
        if len(placed.replicas) == 1:
            self.isr = None
        else:
            if self.isr is None:
                self.isr = Isr(placed.leader)
            self.isr.apply(placed, self._now_ms(), is_new_epoch=is_new_epoch)
        self._isr_changed(before, len(placed.isr))
        if self._changes is not None:
            if self.isr is None:
                self._changes.unwatch(self)
            else:
                self._changes.watch(self)

    def require(self, min_isr: int) -> None:
        """`min.insync.replicas` has changed."""
        self.min_isr = min_isr
        if self.isr is not None:
            self.advance_high_watermark()

    def follow(
        self, leader_id: int, leader_epoch: LeaderEpoch, why: KafkaError, partition_epoch: int = -1
    ) -> None:
        """Follow another leader, or none. A former leader fails all requests that wait with `why`, and drops what it
        staged."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            self._resign(why)
        self.is_leader = False
        self.leader_id, self.leader_epoch, self.partition_epoch = leader_id, leader_epoch, partition_epoch
        if leader_id != NO_LEADER:
            self.log.limit_epochs(leader_epoch)
        if self._changes is not None and self._changes.failing is not None:
            self._changes.failing.placed(self)

    def step_down(self, why: KafkaError) -> None:
        """Neither lead nor follow: the partition is removed, or the node stops."""
        self._resign(why)
        self.is_leader = False
        self.leader_id = NO_LEADER

    def _resign(self, why: KafkaError) -> None:
        self.is_leader = False
        self.isr = None
        if self._changes is not None:
            self._changes.unwatch(self)
        self.appends.abandon(why)
        waiters, self._low_watermark_waiters = self._low_watermark_waiters, []
        for _, call in waiters:
            call(why)
        fetches, self._fetches = self._fetches, {}
        follower_fetches, self._follower_fetches = self._follower_fetches, {}
        for fetch in fetches:
            fetch.changed()
        for follower_fetch in follower_fetches:
            follower_fetch.changed()

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Refuse a request that names another leader epoch (KIP-320)."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(f"{self.name} is in leader epoch {self.leader_epoch}, not {epoch}", code)

    # -- damage ----------------------------------------------------------------------------------------

    def read_ahead(
        self,
        offset: Offset,
        bytes_max: int,
        ahead_max: int | None,
        *,
        visible: Offset | None = None,
        whole_first: bool = True,
    ) -> bytes | UnreadRecords:
        """`Log.read_ahead`. A read that finds damage has another replica lead, and fails with a retriable error. If no
        other replica is in sync, it fails with CORRUPT_MESSAGE."""
        try:
            return self.log.read_ahead(offset, bytes_max, ahead_max, visible=visible, whole_first=whole_first)
        except CorruptLog as error:
            self.damage_found()
            if not self.is_leader or (self.isr is not None and self.isr.others):
                raise
            raise KafkaError(str(error), ErrorCode.CORRUPT_MESSAGE) from error
        except StorageError:
            self.disk_failed(DAMAGED)
            raise

    def damage_found(self) -> None:
        """The log has a batch that is not what was written. A leader hands over to another replica; a follower leaves
        the ISR. Either replicates the records again once it is out of the ISR."""
        if not self.is_leader:
            if self._changes is not None and self._changes.failing is not None:
                self._changes.failing.damaged(self)
            return
        if self.isr is not None and not self.isr.is_handing_over:
            self.isr.is_handing_over = True
            self._world.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Propose an ISR without this damaged leader, if others are in sync."""
        isr, changes = self.isr, self._changes
        if isr is None or changes is None or not self.log.is_damaged:
            return
        if isr.pending is not None:
            self._world.call_later(HAND_OVER_RETRY_MS, self.hand_over)
            return
        logger.error("%s is damaged on this broker; handing over leadership to an in-sync replica", self.name)
        changes.propose(self, isr.others, DAMAGED)

    def disk_failed(self, state: int) -> None:
        """The disk failed to write (UNWRITABLE), or to sync or read (DAMAGED). A leader hands over if another replica
        is in sync; a follower leaves the ISR. Either replicates again once a trial write succeeds."""
        isr, changes = self.isr, self._changes
        if changes is None or (self.is_leader and isr is None):
            return
        if changes.failing is not None:
            changes.failing.failed(self, state)
        if isr is not None and isr.pending is None and isr.others:
            logger.error(
                "the disk of %s fails on this broker; handing over leadership to an in-sync replica",
                self.name,
            )
            changes.propose(self, isr.others, state)

    @property
    def has_failing_disk(self) -> bool:
        """Whether its disk failed, and no trial write has succeeded since."""
        failing = None if self._changes is None else self._changes.failing
        return failing is not None and failing.is_failing(self)

    def mend(self) -> None:
        """Truncate the log where it is damaged. It is out of the ISR, and the leader has the rest. The high watermark
        stays: nothing is read here before the log has reached it again."""
        old_end = self.log.log_end
        end = self.log.cut_damage()
        logger.warning(
            "%s was damaged: it is truncated to %d, and %d to %d are replicated again",
            self.name,
            end,
            end,
            old_end,
        )

    @property
    def is_behind(self) -> bool:
        """Whether committed records are missing here."""
        return self.log.log_end < self.high_watermark

    # -- followers and the ISR -------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._world.clock_ns() // 1_000_000

    def check_follower(self, broker_id: int, broker_epoch: int, leader_epoch: LeaderEpoch) -> None:
        """Refuse a fetch of a broker that is not a replica, or that has restarted since (an older broker epoch)."""
        if self.isr is None or broker_id not in self.isr.followers:
            # With the current leader epoch it has newer metadata: a reassignment that is not applied here yet.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(f"broker {broker_id} is not a replica of {self.name}", code)
        if self._changes is not None and self._changes.is_former(broker_id, broker_epoch):
            raise KafkaError(
                f"broker {broker_id} fetches {self.name} with its former broker epoch {broker_epoch}",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def fetched_by(
        self,
        broker_id: int,
        broker_epoch: int,
        offset: Offset,
        log_start: Offset,
        now_ms: int,
        last_fetch: FetchTime | None = None,
    ) -> None:
        """A follower fetches from `offset`: it has everything below. `now_ms` is of a monotonic clock. `last_fetch` is
        shared by the partitions of a fetch session, whose requests leave idle partitions out."""
        isr = self.isr
        assert isr is not None, "checked by check_follower"
        follower = isr.followers[broker_id]
        before, start_before = follower.log_end, follower.log_start
        follower.fetched(offset, log_start, self.log.log_end, broker_epoch, now_ms)
        follower.last_fetch = last_fetch
        if self._low_watermark_waiters and log_start != start_before:
            self._call_low_watermark_waiters()
        changes = self._changes
        if (
            broker_id not in isr.committed
            and changes is not None
            and isr.may_join(follower, self.high_watermark, self.epoch_start, changes.is_eligible)
        ):
            logger.debug("%s: replica %d has caught up at %d", self.name, broker_id, offset)
            changes.propose(self, (*isr.committed, broker_id))
        if offset != before:
            self.advance_high_watermark()

    def drop_lagging(self, now_ms: int) -> None:
        """Propose an ISR without the followers that fell behind."""
        isr, changes = self.isr, self._changes
        if isr is None or changes is None:
            return
        if self.log.is_damaged and isr.pending is None:
            self.hand_over()
        lagging = isr.lagging(self.log.log_end, now_ms, changes.lag_ms_max)
        if lagging:
            logger.warning(
                "%s: replicas %s have been behind the log end %d for too long, and leave the ISR %s",
                self.name,
                lagging,
                self.log.log_end,
                list(isr.committed),
            )
            changes.propose(self, tuple(each for each in isr.committed if each not in lagging))

    def isr_decided(self, leader_epoch: LeaderEpoch, partition_epoch: int, members: tuple[int, ...]) -> None:
        """The controller has accepted a proposed ISR."""
        isr = self.isr
        if isr is None or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return  # the metadata log has brought something newer
        isr.decided(members)
        self.partition_epoch = partition_epoch
        self._isr_changed(self.isr_size, len(members))
        self.advance_high_watermark()

    def isr_refused(self) -> None:
        """The controller has rejected a proposed ISR; the ISR is unchanged."""
        if self.isr is not None:
            self.isr.discard_pending()
            self.advance_high_watermark()

    def _isr_changed(self, before: int | None, after: int) -> None:
        self.isr_size = after
        if before is not None and before != after and self._changes is not None:
            self._changes.count(before, after)
        self._acks.isr_changed(before, after)
        for follower_fetch in list(self._follower_fetches):
            follower_fetch.moved()
        if self._low_watermark_waiters:
            self._call_low_watermark_waiters()

    # -- the high watermark ----------------------------------------------------------------------------

    def advance_high_watermark(self) -> None:
        """Move the high watermark of a leader to the first offset that a replica of the ISR lacks."""
        if self.isr is not None:
            self._commit(self.isr)
            return
        self.high_watermark = max(self.high_watermark, self.log.log_end)
        appends = self.appends
        more, appends.staged_bytes = appends.staged_bytes, 0
        if self._acks.replicating:  # from when the partition had more replicas
            self._acks.committed(self.high_watermark)
        if self._fetches:
            for fetch in list(self._fetches):
                if appends.ends_transaction:
                    fetch.decided()
                else:
                    fetch.grew(more)
        appends.ends_transaction = False

    def _commit(self, isr: Isr) -> None:
        appends = self.appends
        if (
            appends.staged_bytes and not appends.is_staged
        ):  # staged batches are announced when they are written
            more, appends.staged_bytes = appends.staged_bytes, 0
            for follower_fetch in list(self._follower_fetches):
                follower_fetch.wrote(more)
        if self.isr_size < self.required_isr:
            return  # too few to commit anything: the next leader need not have it (KIP-966)
        changes = self._changes
        if changes is None:
            end = isr.committed_end(self.log.log_end, 0, -1, lambda *_: False)
        else:
            end = isr.committed_end(
                self.log.log_end, changes.now_ms(), changes.lag_ms_max, changes.is_eligible
            )
        if end <= self.high_watermark:
            return
        self.high_watermark = end
        markers = appends.uncommitted_markers
        while markers and markers[0][0] < end:
            markers.popleft()
        if self._acks.replicating:
            self._acks.committed(end)
        for fetch in list(self._fetches):
            fetch.decided()
        for follower_fetch in list(self._follower_fetches):
            follower_fetch.moved()

    def follow_high_watermark(self, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """Take over the high watermark and log start of the leader. To move the log start of many partitions, call
        `LogDirectory.checkpoints.save_log_starts` for all of them first."""
        self.leader_high_watermark = leader_high_watermark
        high_watermark = min(leader_high_watermark, self.log.log_end)
        has_moved = high_watermark > self.high_watermark
        if has_moved:
            self.high_watermark = high_watermark
        if self.log.log_start < leader_log_start <= min(self.high_watermark, self.log.log_end):
            try:
                self.log.advance_start(leader_log_start)
            except StorageError as error:
                logger.error("%s", error)
        if has_moved:
            for fetch in list(self._fetches):
                fetch.decided()

    # -- fetches that wait -----------------------------------------------------------------------------

    def watch(self, fetch: DelayedFetch) -> None:
        """Notify a consumer's fetch of new records until `unwatch`."""
        self._fetches[fetch] = None

    def unwatch(self, fetch: DelayedFetch) -> None:
        self._fetches.pop(fetch, None)

    def tail(self, fetch: DelayedFollowerFetch) -> None:
        """Notify a follower of every write until `untail`."""
        self._follower_fetches[fetch] = None

    def untail(self, fetch: DelayedFollowerFetch) -> None:
        self._follower_fetches.pop(fetch, None)

    # -- deleting records ------------------------------------------------------------------------------

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start to an offset (-1: to the high watermark) and return the log start."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                f"{self.name} ends at {self.high_watermark}, records before {offset} cannot be deleted",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if offset > self.log.log_start:
            self.log.advance_start(offset)
            for fetch in list(self._fetches):
                fetch.changed()
            for follower_fetch in list(self._follower_fetches):
                follower_fetch.changed()
        return self.log.log_start

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of all live replicas."""
        if self.isr is None or self._changes is None:
            return self.log.log_start
        return self.isr.low_watermark(self.log.log_start, self._changes.is_alive)

    def when_low(self, offset: Offset, call: LowWatermarkReached) -> None:
        """Call when the low watermark reaches an offset, which may be now."""
        self._low_watermark_waiters.append((offset, call))
        self._call_low_watermark_waiters()

    def _call_low_watermark_waiters(self) -> None:
        low = self.low_watermark
        reached = [call for offset, call in self._low_watermark_waiters if offset <= low]
        self._low_watermark_waiters = [each for each in self._low_watermark_waiters if each[0] > low]
        for call in reached:
            call(None)

    def accept_loss(self, first_offset: Offset) -> None:
        """Let `read_committed` consumers pass an undecided transaction. Durable when this returns."""
        self.log.accept_loss(first_offset)
        for fetch in list(self._fetches):
            fetch.decided()
