"""A broker's replicas as the image of the cluster moves: who leads, who follows, what comes and what goes."""

from random import Random

import pytest
from tests.replica.fake_leader import FOLLOWER, LEADER, SMALL, Leader, append, bytes_of, opened, topic_id
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.delta import delta
from penstock.metadata.image import EMPTY
from penstock.metadata.records import (
    AnyRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.replica import Durability, Partition, Replicas
from penstock.replica.housekeeping import Housekeeping
from penstock.vfs import MemoryDisk, Vfs

ME, OTHER, THIRD = FOLLOWER, LEADER, 3
ORDERS = TopicPartition("orders", 0)


class NoController:
    """Decides nothing, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def submit(self, request: object) -> Promise[object]:
        self.asked.append(request)
        return Promise()


class Broker:
    def __init__(
        self, disk: MemoryDisk | None = None, leader: Leader | None = None, vfs: Vfs | None = None
    ) -> None:
        """`vfs` is what the broker sees of its disk; all of it, where there is none."""
        self.world = StillWorld() if leader is None else leader.world
        self.leader = Leader(self.world) if leader is None else leader
        self.disk = MemoryDisk() if disk is None else disk
        self.directory = opened(vfs or self.disk)
        self.settings = BrokerSettings(ME, {"log.segment.bytes": str(SMALL.segment_bytes)})
        self.controller = NoController()
        self.replicas = Replicas(
            self.world,
            self.directory,
            ME,
            self.settings,
            Durability.ALONE,
            self.world.call_soon,
            self.leader,  # type: ignore[arg-type]  # as far as it is used
            self.controller,
            lambda: 77,
        )
        self.image = EMPTY

    def replay(self, *records: AnyRecord) -> None:
        new = self.image.replay(records, self.image.offset + len(records), 1)
        changed, self.image = delta(self.image, new), new
        deleted = [each.topic_id for each in records if isinstance(each, RemoveTopicRecord)]
        self.replicas.apply(new, changed, lambda: None, deleted)
        self.world.advance(0)

    def forget_all(self) -> None:
        """The next image is empty, and no record tells why."""
        changed, self.image = delta(self.image, EMPTY), EMPTY
        self.replicas.apply(EMPTY, changed, lambda: None)
        self.world.advance(0)

    def held(self, number: int = 0, topic: str = "orders") -> Partition:
        found = self.replicas.held(topic, number)
        assert found is not None
        return found

    @property
    def copied(self) -> bool:
        led = self.leader.partitions[topic_id("orders"), 0]
        return bytes_of(self.held().log) == bytes_of(led.log)


def created(
    *leaders: int, topic: str = "orders", replicas: tuple[int, ...] = (OTHER, ME), number: int = 0
) -> list[AnyRecord]:
    """A topic, whose partitions have these leaders."""
    partitions = [
        PartitionRecord(
            partition_id=number + each,
            topic_id=topic_id(topic),
            replicas=replicas,
            isr=replicas,
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=(bytes(16),) * len(replicas),
        )
        for each, leader in enumerate(leaders)
    ]
    return [TopicRecord(name=topic, topic_id=topic_id(topic)), *partitions]


def moved(leader: int, topic: str = "orders", number: int = 0) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=topic_id(topic), leader=leader)


def test_a_partition_that_is_led_elsewhere_is_here_and_copied_and_found_by_nobody_who_wants_its_leader() -> (
    None
):
    broker = Broker()
    led = broker.leader.lead()
    broker.leader.write(led)
    broker.replay(*created(OTHER))
    for key in ("orders", topic_id("orders")):
        assert broker.replicas.led(key, 0) is None
        assert broker.replicas.held(key, 0) is broker.held()
        with pytest.raises(KafkaError) as refused:
            broker.replicas.find(key, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition = broker.held()
    assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, OTHER, 0)
    broker.world.advance(10)
    assert broker.copied


def test_a_new_follower_asks_for_nothing_before_its_name_is_durable() -> None:
    broker = Broker()
    names: list[str] = []
    sync_names, ask = broker.directory.sync_names, broker.leader.send

    def note_sync() -> None:
        names.append("synced")
        sync_names()

    def note_ask(*args: object, **options: object) -> object:
        names.append("asked")
        return ask(*args, **options)  # type: ignore[arg-type]

    broker.directory.sync_names = note_sync  # type: ignore[method-assign]
    broker.leader.send = note_ask  # type: ignore[method-assign, assignment]
    broker.leader.lead()
    broker.replay(*created(OTHER))
    broker.world.advance(1)
    assert names[:2] == ["synced", "asked"]


def test_a_follower_that_is_elected_leads_and_asks_for_nothing_more() -> None:
    broker = Broker()
    led = broker.leader.lead()
    broker.leader.write(led, 3)
    broker.replay(*created(OTHER))
    broker.world.advance(10)
    broker.replay(moved(ME))
    partition = broker.replicas.led("orders", 0)
    assert partition is broker.held()
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch) == (True, 1)
    assert partition.log.epochs.entries[-1] == (1, 3)
    assert partition.high_watermark <= 3
    broker.world.advance(600)
    asked = len(broker.leader.fetches)
    broker.world.advance(5000)
    assert len(broker.leader.fetches) == asked


def test_a_leader_that_is_replaced_follows_and_is_cut_off_where_the_next_leader_says() -> None:
    broker = Broker()
    led = broker.leader.lead(epoch=1)
    broker.replay(*created(ME))
    append(broker.held().log, 0, 5)
    broker.leader.write(led, 2, fill=9)
    broker.replay(moved(OTHER))
    assert broker.replicas.led("orders", 0) is None
    broker.world.advance(50)
    assert broker.copied


def test_partitions_without_a_leader_wait() -> None:
    broker = Broker()
    led = broker.leader.lead()
    broker.replay(*created(OTHER))
    broker.world.advance(600)
    broker.replay(moved(-1))
    partition = broker.held()
    assert (partition.leader_id, partition.is_leader) == (-1, False)
    broker.leader.write(led)
    broker.world.advance(3000)
    assert partition.log.log_end == 0
    led.epoch = 2
    broker.replay(moved(OTHER))
    broker.world.advance(100)
    assert broker.copied


def test_another_isr_is_no_reason_to_begin_anew() -> None:
    broker = Broker()
    broker.leader.lead()
    broker.replay(*created(OTHER))
    assert broker.replicas.fetchers is not None
    following = broker.replicas.fetchers.replica_of(broker.held())
    broker.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), isr=(OTHER,)))
    assert broker.replicas.fetchers.replica_of(broker.held()) is following
    assert following is not None


@pytest.mark.parametrize("leader", [OTHER, ME])
def test_a_partition_that_is_moved_to_other_brokers_is_deleted_here(leader: int) -> None:
    broker = Broker()
    led = broker.leader.lead()
    broker.replay(*created(leader))
    broker.world.advance(10)
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id("orders"),
        replicas=(OTHER, THIRD),
        isr=(OTHER,),
        leader=OTHER,
        directories=(bytes(16), bytes(16)),
    )
    broker.replay(change)
    assert broker.replicas.held("orders", 0) is None
    assert ORDERS not in broker.directory.logs
    broker.leader.write(led)
    asked = len(broker.leader.asked)
    broker.world.advance(2000)
    assert len(broker.leader.asked) <= asked + 1
    assert ORDERS not in opened(broker.disk.crash_clone(Random(1))).logs


def test_a_deleted_topic_is_followed_no_more_and_one_of_its_name_is_another() -> None:
    broker = Broker()
    broker.leader.lead()
    broker.replay(*created(OTHER))
    append(broker.held().log, 0, 4)
    new_id = b"another id".ljust(16, b"-")
    broker.replay(RemoveTopicRecord(topic_id=topic_id("orders")))
    assert broker.replicas.held("orders", 0) is None
    broker.replay(
        TopicRecord(name="orders", topic_id=new_id),
        PartitionRecord(
            partition_id=0,
            topic_id=new_id,
            replicas=(OTHER, ME),
            isr=(OTHER,),
            leader=OTHER,
            leader_epoch=0,
            partition_epoch=0,
            directories=(bytes(16), bytes(16)),
        ),
    )
    assert broker.held().topic_id == new_id
    assert broker.held().log.log_end == 0


# -- starts ----------------------------------------------------------------------------------------------


def test_the_high_watermark_of_a_former_life_counts_as_far_as_the_log_goes() -> None:
    broker = Broker()
    led = broker.leader.lead()
    broker.replay(*created(OTHER))
    for fill in range(6):
        broker.leader.write(led, fill=fill)
    led.high_watermark = 4
    broker.world.advance(600)
    assert broker.held().high_watermark == 4
    housekeeping = Housekeeping(
        broker.world, broker.directory, broker.replicas, broker.settings, lambda: broker.image
    )
    housekeeping.start()
    broker.world.advance(6000)

    after = Broker(broker.disk.kill_clone(), Leader(broker.world))
    after.replay(*created(OTHER))
    assert (after.held().high_watermark, after.held().log.log_end) == (4, 6)

    cut = broker.disk.kill_clone()
    cut.open("/data/logs/orders-0/00000000000000000000.log", write=True).truncate(0)
    empty = Broker(cut, Leader(broker.world))
    empty.replay(*created(OTHER))
    assert empty.held().high_watermark == 0


def test_the_high_watermarks_of_partitions_that_are_not_placed_yet_are_kept() -> None:
    broker = Broker()
    broker.directory.create(ORDERS, now_ms=START_MS, topic_id=topic_id("orders"))
    append(broker.directory.logs[ORDERS], 0, 5)
    broker.directory.checkpoints.high_watermarks = {ORDERS: 3, TopicPartition("gone", 1): 9}
    housekeeping = Housekeeping(
        broker.world, broker.directory, broker.replicas, broker.settings, lambda: broker.image
    )
    housekeeping.stop()
    assert broker.directory.checkpoints.high_watermarks == {ORDERS: 3}


def test_a_wiped_disk_is_filled_again() -> None:
    broker = Broker()
    led = broker.leader.lead()
    for fill in range(50):
        broker.leader.write(led, fill=fill, size=100)
    broker.replay(*created(OTHER))
    broker.world.advance(50)
    assert broker.copied
    broker.replicas.step_down()

    wiped = Broker(MemoryDisk(), broker.leader)
    wiped.replay(*created(OTHER))
    wiped.world.advance(600)
    assert wiped.copied


def test_a_log_of_a_topic_that_was_deleted_and_made_again_while_the_broker_was_away_is_copied_anew() -> None:
    broker = Broker()
    broker.directory.create(ORDERS, now_ms=START_MS, topic_id=b"old".ljust(16, b"-"))
    append(broker.directory.logs[ORDERS], 0, 5)
    broker.directory.checkpoint()
    back = Broker(broker.disk.kill_clone())
    led = back.leader.lead()
    back.leader.write(led, fill=7)
    back.replay(*created(OTHER))
    back.world.advance(10)
    assert back.copied
    assert back.held().log.log_end == 1
    assert [each.partition for each in back.directory.strays.values()] == [ORDERS]


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "throttled"), [("", False), (f"0:{ME}", True), (f"1:{ME},0:{OTHER}", False), ("*", True)]
)
def test_a_topics_list_says_which_of_its_followers_are_throttled(listed: str, throttled: bool) -> None:
    broker = Broker()
    broker.leader.lead()
    broker.replay(*created(OTHER))
    broker.replay(
        ConfigRecord(
            resource_type=2,
            resource_name="orders",
            name="follower.replication.throttled.replicas",
            value=listed,
        )
    )
    assert broker.replicas.fetchers is not None
    following = broker.replicas.fetchers.replica_of(broker.held())
    assert following is not None
    assert following.is_throttled is throttled


def test_a_broker_that_stops_neither_leads_nor_follows() -> None:
    broker = Broker()
    broker.leader.lead()
    broker.replay(*created(OTHER), *created(ME, topic="mine"))
    broker.world.advance(10)
    broker.replicas.step_down()
    asked = len(broker.leader.asked)
    broker.world.advance(5000)
    assert len(broker.leader.asked) == asked
    assert broker.replicas.held("orders", 0) is None
    assert broker.replicas.led("mine", 0) is None


# -- logs that do not say whose they are --------------------------------------------------------------------


def nameless(records: int = 5) -> MemoryDisk:
    """A disk with a log of which a power cut took what it said of its topic."""
    broker = Broker()
    broker.replay(*created(ME))
    append(broker.held().log, 0, records)
    broker.directory.checkpoints.high_watermarks[ORDERS] = records
    path = f"{broker.held().log.directory}/partition.metadata"
    broker.directory.close()
    broker.disk.remove(path)
    return broker.disk


def changed(**what: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), **what)  # type: ignore[arg-type]


def test_a_log_that_does_not_say_whose_it_is_is_copied_anew_where_nobody_counts_on_it() -> None:
    """It may be of a topic of the same name that was deleted: its records must not be in this one."""
    broker = Broker(nameless())
    led = broker.leader.lead()
    broker.leader.write(led, 2, fill=9)
    broker.replay(*created(OTHER), changed(isr=(OTHER,)))
    assert broker.held().high_watermark == 0
    broker.world.advance(10)
    assert broker.copied
    assert broker.held().log.topic_id == topic_id("orders")


def test_it_is_kept_while_it_is_counted_on_and_no_longer() -> None:
    """In sync before its unclean stop is known; then not."""
    broker = Broker(nameless())
    led = broker.leader.lead()
    broker.replay(*created(OTHER))
    before = broker.held()
    assert before.log.log_end == 5
    broker.leader.write(led, 7, fill=9)
    broker.replay(changed(isr=(OTHER,)))
    assert broker.held() is not before
    broker.world.advance(600)
    assert broker.copied
    assert broker.held().log.topic_id == topic_id("orders")


def test_who_leads_with_it_keeps_it() -> None:
    broker = Broker(nameless())
    broker.replay(*created(ME))
    assert broker.held().log.log_end == 5
    assert broker.held().log.topic_id == topic_id("orders")
    assert broker.disk.stat(f"{broker.held().log.directory}/partition.metadata")
