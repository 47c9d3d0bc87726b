"""Produce requests whose batches are written, and that wait for the ISR or for a sync.

    written --> replicating --> committed --> syncing --> acknowledged
                acks=all        by the high    where `durability.fsync` or `flush.messages` requires it
                                watermark

Every `OVERDUE_CHECK_MS` while requests wait, requests past their deadline fail. Clients of a partition that cannot
commit fail earlier, with a retriable error: after `TOO_FEW_MS` below `min.insync.replicas`, and when the leader may
have been deposed and the high watermark does not move (`stalled_commit`).
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NEVER_MS, Offset, TimestampMs
from penstock.base.world import Timer, World
from penstock.metadata.controller.requests import DAMAGED
from penstock.replica.delayed_operations import ALL_IN_SYNC, DelayedProduce, Durability
from penstock.replica.leader_syncs import LeaderSyncs
from penstock.replica.stalled_commit import StalledCommit
from penstock.replica.sync_lane import SyncLane

if TYPE_CHECKING:
    from penstock.replica.partition import Partition

OVERDUE_CHECK_MS: Final = 100
"""How often deadlines are checked while requests wait for the ISR or for a sync."""

TOO_FEW_MS: Final = 1000
"""How long clients wait while fewer than `min.insync.replicas` are in sync. Most interruptions are shorter."""


class PendingAcks:
    """The requests that wait for one partition. Uses the partition's high watermark and ISR, and has it advance the
    high watermark."""

    __slots__ = (
        "_durability",
        "_overdue_timer",
        "_partition",
        "_stalled",
        "_too_few_ms",
        "_world",
        "replicating",
        "syncs",
    )

    def __init__(self, partition: "Partition", world: World, lane: SyncLane, durability: Durability) -> None:
        self._partition = partition
        self._world = world
        self._durability = durability
        self.replicating: deque[DelayedProduce] = deque()
        """Written, and waiting for the ISR; ordered by offset, except for retries."""
        self.syncs = LeaderSyncs(
            partition.log, lane, self._acknowledge, lambda: partition.disk_failed(DAMAGED)
        )
        self._stalled = StalledCommit()
        self._too_few_ms: int | None = None
        """Since when requests wait while too few replicas are in sync."""
        self._overdue_timer: Timer | None = None

    @property
    def syncs_committed(self) -> bool:
        """Whether a batch with acks=all is synced here before it is acknowledged."""
        if self._durability is Durability.ALONE:
            return self._partition.isr_size == 1
        return self._durability is Durability.ALWAYS

    def isr_changed(self, before: int | None, after: int) -> None:
        """The ISR has another size. `before` is None in a new leader epoch."""
        self._too_few_ms = None
        if before not in (None, after) and after == 1 and self._durability is Durability.ALONE:
            self.syncs.flush()  # the other copies no longer count: the batches must be durable here

    def committed(self, high_watermark: Offset) -> None:
        """Acknowledge the batches below the high watermark, or have them wait for a sync."""
        log, replicating = self._partition.log, self.replicating
        syncs = self.syncs_committed or log.log_end - log.flushed >= log.settings.flush_messages
        while replicating and replicating[0].appended.last_offset < high_watermark:
            produce = replicating.popleft()
            if syncs and produce.appended.last_offset >= log.flushed:
                self.syncs.waiting.append(produce)
            else:
                self._acknowledge(produce, None)
        if self.syncs.waiting:
            self.syncs.flush()

    def _acknowledge(self, produce: DelayedProduce, error: KafkaError | None) -> None:
        """Acknowledge a committed batch, or fail it if the ISR has shrunk below `min.insync.replicas` meanwhile."""
        if error is None and produce.acks == ALL_IN_SYNC and self._partition.is_under_min_isr:
            error = self._too_few()
        produce.settle(error)

    def take_all(self) -> list[DelayedProduce]:
        """Remove and return all requests: this broker no longer leads the partition."""
        taken = [*self.replicating, *self.syncs.waiting]
        self.replicating, self.syncs.waiting = deque(), deque()
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()
            self._overdue_timer = None
        return taken

    # -- deadlines -------------------------------------------------------------------------------------

    def check_deadlines(self) -> None:
        """Check deadlines from now on, as long as requests wait."""
        if self._overdue_timer is None:
            self._overdue_timer = self._world.call_later(OVERDUE_CHECK_MS, self._fail_overdue)

    def _fail_overdue(self) -> None:
        """Fail requests past their deadline. Their batches stay in the log and may become durable later."""
        self._overdue_timer = None
        partition = self._partition
        if self.replicating:
            partition.advance_high_watermark()  # a replica outside the ISR is waited for only for some time
        now_ms = self._world.now_ms()
        for waiting, what in ((self.replicating, "replicated"), (self.syncs.waiting, "synced")):
            overdue = [each for each in waiting if each.deadline_ms <= now_ms]
            if not overdue:
                continue
            kept = [each for each in waiting if each.deadline_ms > now_ms]
            waiting.clear()
            waiting.extend(kept)
            for produce in overdue:
                produce.settle(
                    KafkaError(f"{partition.name} could not be {what} in time", ErrorCode.REQUEST_TIMED_OUT)
                )
        if partition.is_under_min_isr:
            self._fail_too_few(now_ms)
        else:
            self._too_few_ms = None
        if self.replicating and partition.may_be_deposed:
            if self._stalled.is_overdue(partition.high_watermark, self._world.clock_ns() // 1_000_000):
                self._fail_deposed()
        else:
            self._stalled.reset()
        if self.replicating or self.syncs.waiting:
            self.check_deadlines()

    def _fail_deposed(self) -> None:
        """Send clients to the next leader. Their batches stay in the log: if this replica still leads, retries are
        answered with the offsets of these batches."""
        clients = self._take_clients()
        if not clients:
            return
        partition = self._partition
        why = KafkaError(
            f"This broker may no longer lead {partition.name}: it has lost contact with the controller and the ISR. "
            "Refresh metadata and retry.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        partition.appends.note_unacknowledged([each.appended.last_offset for each in clients], why)
        for produce in clients:
            produce.settle(why)

    def _fail_too_few(self, now_ms: TimestampMs) -> None:
        """Fail clients before their deadline: with so few replicas in sync nothing is committed. Coordinators wait
        until their append is decided."""
        if self._too_few_ms is None:
            self._too_few_ms = now_ms
        if now_ms - self._too_few_ms < TOO_FEW_MS:
            return
        for produce in self._take_clients():
            produce.settle(self._too_few())

    def _take_clients(self) -> list[DelayedProduce]:
        """Remove and return the clients' requests that wait for the ISR. Coordinators keep waiting."""
        clients = [each for each in self.replicating if each.deadline_ms != NEVER_MS]
        self.replicating = deque(each for each in self.replicating if each.deadline_ms == NEVER_MS)
        return clients

    def _too_few(self) -> KafkaError:
        partition = self._partition
        return KafkaError(
            f"{partition.name} now has {partition.isr_size} replicas in sync, {partition.required_isr} are needed",
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )
