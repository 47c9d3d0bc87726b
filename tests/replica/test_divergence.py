"""Logs that leaders and crashes have driven apart, in any way, become one again: byte for byte, epoch for epoch."""

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.replica.fake_leader import WHY, Leader, Led, append, bytes_of, opened, topic_id
from tests.worlds import START_MS, StillWorld

from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.replica.delayed_operations import Durability
from penstock.replica.fetchers import Fetchers
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.vfs import MemoryDisk
from penstock.wire.request import Request

NAME = TopicPartition("orders", 0)
KEY = (topic_id("orders"), 0)


class Broker:
    """One replica, which leads or follows."""

    def __init__(self, cluster: "Brokers", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.disk = MemoryDisk()
        self.leader = Leader(cluster.world)
        self._open()

    def _open(self) -> None:
        world = self.cluster.world
        self.directory = opened(self.disk)
        log = self.directory.logs.get(NAME)
        if log is None:
            log = self.directory.create(NAME, now_ms=START_MS, topic_id=KEY[0])
        lane = SyncLane(world)
        self.partition = Partition(log, KEY[0], world, lane, Durability.NEVER, world.call_soon)
        self.fetchers = Fetchers(
            world,
            self.number,
            self.cluster,  # type: ignore[arg-type]  # as far as it is used
            lane,
            Durability.NEVER,
            setting=self.cluster.setting,
            broker_epoch=lambda: 1,
            save_log_starts=self.directory.checkpoints.save_log_starts,
        )

    def crash(self, seed: int) -> None:
        """Lose power, and some of what was not synced with it."""
        self.fetchers.stop()
        self.disk = self.disk.crash_clone(Random(seed))
        self._open()

    def lead(self, epoch: int) -> None:
        self.fetchers.forget(self.partition)
        log = self.partition.log
        log.begin_epoch(epoch)
        self.led = Led(log, epoch)
        self.led.high_watermark = 0
        self.leader.partitions = {KEY: self.led}

    def follow(self, leader: int, epoch: int) -> None:
        self.leader.partitions = {}
        self.partition.follow(leader, epoch, WHY)
        self.fetchers.follow(self.partition)


class Brokers:
    """Also stands in for everybody's `BrokerClient`."""

    def __init__(self, count: int) -> None:
        self.world = StillWorld()
        self.brokers = [Broker(self, number) for number in range(count)]

    def setting(self, name: str) -> int:
        if name == "replica.fetch.max.bytes":
            return 300  # so that a copy stops anywhere
        return int(BROKER_SETTINGS[name].default or 0)

    def send(
        self, broker_id: int, request: Request[object], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[object]:
        return self.brokers[broker_id].leader.send(broker_id, request, timeout_ms=timeout_ms, purpose=purpose)

    def elect(self, leader: int, epoch: int) -> Broker:
        chosen = self.brokers[leader]
        chosen.lead(epoch)
        for broker in self.brokers:
            if broker is not chosen:
                broker.follow(leader, epoch)
        return chosen


@dataclass(frozen=True)
class Reign:
    leader: int
    batches: tuple[int, ...]
    """How many records each has."""
    ms: int
    """How long the others may copy afterwards."""
    crashes: int | None
    """Who loses power before it."""
    seed: int


reigns = st.builds(
    Reign,
    st.integers(0, 2),
    st.lists(st.integers(1, 3), max_size=6).map(tuple),
    st.integers(0, 12),
    st.one_of(st.none(), st.none(), st.integers(0, 2)),
    st.integers(0, 1000),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(reigns, min_size=1, max_size=7))
def test_replicas_that_were_led_by_anybody_end_as_copies_of_the_last_leader(history: list[Reign]) -> None:
    cluster = Brokers(3)
    fill = 0
    for epoch, reign in enumerate(history):
        if reign.crashes is not None:
            cluster.brokers[reign.crashes].crash(reign.seed)
        leader = cluster.elect(reign.leader, epoch)
        for count in reign.batches:
            fill += 1
            append(leader.partition.log, epoch, count, fill=fill)
            leader.leader.look()
            cluster.world.advance(1)
        cluster.world.advance(reign.ms)
    last = cluster.elect(history[-1].leader, len(history))
    append(last.partition.log, len(history))
    last.led.high_watermark = last.partition.log.log_end
    cluster.world.advance(3000)

    wanted = last.partition.log
    for broker in cluster.brokers:
        log = broker.partition.log
        assert (log.log_start, log.log_end) == (wanted.log_start, wanted.log_end)
        assert bytes_of(log) == bytes_of(wanted)
        assert log.epochs.entries == wanted.epochs.entries
        assert broker is last or broker.partition.high_watermark == wanted.log_end
