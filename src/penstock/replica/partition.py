"""One replica of a partition: who leads it, who follows, and what that means for its records.

A leader takes batches in (`data_path`). Its followers fetch them, and by what they ask for it knows what they have
(`in_sync`); whom it finds to have caught up or to have fallen behind it reports to the controller (`isr_changes`),
whose word is law. A follower is told the high watermark by its leader.

Both hear from the metadata log who leads: `lead` and `follow` may be called again and again, with the newest there is.
"""

import logging
from collections import deque
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset
from penstock.metadata.controller.requests import DAMAGED
from penstock.metadata.image import Partition as Placed
from penstock.replica.data_path import NOBODY, DataPath, LowWatermarkReached
from penstock.replica.in_sync import InSync, Seen
from penstock.replica.sync_lane import SyncLane
from penstock.replica.waiting import ALL_IN_SYNC, Durability, Foretold, Tail, Watcher, Writer
from penstock.storage import CorruptLog, StorageError
from penstock.storage.unread import UnreadRecords

__all__ = [
    "ALL_IN_SYNC",
    "NOBODY",
    "NO_EPOCH",
    "Durability",
    "Foretold",
    "Partition",
    "SyncLane",
    "Tail",
    "Watcher",
    "Writer",
]

logger = logging.getLogger(__name__)

HAND_OVER_RETRY_MS: Final = 100
"""After so long a damaged leader asks for another one again, while the controller thinks about something else."""

NO_EPOCH: Final = -1
"""The leader epoch of a client that does not know it."""


class Partition(DataPath):
    """Led here, or following. Made by `Replicas`."""

    __slots__ = ()

    @property
    def is_under_replicated(self) -> bool:
        """Whether it is led here and a replica is not in sync."""
        return self.followers is not None and self.in_sync <= len(self.followers.followers)

    # -- who leads -------------------------------------------------------------------------------------

    def lead(self, placed: Placed, min_in_sync: int) -> None:
        """Lead from now on, or go on leading with other replicas. `placed` is the partition in the cluster's image,
        and this node its leader."""
        self.min_in_sync = min_in_sync
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
            self._advance()
            return  # the controller's answer was here before its record
        if is_new_epoch or placed.partition_epoch > self.partition_epoch or self.followers is None:
            self._place(placed, is_new_epoch)
        self.partition_epoch = placed.partition_epoch
        self._advance()
        if self.log.is_damaged:
            self.damage_found()

    def _place(self, placed: Placed, is_new_epoch: bool) -> None:
        before = self.in_sync if self.is_leader and not is_new_epoch else None
        if len(placed.replicas) == 1:
            self.followers = None
        else:
            if self.followers is None:
                self.followers = InSync(placed.leader)
            self.followers.place(placed, self._now_ms(), is_new_epoch=is_new_epoch)
        self._isr_changed(before, len(placed.isr))
        if self._changes is not None:
            if self.followers is None:
                self._changes.unwatch(self)
            else:
                self._changes.watch(self)

    def require(self, min_in_sync: int) -> None:
        """So many replicas must be in sync from now on."""
        self.min_in_sync = min_in_sync
        if self.followers is not None:
            self._advance()

    def follow(
        self, leader_id: int, leader_epoch: LeaderEpoch, why: KafkaError, partition_epoch: int = -1
    ) -> None:
        """Lead no more, and follow another broker, or nobody: whoever waits is told, and what is not written yet
        never will be."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            self._let_go(why)
        self.is_leader = False
        self.leader_id, self.leader_epoch, self.partition_epoch = leader_id, leader_epoch, partition_epoch
        if leader_id != NOBODY:
            self.log.limit_epochs(leader_epoch)
        if self._changes is not None and self._changes.failing is not None:
            self._changes.failing.placed(self)

    def step_down(self, why: KafkaError) -> None:
        """Lead no more: the partition is gone from here, or the node stops."""
        self._let_go(why)
        self.is_leader = False
        self.leader_id = NOBODY

    def _let_go(self, why: KafkaError) -> None:
        self.is_leader = False
        self.followers = None
        if self._changes is not None:
            self._changes.unwatch(self)
        foretold, writers = self.foretold, [*self._unwritten, *self._committing, *self._syncs.waiting]
        if foretold or writers:
            self._note_refused(self._unanswered(foretold, writers), why)
        self.log.drop_staged()
        self._staged_bytes = 0
        self._uncommitted_ends.clear()
        self.foretold, self._unwritten, self._committing, self._syncs.waiting = [], [], deque(), deque()
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()
            self._overdue_timer = None
        for reply in foretold:
            reply.settle(why)
        for writer in writers:
            writer.settle(why)
        lowering, self._lowering = self._lowering, []
        for _, call in lowering:
            call(why)
        watchers, self._watchers = self._watchers, {}
        tails, self._tails = self._tails, {}
        for watcher in watchers:
            watcher.changed()
        for tail in tails:
            tail.changed()

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Refuse who takes another epoch for the current one (KIP-320)."""
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
        """As the log gives it. Who is the first to meet damage has another replica lead, and is told to come again;
        where there is no other, it is told that the records are corrupt."""
        try:
            return self.log.read_ahead(offset, bytes_max, ahead_max, visible=visible, whole_first=whole_first)
        except CorruptLog as error:
            self.damage_found()
            if not self.is_leader or (self.followers is not None and self.followers.others_in_sync):
                raise
            raise KafkaError(str(error), ErrorCode.CORRUPT_MESSAGE) from error
        except StorageError:
            self.disk_failed(DAMAGED)
            raise

    def damage_found(self) -> None:
        """Something in the log is not what was written. A leader has another replica lead; a follower leaves the ISR,
        which must not count on what is damaged. Either copies it again once nobody counts on it."""
        if not self.is_leader:
            if self._changes is not None and self._changes.failing is not None:
                self._changes.failing.damaged(self)
            return
        if self.followers is not None and not self.followers.is_handing_over:
            self.followers.is_handing_over = True
            self._world.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Ask for another leader, if this replica is damaged and others are not known to be."""
        followers, changes = self.followers, self._changes
        if followers is None or changes is None or not self.log.is_damaged:
            return
        if followers.wish is not None:
            self._world.call_later(HAND_OVER_RETRY_MS, self.hand_over)
            return
        logger.error("%s is damaged here: another replica is to lead it", self.name)
        changes.propose(self, followers.others_in_sync, DAMAGED)

    def disk_failed(self, state: int) -> None:
        """Have another replica lead, if one is in sync: with the next record it could be the same again. A follower
        leaves the ISR. Either is copied again when the disk has taken a trial write."""
        followers, changes = self.followers, self._changes
        if changes is None or (self.is_leader and followers is None):
            return
        if changes.failing is not None:
            changes.failing.failed(self, state)
        if followers is not None and followers.wish is None and followers.others_in_sync:
            logger.error("the disk fails %s here: another replica is to lead it", self.name)
            changes.propose(self, followers.others_in_sync, state)

    @property
    def has_failing_disk(self) -> bool:
        """Whether its disk has refused something, and has taken no trial write since."""
        failing = None if self._changes is None else self._changes.failing
        return failing is not None and failing.is_failing(self)

    @property
    def is_damaged(self) -> bool:
        """Whether something in its log is known not to be what was written."""
        return self.log.is_damaged

    @property
    def written_to(self) -> int:
        return self.log.segments.active.size

    def mend(self) -> None:
        """Cut the log off where it is damaged: the leader has the rest, and nobody counts on what is here. The high
        watermark stays: nobody reads here before what it stands for is back."""
        old_end = self.log.log_end
        end = self.log.cut_damage()
        logger.warning(
            "%s was damaged: it is cut off at %d, and what came after, up to %d, is copied again",
            self.name,
            end,
            old_end,
        )

    @property
    def is_behind(self) -> bool:
        """Whether something is missing that is known to be committed."""
        return self.log.log_end < self.high_watermark

    # -- followers, as the leader sees them ------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._world.clock_ns() // 1_000_000

    def check_follower(self, broker_id: int, broker_epoch: int, leader_epoch: LeaderEpoch) -> None:
        """Refuse a fetch of a broker that is no replica, or of its former life."""
        if self.followers is None or broker_id not in self.followers.followers:
            # Who knows the current epoch is right about the leader: a reassignment has not come here yet.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if leader_epoch >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(f"broker {broker_id} is no replica of {self.name}", code)
        if self._changes is not None and self._changes.is_former(broker_id, broker_epoch):
            raise KafkaError(
                f"broker {broker_id} fetches {self.name} with its former epoch {broker_epoch}",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def fetched_by(
        self,
        broker_id: int,
        broker_epoch: int,
        offset: Offset,
        log_start: Offset,
        now_ms: int,
        seen: Seen | None = None,
    ) -> None:
        """A follower has everything below an offset, which lies in the log. `now_ms` is of a clock that never goes
        back; `seen` tells when the follower last fetched anything, if it need not name each partition each time."""
        followers = self.followers
        assert followers is not None, "it was admitted"
        follower = followers.followers[broker_id]
        before, start_before = follower.log_end, follower.log_start
        follower.fetched(offset, log_start, self.log.log_end, broker_epoch, now_ms)
        follower.seen = seen
        if self._lowering and log_start != start_before:
            self._tell_low_watermark()
        changes = self._changes
        if (
            broker_id not in followers.committed
            and changes is not None
            and followers.may_join(follower, self.high_watermark, self.epoch_start, changes.is_eligible)
        ):
            logger.debug("%s: replica %d has caught up at %d", self.name, broker_id, offset)
            changes.propose(self, (*followers.committed, broker_id))
        if offset != before:
            self._advance()

    def drop_lagging(self, now_ms: int) -> None:
        """Ask for an ISR without the followers that fell behind."""
        followers, changes = self.followers, self._changes
        if followers is None or changes is None:
            return
        if self.log.is_damaged and followers.wish is None:
            self.hand_over()
        lagging = followers.lagging(self.log.log_end, now_ms, changes.lag_ms_max)
        if lagging:
            logger.warning(
                "%s: replicas %s have been behind the log end %d for too long, and leave the ISR %s",
                self.name,
                lagging,
                self.log.log_end,
                list(followers.committed),
            )
            changes.propose(self, tuple(each for each in followers.committed if each not in lagging))

    def isr_decided(self, leader_epoch: LeaderEpoch, partition_epoch: int, isr: tuple[int, ...]) -> None:
        """The controller has changed the ISR as it was asked to."""
        followers = self.followers
        if followers is None or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return  # what the metadata log has said since is newer
        followers.settle(isr)
        self.partition_epoch = partition_epoch
        self._isr_changed(self.in_sync, len(isr))
        self._advance()

    def isr_refused(self) -> None:
        """The controller has not changed the ISR, and it is what it was."""
        if self.followers is not None:
            self.followers.forget_wish()
            self._advance()

    def _isr_changed(self, before: int | None, after: int) -> None:
        self.in_sync = after
        self._too_few_ms = None
        if before is not None and before != after:
            if self._changes is not None:
                self._changes.count(before, after)
            if after == 1 and self._durability is Durability.ALONE:
                # What others vouched for is from now on only here.
                self._syncs.flush()
        for tail in list(self._tails):
            tail.moved()
        if self._lowering:
            self._tell_low_watermark()

    @property
    def low_watermark(self) -> Offset:
        """Below it no replica that is alive has anything."""
        if self.followers is None or self._changes is None:
            return self.log.log_start
        return self.followers.low_watermark(self.log.log_start, self._changes.is_alive)

    def when_low(self, offset: Offset, call: LowWatermarkReached) -> None:
        """Call when the low watermark is at an offset, which may be now."""
        self._lowering.append((offset, call))
        self._tell_low_watermark()

    def _tell_low_watermark(self) -> None:
        low = self.low_watermark
        reached = [call for offset, call in self._lowering if offset <= low]
        self._lowering = [each for each in self._lowering if each[0] > low]
        for call in reached:
            call(None)

    # -- following -------------------------------------------------------------------------------------

    def follow_high_watermark(self, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """What the leader says that it has committed, and where its log begins. Who has many partitions to tell saves
        their new beginnings together first (`LogDirectory.save_log_starts`)."""
        self.leader_high_watermark = leader_high_watermark
        high_watermark = min(leader_high_watermark, self.log.log_end)
        is_news = high_watermark > self.high_watermark
        if is_news:
            self.high_watermark = high_watermark
        if self.log.log_start < leader_log_start <= min(self.high_watermark, self.log.log_end):
            try:
                self.log.advance_start(leader_log_start)
            except StorageError as error:
                logger.error("%s", error)
        if is_news:
            for watcher in list(self._watchers):
                watcher.decided()
