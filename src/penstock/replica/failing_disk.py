"""Replicas here whose disk refuses to write, to sync or to read, or whose records are damaged: out of the ISR at
once, and back after a trial write.

    append or sync fails --> AlterPartition without this replica --> the leader waits for it no more
                         --> rest --> trial write --> works --> sync --> fetch again --> caught up, in the ISR
                               ^          | fails
                               +----------+

A replica knows within milliseconds that it cannot write. Its leader would only find out that it stands still, after
`replica.lag.time.max.ms` (30 s), and `acks=all` would wait until then. So the replica itself asks the controller for
an ISR without it. A leader asks for another leader as well (`Partition.disk_failed`), and follows as a failing one.

A failing replica does not fetch: one that has all there is to copy would be in sync without having written anything.
One trial write at a time is made for the whole node. When it works, the replicas whose rest is over fetch again. A
replica that fails again rests twice as long, so that a disk which refuses one file alone rarely disturbs producers.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TopicPartition, Uuid
from penstock.base.world import Timer, World
from penstock.metadata import ClusterImage
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import DAMAGED, UNWRITABLE, AlterPartition, IsrChange, IsrMember
from penstock.metadata.image import Partition as Placed
from penstock.replica.isr_changes import CHANGES_MAX, NAMED_MAX, RETRY_MS
from penstock.replica.sync_lane import SyncLane
from penstock.storage import LogDirectory
from penstock.storage.trial import trial_write

logger = logging.getLogger(__name__)

REST_MS_MIN: Final = 1000
REST_MS_MAX: Final = 60_000
"""How long a replica rests at least: the first time, and after many failures."""

TRIAL_MS: Final = 1000
"""Between two trials."""

FORGIVEN_MS: Final = 300_000
"""After so long without a failure the next one counts as the first."""


class Replica(Protocol):
    """A `Partition`, as far as its disk is concerned."""

    topic: str
    number: int
    topic_id: Uuid
    is_leader: bool

    @property
    def name(self) -> TopicPartition: ...

    @property
    def is_damaged(self) -> bool:
        """Whether records were found that are not what was written. It fetches no more until they are cut off, which
        is when it is out of the ISR."""

    @property
    def written_to(self) -> Offset:
        """How many bytes the file has to which records are written."""


class _Failing:
    __slots__ = ("failures", "is_resting", "is_told", "is_writable", "rested_ms", "state")

    def __init__(self) -> None:
        self.failures = 0
        """One after the other."""
        self.is_resting = False
        self.is_told = False
        """Whether the log says that it leaves the ISR."""
        self.rested_ms = 0
        """When its rest is over, by a clock that never goes back."""
        self.state = UNWRITABLE
        self.is_writable = False
        """Nothing but damaged records keeps it out: it is fetched as soon as they are cut off."""


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
        """Has a replica fetch no more."""
        self.resume: Callable[[TopicPartition], None] = lambda _: None
        """Has it fetch again."""
        self._world = world
        self._lane = lane
        self._directory = directory
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._replicas: dict[Replica, _Failing] = {}
        self._is_asking = False
        """The controller is asked, or about to be."""
        self._trial: Timer | None = None
        self._is_trying = False
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
        """Replicas that wait for the disk."""
        return sum(each.is_resting for each in self._replicas.values())

    def is_failing(self, replica: Replica) -> bool:
        failing = self._replicas.get(replica)
        return failing is not None and failing.is_resting

    def forget(self, replica: Replica) -> None:
        self._replicas.pop(replica, None)

    def failed(self, replica: Replica, state: int) -> None:
        """The disk has refused to write a replica's log (UNWRITABLE), or to sync or read it (DAMAGED)."""
        if self._is_stopped:
            return
        failing = self._replicas.setdefault(replica, _Failing())
        now_ms = self._now_ms()
        failing.is_writable = False
        if not failing.is_resting:
            if now_ms - failing.rested_ms > FORGIVEN_MS:
                failing.failures, failing.state = 0, UNWRITABLE
            failing.failures += 1
            failing.is_resting = True
            failing.is_told = False
            rest_ms = min(REST_MS_MAX, REST_MS_MIN * 2 ** min(failing.failures - 1, 16))
            failing.rested_ms = now_ms + rest_ms
        if state == DAMAGED:
            failing.state = DAMAGED
        self.suspend(replica.name)
        self._ask_soon()
        self._try_later()

    def damaged(self, replica: Replica) -> None:
        """A follower has records that are not what was written. Called again when another leads."""
        before = self._replicas.get(replica)
        is_writable = before is None or not before.is_resting or before.is_writable
        self.failed(replica, DAMAGED)
        if replica in self._replicas:
            self._replicas[replica].is_writable = is_writable

    def mended(self, replica: Replica) -> None:
        """The damaged records are cut off: they can be copied again."""
        failing = self._replicas.get(replica)
        if failing is not None and failing.is_resting and failing.is_writable:
            self._release([replica])

    # -- leaving the ISR -------------------------------------------------------------------------------

    def placed(self, replica: Replica) -> None:
        """The metadata log says anew who leads a replica and who is in sync. A leader that took a replica into the ISR
        just before its disk failed is told again."""
        if self.is_failing(replica):
            self._ask_soon()

    def _ask_soon(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._world.call_soon(self._ask)

    def _ask(self) -> None:
        """Ask for ISRs without the replicas that fail, until the metadata log says so."""
        self._is_asking = False
        changes = [] if self._is_stopped else self._changes()
        if not changes:
            return
        self._is_asking = True
        request = AlterPartition(self._node_id, self._broker_epoch(), tuple(changes[:CHANGES_MAX]))

        def answered(answer: object) -> None:
            if isinstance(answer, KafkaError):
                logger.warning("the controller could not take replicas with a failing disk out: %s", answer)
            self._world.call_later(RETRY_MS, self._ask)

        self._controller.submit(request).then(answered)

    def _changes(self) -> list[IsrChange]:
        image = self._image()
        changes = []
        untold = []
        for replica, failing in self._replicas.items():
            placed = image.partition(replica.topic, replica.number)
            if failing.is_resting and placed is not None and self._may_leave(placed, failing.state):
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
                if not failing.is_told:
                    failing.is_told = True
                    untold.append(str(replica.name))
        if untold:
            logger.error(
                "the disk fails, or records are damaged: %d replicas leave the ISR until they are mended and a trial "
                "write works: %s%s",
                len(untold),
                ", ".join(untold[:NAMED_MAX]),
                ", ..." if len(untold) > NAMED_MAX else "",
            )
        return changes

    def _may_leave(self, placed: Placed, state: int) -> bool:
        """Whether another leads while this replica is counted on: who lacks records must not be eligible either."""
        counted = (*placed.isr, *placed.elr) if state == DAMAGED else placed.isr
        return placed.leader not in (-1, self._node_id) and self._node_id in counted

    # -- coming back -----------------------------------------------------------------------------------

    def _try_later(self) -> None:
        if self._trial is None and not self._is_trying and not self._is_stopped:
            self._trial = self._world.call_later(TRIAL_MS, self._try)

    def _try(self) -> None:
        self._trial = None
        now_ms = self._now_ms()
        rested = [
            replica
            for replica, each in self._replicas.items()
            if each.is_resting and each.rested_ms <= now_ms and not replica.is_damaged
        ]
        if not rested:
            if self.count:
                self._try_later()
            return
        self._is_trying = True
        vfs, logs = self._directory.vfs, self._directory.layout.logs
        position = max(each.written_to for each in rested)

        def tried(_: None, error: Exception | None) -> None:
            self._is_trying = False
            if self._is_stopped:
                return
            if error is None:
                logger.info("the disk takes writes again: %d replicas are fetched again", len(rested))
                self._release(rested)
            else:
                logger.info("the disk still fails, %d replicas wait for it: %s", self.count, error)
            if self.count:
                self._try_later()

        self._lane.run(lambda: trial_write(vfs, logs, position), tried)

    def _release(self, replicas: list[Replica]) -> None:
        now_ms = self._now_ms()
        for replica in replicas:
            failing = self._replicas.get(replica)
            if failing is not None and failing.is_resting:
                failing.is_resting = False
                failing.rested_ms = now_ms
                self.resume(replica.name)
