"""A partition of three brokers that broker 1 leads, with a controller that decides when the test says so."""

from collections.abc import Iterable
from random import Random
from typing import Any

from tests.placing import placed
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.metadata.controller.requests import OK, AlterPartition, IsrChanged, Result
from penstock.metadata.image import EMPTY, Broker, ClusterImage
from penstock.metadata.maps import FrozenMap
from penstock.records import build_batch
from penstock.replica.delayed_operations import ALL_IN_SYNC, Durability
from penstock.replica.isr_changes import IsrChanges
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Appended, Log, open_directory
from penstock.vfs import FaultyDisk, MemoryDisk, Vfs

TOPIC_ID = bytes(range(16))
LAG_MS = 1000


class Waiting:
    """A producer's batch."""

    def __init__(self, appended: Appended, acks: int, deadline_ms: int) -> None:
        self.appended = appended
        self.acks = acks
        self.deadline_ms = deadline_ms
        self.answers: list[ErrorCode | None] = []

    def settle(self, error: KafkaError | None) -> None:
        self.answers.append(None if error is None else error.code)


class Desk:
    """A controller: what it was asked is on the desk until the test has it answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[AlterPartition, Promise[Any]]] = []

    def submit(self, request: Any) -> Promise[Any]:
        later: Promise[Any] = Promise()
        self.asked.append((request, later))
        return later

    @property
    def wishes(self) -> list[tuple[int, ...]]:
        """The ISRs that are asked for."""
        return [
            tuple(each.broker_id for each in change.isr)
            for request, _ in self.asked
            for change in request.changes
        ]


def new_log(disk: Vfs, settings: LogSettings | None = None) -> Log:
    """A partition's, in a directory of its own."""
    directory = open_directory(
        disk,
        "/data",
        now_ms=START_MS,
        rng=Random(1),
        settings_of=lambda _: settings or LogSettings(),
    )
    return directory.create(TopicPartition("orders", 0), now_ms=START_MS, topic_id=TOPIC_ID)


class Led:
    def __init__(
        self,
        replicas: Iterable[int] = (1, 2, 3),
        isr: Iterable[int] | None = None,
        *,
        min_isr: int = 1,
        durability: Durability = Durability.ALONE,
        settings: LogSettings | None = None,
        before: int = 0,
    ) -> None:
        """`before` records were there, and committed, when broker 1 began to lead."""
        self.world = StillWorld()
        self.disk = FaultyDisk(MemoryDisk())
        log = new_log(self.disk, settings)
        self.desk = Desk()
        self.image: ClusterImage = EMPTY
        self.replicas = tuple(replicas)
        for each in self.replicas:
            self.broker(each)
        self.changes = IsrChanges(self.world, self.desk, 1, lambda: 101, lambda: self.image, LAG_MS)
        self.partition = Partition(
            log,
            TOPIC_ID,
            self.world,
            SyncLane(self.world),
            durability,
            self.world.call_soon,
            self.changes,
        )
        if before:
            log.append(
                build_batch([(None, b"%d" % n, START_MS) for n in range(before)]),
                leader_epoch=0,
                now_ms=START_MS,
            )
            self.partition.high_watermark = before
        self.isr = self.replicas if isr is None else tuple(isr)
        self.partition_epoch = 0
        self.min_isr = min_isr
        self.epoch = 3
        self.lead()

    def lead(self, isr: Iterable[int] | None = None) -> None:
        """The metadata log says that broker 1 leads, with this ISR."""
        if isr is not None:
            self.isr = tuple(isr)
            self.partition_epoch += 1
        self.partition.lead(
            placed(self.epoch, replicas=self.replicas, isr=self.isr, partition_epoch=self.partition_epoch),
            self.min_isr,
        )

    def broker(self, broker_id: int, *, epoch: int | None = None, fenced: bool = False) -> None:
        """A broker as the image has it; its epoch is 100 and its id unless told otherwise."""
        made = Broker(broker_id, 100 + broker_id if epoch is None else epoch, bytes(16), fenced=fenced)
        brokers = dict(self.image.brokers.items())
        self.image = ClusterImage(brokers=FrozenMap({**brokers, broker_id: made}))

    def produce(self, count: int = 1, *, acks: int = ALL_IN_SYNC, timeout_ms: int = 10_000) -> Waiting:
        """Records that are written when the turn ends."""
        batch = build_batch([(None, b"v%d" % n, START_MS) for n in range(count)])
        appended = self.partition.stage(memoryview(bytearray(batch)), acks, self.world.now_ms())
        waiting = Waiting(appended, acks, self.world.now_ms() + timeout_ms)
        self.partition.wait(waiting)
        return waiting

    def written(self, count: int = 1, *, acks: int = ALL_IN_SYNC, timeout_ms: int = 10_000) -> Waiting:
        waiting = self.produce(count, acks=acks, timeout_ms=timeout_ms)
        self.world.advance(0)
        return waiting

    def fetch(self, broker_id: int, offset: int | None = None, *, log_start: int = 0) -> None:
        """A follower asks for what comes at an offset; without one, at the log end."""
        self.partition.fetched_by(
            broker_id,
            100 + broker_id,
            self.partition.log.log_end if offset is None else offset,
            log_start,
            self.changes.now_ms(),
        )

    def decide(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The controller answers what it was asked, all in the same way."""
        self.world.advance(0)
        asked, self.desk.asked = self.desk.asked, []
        for request, later in asked:
            replies = []
            for change in request.changes:
                if code is not ErrorCode.NONE:
                    replies.append(IsrChanged(change.topic_id, change.partition, Result(code, code.name)))
                    continue
                self.isr = tuple(each.broker_id for each in change.isr)
                self.partition_epoch += 1
                replies.append(
                    IsrChanged(
                        change.topic_id,
                        change.partition,
                        OK,
                        leader=1,
                        leader_epoch=self.epoch,
                        isr=self.isr,
                        partition_epoch=self.partition_epoch,
                    )
                )
            later.resolve(tuple(replies))
        self.world.advance(0)

    @property
    def wishes(self) -> list[tuple[int, ...]]:
        self.world.advance(0)
        return self.desk.wishes

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark
