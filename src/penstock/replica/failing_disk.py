"""Takes replicas with a failing disk, or with damaged records, out of the ISR, and back after a trial write.

    append or sync fails --> AlterPartition without this replica --> the leader no longer waits for it
                         --> backoff --> trial write --> succeeds --> sync --> fetch again --> caught up, in the ISR
                                ^             | fails
                                +-------------+

A replica knows within milliseconds that it cannot write. Its leader would notice only after `replica.lag.time.max.ms`
(30 s), and `acks=all` would wait until then. So the replica itself asks the controller for an ISR without it. A leader
hands over as well (`Partition.disk_failed`), and then follows as a failing replica.

A failing replica does not fetch: with nothing new to fetch it would be in sync without a single write. The node makes
one trial write at a time. When it succeeds, the replicas whose backoff is over fetch again. A replica that fails again
backs off twice as long, so that a disk which fails for one file only rarely disturbs producers.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.world import Timer, World
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import DAMAGED, UNWRITABLE, AlterPartition, IsrChange, IsrMember
from penstock.metadata.image import ClusterImage, PartitionRegistration
from penstock.replica.isr_changes import CHANGES_MAX, NAMED_MAX, RETRY_MS
from penstock.replica.sync_lane import SyncLane
from penstock.storage import LogDirectory
from penstock.storage.trial import trial_write

if TYPE_CHECKING:
    from penstock.replica.partition import Partition

logger = logging.getLogger(__name__)

BACKOFF_MS_MIN: Final = 1000
BACKOFF_MS_MAX: Final = 60_000
"""Backoff of a replica after its first failure, and after many."""

TRIAL_MS: Final = 1000
"""Between two trial writes."""

FORGIVEN_MS: Final = 300_000
"""After this long without a failure the next one counts as the first."""


class _Failing:
    __slots__ = ("failures", "is_logged", "is_suspended", "is_writable", "state", "until_ms")

    def __init__(self) -> None:
        self.failures = 0
        """In a row."""
        self.is_suspended = False
        self.is_logged = False
        """Whether it is logged that the replica leaves the ISR."""
        self.until_ms = 0
        """When its backoff ends or ended, by a monotonic clock."""
        self.state = UNWRITABLE
        self.is_writable = False
        """Only damaged records keep it out: it is fetched as soon as they are truncated."""


class FailingDisk:
    def __init__(
        self,
        world: World,
        lane: SyncLane,
        directory: LogDirectory,
        controller: ControllerPort,
        node_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
    ) -> None:
        self.suspend: Callable[[TopicPartition], None] = lambda _: None
        """Stops replicating a partition."""
        self.resume: Callable[[TopicPartition], None] = lambda _: None
        """Replicates a partition again."""
        self.mend: Callable[[Partition], None] = lambda _: None
        """Truncates a damaged replica, if it is out of the ISR."""
        self._world = world
        self._lane = lane
        self._directory = directory
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._replicas: dict[Partition, _Failing] = {}
        self._is_sending = False
        """A request is in flight, or about to be sent."""
        self._trial: Timer | None = None
        self._is_in_trial = False
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None

    def _now_ms(self) -> int:
        return self._world.clock_ns() // 1_000_000

    @property
    def count(self) -> int:
        """Replicas that are not fetched because of their disk."""
        return sum(each.is_suspended for each in self._replicas.values())

    def is_failing(self, replica: "Partition") -> bool:
        failing = self._replicas.get(replica)
        return failing is not None and failing.is_suspended

    def forget(self, replica: "Partition") -> None:
        self._replicas.pop(replica, None)

    def failed(self, replica: "Partition", state: int) -> None:
        """The disk failed to write a replica's log (UNWRITABLE), or to sync or read it (DAMAGED)."""
        if self._is_stopped:
            return
        failing = self._replicas.setdefault(replica, _Failing())
        now_ms = self._now_ms()
        failing.is_writable = False
        if not failing.is_suspended:
            if now_ms - failing.until_ms > FORGIVEN_MS:
                failing.failures, failing.state = 0, UNWRITABLE
            failing.failures += 1
            failing.is_suspended = True
            failing.is_logged = False
            backoff_ms = min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** min(failing.failures - 1, 16))
            failing.until_ms = now_ms + backoff_ms
        if state == DAMAGED:
            failing.state = DAMAGED
        self.suspend(replica.name)
        self._send_soon()
        self._schedule_trial()

    def damaged(self, replica: "Partition") -> None:
        """A follower has a batch that is not what was written. Called again with each new leader."""
        before = self._replicas.get(replica)
        is_writable = before is None or not before.is_suspended or before.is_writable
        self.failed(replica, DAMAGED)
        if replica in self._replicas:
            self._replicas[replica].is_writable = is_writable

    def mended(self, replica: "Partition") -> None:
        """The damaged records are truncated: they can be replicated again."""
        failing = self._replicas.get(replica)
        if failing is not None and failing.is_suspended and failing.is_writable:
            self._release([replica])

    # -- leaving the ISR -------------------------------------------------------------------------------

    def placed(self, replica: "Partition") -> None:
        """A new partition record was applied. A leader may have taken a replica into the ISR just before its disk
        failed, so the controller is asked again."""
        if self.is_failing(replica):
            self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            self._world.call_soon(self._send)

    def _send(self) -> None:
        """Ask for ISRs without the failing replicas, until the metadata log has them."""
        self._is_sending = False
        changes = [] if self._is_stopped else self._changes()
        if not changes:
            return
        self._is_sending = True
        request = AlterPartition(self._node_id, self._broker_epoch(), tuple(changes[:CHANGES_MAX]))

        def retry(_: object) -> None:
            self._world.call_later(RETRY_MS, self._send)

        def failed(error: KafkaError) -> None:
            logger.warning(
                "the controller could not take replicas with a failing disk out of the ISR: %s", error
            )
            retry(error)

        self._controller.submit(request).then(retry, failed)

    def _changes(self) -> list[IsrChange]:
        image = self._image()
        changes = []
        unlogged = []
        for replica, failing in self._replicas.items():
            placed = image.partition(replica.topic, replica.number)
            if failing.is_suspended and placed is not None and self._may_leave(placed, failing.state):
                others = tuple(IsrMember(each) for each in placed.isr if each != self._node_id)
                change = IsrChange(
                    replica.topic_id,
                    replica.number,
                    placed.leader_epoch,
                    placed.partition_epoch,
                    others,
                    failing.state,
                )
                changes.append(change)
                if not failing.is_logged:
                    failing.is_logged = True
                    unlogged.append(str(replica.name))
        if unlogged:
            logger.error(
                "the disk fails, or records are damaged: %d replicas leave the ISR until they are mended and a trial "
                "write succeeds: %s%s",
                len(unlogged),
                ", ".join(unlogged[:NAMED_MAX]),
                ", ..." if len(unlogged) > NAMED_MAX else "",
            )
        return changes

    def _may_leave(self, placed: PartitionRegistration, state: int) -> bool:
        """Whether another broker leads and this replica is in the ISR; or in the ELR, if it may lack records."""
        counted = (*placed.isr, *placed.elr) if state == DAMAGED else placed.isr
        return placed.leader not in (-1, self._node_id) and self._node_id in counted

    # -- coming back -----------------------------------------------------------------------------------

    def _schedule_trial(self) -> None:
        if self._trial is None and not self._is_in_trial and not self._is_stopped:
            self._trial = self._world.call_later(TRIAL_MS, self._make_trial)

    def _make_trial(self) -> None:
        self._trial = None
        now_ms = self._now_ms()
        for replica, each in list(self._replicas.items()):
            if each.is_suspended and replica.log.is_damaged:
                self.mend(replica)
        due = [
            replica
            for replica, each in self._replicas.items()
            if each.is_suspended and each.until_ms <= now_ms and not replica.log.is_damaged
        ]
        if not due:
            if self.count:
                self._schedule_trial()
            return
        self._is_in_trial = True
        vfs, logs = self._directory.vfs, self._directory.layout.logs
        position = max(each.log.segments.active.size for each in due)

        def tried(_: None, error: Exception | None) -> None:
            self._is_in_trial = False
            if self._is_stopped:
                return
            if error is None:
                logger.info("the disk accepts writes again: %d replicas are fetched again", len(due))
                self._release(due)
            else:
                logger.info("the disk still fails, %d replicas wait for it: %s", self.count, error)
            if self.count:
                self._schedule_trial()

        self._lane.run(lambda: trial_write(vfs, logs, position), tried)

    def _release(self, replicas: list["Partition"]) -> None:
        now_ms = self._now_ms()
        for replica in replicas:
            failing = self._replicas.get(replica)
            if failing is not None and failing.is_suspended:
                failing.is_suspended = False
                failing.until_ms = now_ms
                self.resume(replica.name)
