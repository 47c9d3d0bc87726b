"""What is on a node's disk, held against what the cluster says of it."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, open_small

from penstock.base.ids import TopicPartition
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import PartitionRecord, TopicRecord
from penstock.sim.checkers.disks import DATA, left_behind
from penstock.storage import LogDirectory
from penstock.vfs import MemoryDisk

ORDERS, OTHER = b"0123456789abcdef", b"fedcba9876543210"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def directory(disk: MemoryDisk) -> LogDirectory:
    found = open_small(disk, path=DATA)
    for number in range(2):
        found.create(TopicPartition("orders", number), now_ms=NOW_MS, topic_id=ORDERS)
    return found


def image(topic_id: bytes, *replicas: tuple[int, ...]) -> ClusterImage:
    """Of a topic whose partitions have these replicas."""
    partitions = [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=each,
            isr=each,
            leader=each[0],
            directories=(bytes(16),) * len(each),
        )
        for number, each in enumerate(replicas)
    ]
    return EMPTY.replay([TopicRecord(name="orders", topic_id=topic_id), *partitions], 2, 1)


@pytest.mark.usefixtures("directory")
def test_what_belongs_there_may_stay(disk: MemoryDisk) -> None:
    assert left_behind(disk, 1, image(ORDERS, (1, 2), (2, 1))) == []


@pytest.mark.usefixtures("directory")
def test_what_is_of_no_topic_or_of_another_one_or_moved_elsewhere_is_left_behind(disk: MemoryDisk) -> None:
    assert left_behind(disk, 1, EMPTY) == ["orders-0", "orders-1"]
    assert left_behind(disk, 1, image(ORDERS, (1, 2))) == ["orders-1"]
    assert left_behind(disk, 1, image(OTHER, (1, 2), (1, 2))) == ["orders-0", "orders-1"]
    assert left_behind(disk, 1, image(ORDERS, (1, 2), (2, 3))) == ["orders-1"]


def test_what_is_on_its_way_out_is_not(disk: MemoryDisk, directory: LogDirectory) -> None:
    directory.delete(TopicPartition("orders", 1), Random(1))
    assert left_behind(disk, 1, image(ORDERS, (1, 2))) == []
