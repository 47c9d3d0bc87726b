"""Partitions on disk that the cluster's metadata does not place there go if a record says so; the rest is kept."""

import errno
import logging
from random import Random

import pytest
from tests.replica.fake_leader import append, opened, topic_id
from tests.replica.test_replicas import ME, ORDERS, OTHER, THIRD, Broker, created
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.metadata.controller.requests import DAMAGED, AlterPartition
from penstock.metadata.records import AnyRecord, PartitionChangeRecord, RemoveTopicRecord
from penstock.storage import LogDirectory
from penstock.vfs import FaultyDisk, MemoryDisk

OLD_ID = b"old".ljust(16, b"-")
MOVED = TopicPartition("moved", 0)


def disk_with(*logs: tuple[TopicPartition, bytes | None], count: int = 5) -> MemoryDisk:
    """Of a broker that was killed, with these partitions of so many records."""
    disk = MemoryDisk()
    directory = opened(disk)
    for name, its_topic in logs:
        directory.create(name, now_ms=START_MS, topic_id=its_topic)
        if count:
            append(directory.logs[name], 0, count)
    directory.checkpoint()
    return disk.kill_clone()


def removed(its_topic: bytes) -> AnyRecord:
    return RemoveTopicRecord(topic_id=its_topic)


def kept(directory: LogDirectory) -> dict[TopicPartition, str]:
    return {each.partition: each.reason for each in directory.strays.values()}


def names_on(disk: MemoryDisk) -> set[str]:
    """Of directories, without what makes them unique."""
    return {
        each.name.partition(".")[0] + each.name[-6:] for each in disk.list_dir("/data/logs") if each.is_dir
    }


# -- at a start ------------------------------------------------------------------------------------------


def test_a_partition_that_the_metadata_does_not_know_is_kept_as_a_stray(
    caplog: pytest.LogCaptureFixture,
) -> None:
    back = Broker(disk_with((ORDERS, OLD_ID)))
    back.replicas.settle()
    back.world.advance(100_000)
    assert back.directory.logs == {}
    assert kept(back.directory) == {ORDERS: "the cluster's metadata has no topic of that name"}
    (told,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert "orders-0" in told.getMessage()
    assert "penstock log strays list /data/logs" in told.getMessage()

    after = opened(back.disk.crash_clone(Random(2)))
    assert after.logs == {}
    (stray,) = after.strays.values()
    assert (stray.partition, stray.topic_id, stray.log_start) == (ORDERS, OLD_ID, 0)
    assert stray.size_bytes > 0


def test_a_partition_that_was_moved_away_meanwhile_is_kept_too() -> None:
    """If metadata went back, the image tells where the records were once, not where they are."""
    back = Broker(disk_with((MOVED, topic_id("moved"))))
    back.replay(*created(OTHER, topic="moved", replicas=(OTHER, THIRD)))
    back.replicas.settle()
    assert kept(back.directory) == {MOVED: "the cluster's metadata has it on brokers [1, 3]"}


def test_a_partition_whose_topic_a_record_deleted_goes() -> None:
    back = Broker(disk_with((ORDERS, topic_id("orders")), (MOVED, OLD_ID)))
    back.replay(*created(OTHER), removed(topic_id("orders")))
    back.replicas.settle()
    back.world.advance(100_000)
    assert names_on(back.disk) == {"moved-0-stray"}


def test_a_partition_without_records_goes() -> None:
    back = Broker(disk_with((ORDERS, OLD_ID), count=0))
    back.replicas.settle()
    back.world.advance(100_000)
    assert names_on(back.disk) == set()


def test_a_stray_is_taken_back_when_the_metadata_has_its_topic_again() -> None:
    disk = disk_with((ORDERS, topic_id("orders")))
    lost = Broker(disk)
    lost.replicas.settle()

    back = Broker(lost.disk.kill_clone())
    back.replay(*created(ME))
    assert back.held().log.log_end == 5
    assert back.directory.strays == {}
    assert opened(back.disk.crash_clone(Random(3))).logs[ORDERS].log_end == 5


def test_a_stray_of_another_topic_of_the_same_name_is_left_alone() -> None:
    lost = Broker(disk_with((ORDERS, OLD_ID)))
    lost.replicas.settle()
    back = Broker(lost.disk.kill_clone())
    back.replay(*created(ME))
    assert back.held().log.log_end == 0
    assert list(kept(back.directory)) == [ORDERS]


def test_a_stray_keeps_where_its_log_starts() -> None:
    """The checkpoint file forgets it, and records that were deleted must not be seen again."""
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create(ORDERS, now_ms=START_MS, topic_id=topic_id("orders"))
    append(log, 0, 5)
    append(log, 0, 5)
    log.advance_start(7)
    lost = Broker(disk.kill_clone())
    lost.replicas.settle()
    back = Broker(lost.disk.kill_clone())
    back.replay(*created(ME))
    assert (back.held().log.log_start, back.held().log.log_end) == (7, 10)


# -- while the broker runs -------------------------------------------------------------------------------


def test_a_topic_that_a_snapshot_does_not_have_any_more_is_kept() -> None:
    """A broker that was far behind loads one, and sees no record of what was deleted."""
    broker = Broker()
    broker.replay(*created(ME))
    append(broker.held().log, 0)
    broker.replicas.settle()
    broker.forget_all()
    broker.world.advance(100_000)
    assert broker.replicas.held("orders", 0) is None
    assert list(kept(broker.directory)) == [ORDERS]


def test_a_partition_that_is_moved_away_goes() -> None:
    broker = Broker()
    broker.replay(*created(OTHER, topic="moved"))
    broker.replicas.settle()
    append(broker.held(topic="moved").log, 0)
    broker.replay(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id("moved"),
            replicas=(OTHER,),
            isr=(OTHER,),
            directories=(bytes(16),),
        )
    )
    broker.world.advance(100_000)
    assert names_on(broker.disk) == set()


# -- files that cannot be made ---------------------------------------------------------------------------


def test_a_partition_is_made_when_there_is_room_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk(MemoryDisk())
    broker = Broker(vfs=disk)
    full = disk.fail("write", path="*/orders-0/*", error=errno.ENOSPC)
    broker.replay(*created(ME))
    with pytest.raises(KafkaError, match=r"orders-0 has no files yet: .*No space left on device") as refused:
        broker.replicas.find("orders", 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.world.advance(10_000)
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1, "said once"
    full.cancel()
    broker.world.advance(1_000)
    assert broker.replicas.find("orders", 0) is broker.held()
    append(broker.held().log, 0)
    assert broker.replicas.failed_creations.reasons == {}


def test_a_replica_without_files_leaves_the_isr() -> None:
    """`acks=all` would wait for it; a leader hands over."""
    disk = FaultyDisk(MemoryDisk())
    broker = Broker(vfs=disk)
    disk.fail("make_dirs", path="*/orders-*", error=errno.ENOSPC)
    broker.replay(*created(ME, OTHER))
    broker.world.advance(0)
    (request,) = broker.controller.asked
    assert isinstance(request, AlterPartition)
    assert [
        (each.partition, tuple(member.broker_id for member in each.isr), each.recovery_state)
        for each in request.changes
    ] == [(0, (OTHER,), DAMAGED), (1, (OTHER,), DAMAGED)]


def test_partitions_are_served_when_their_names_could_be_synced_at_last() -> None:
    disk = FaultyDisk(MemoryDisk())
    broker = Broker(vfs=disk)
    failing = disk.fail("sync_dir", path="/data/logs", error=errno.EIO)
    broker.replay(*created(ME))
    broker.world.advance(2_500)
    assert broker.replicas.held("orders", 0) is None
    failing.cancel()
    broker.world.advance(1_000)
    assert broker.replicas.find("orders", 0) is broker.held()


def test_a_partition_that_was_deleted_before_there_was_room_is_not_made() -> None:
    disk = FaultyDisk(MemoryDisk())
    broker = Broker(vfs=disk)
    full = disk.fail("make_dirs", path="*/orders-0", error=errno.ENOSPC)
    broker.replay(*created(ME))
    broker.replay(removed(topic_id("orders")))
    full.cancel()
    broker.world.advance(5_000)
    assert broker.directory.logs == {}
    assert broker.replicas.failed_creations.reasons == {}


def test_a_broker_that_stops_makes_nothing_any_more() -> None:
    disk = FaultyDisk(MemoryDisk())
    broker = Broker(vfs=disk)
    full = disk.fail("make_dirs", path="*/orders-0", error=errno.ENOSPC)
    broker.replay(*created(ME))
    broker.replicas.step_down()
    full.cancel()
    broker.world.advance(5_000)
    assert broker.directory.logs == {}
