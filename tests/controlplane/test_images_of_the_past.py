"""After a start the metadata log is read from where it was: what it says first may have been overtaken long ago."""

from tests.nodes import StillNode
from tests.worlds import StillWorld

from penstock.base.ids import TopicPartition
from penstock.metadata.records import PartitionChangeRecord
from penstock.server.config import config_from
from penstock.server.node import Node
from penstock.vfs import MemoryDisk

ORDERS = TopicPartition("orders", 0)


def test_an_image_that_does_not_know_this_life_of_the_broker_removes_nothing() -> None:
    """It is older than partitions that were moved here since, and than topics that were made again."""
    disk = MemoryDisk()
    first = StillNode(disk)
    first.create_topic("orders", 1)
    now = first.node.image()
    elsewhere = PartitionChangeRecord(
        partition_id=0,
        topic_id=now.topics["orders"].id,
        replicas=(9,),
        isr=(9,),
        leader=9,
        directories=(bytes(16),),
    )
    past = now.replay([elsewhere], now.offset, now.epoch)

    failures: list[str] = []
    node = Node(StillWorld(), disk.kill_clone(), config_from("/data", {}))
    node.start(lambda: None, failures.append)
    node.loaded(past)
    node.advanced(past.offset + 1)
    assert ORDERS in node.directory.logs
    assert not node.context.replicas.partitions
    assert not failures


def test_what_is_on_disk_is_served_once_the_image_knows_this_life() -> None:
    disk = MemoryDisk()
    StillNode(disk).create_topic("orders", 1)
    again = StillNode(disk.kill_clone())
    assert again.node.context.replicas.find("orders", 0).is_leader
