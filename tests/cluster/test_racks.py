"""Racks: replicas are spread over them, and consumers read from the one in theirs (KIP-392)."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cluster.views import QUICK, Seen
from tests.compat.clients.patient import wait_until

from penstock.testing import Cluster

RACKS = {1: "cellar", 2: "cellar", 3: "attic", 4: "attic"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.leader.rebalance.enable": False,
    }
    of_broker = {number: {"broker.rack": rack} for number, rack in RACKS.items()}
    with Cluster(brokers=4, settings=settings, of_broker=of_broker) as made:
        yield made


def test_every_partition_has_replicas_in_both_racks_and_every_broker_its_share(cluster: Cluster) -> None:
    cluster.create_topic("spread", partitions=8, replication_factor=2)
    partitions = Seen(cluster.bootstrap).partitions("spread").values()
    assert all(
        {RACKS[each] for each in partition.replicas} == {"cellar", "attic"} for partition in partitions
    )
    for number in RACKS:
        assert sum(number in partition.replicas for partition in partitions) == 4


class RackReader:
    """A consumer in a rack, and which broker it reads from, by what the library says of itself."""

    def __init__(self, cluster: Cluster, rack: str, topic: str) -> None:
        self.topic = topic
        self.broker = -1
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.rack": rack,
                "group.id": f"in the {rack}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "statistics.interval.ms": 50,
                "stats_cb": self._told,
                **QUICK,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def _told(self, text: str) -> None:
        topic = json.loads(text)["topics"].get(self.topic)
        if topic is not None and "0" in topic["partitions"]:
            self.broker = topic["partitions"]["0"]["broker"]

    def read(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    def has_read(self, count: int, broker: int) -> bool:
        self.read()
        return len(self.values) >= count and self.broker == broker


def test_a_consumer_reads_from_the_replica_in_its_rack_and_from_the_leader_when_that_is_gone(
    cluster: Cluster,
) -> None:
    cluster.create_topic("near", partitions=1, replication_factor=2, min_insync_replicas=1)
    seen = Seen(cluster.bootstrap)
    [partition] = seen.partitions("near").values()
    leader = partition.leader
    [follower] = set(partition.replicas) - {leader}
    seen.send("near", [b"%d" % each for each in range(10)], acks="all")
    readers = {number: RackReader(cluster, RACKS[number], "near") for number in (leader, follower)}
    try:
        for number, reader in readers.items():
            wait_until(lambda reader=reader, number=number: reader.has_read(10, number))  # type: ignore[misc]
        seen.send("near", [b"%d" % each for each in range(10, 20)], acks="all")
        for number, reader in readers.items():
            wait_until(lambda reader=reader, number=number: reader.has_read(20, number))  # type: ignore[misc]

        cluster.nodes[follower].stop()
        seen.send("near", [b"%d" % each for each in range(20, 30)], acks="all")
        wait_until(lambda: readers[follower].has_read(30, leader))
        cluster.nodes[follower].start()
        wait_until(seen.is_whole)
        seen.send("near", [b"%d" % each for each in range(30, 40)], acks="all")
        wait_until(lambda: readers[follower].has_read(40, follower))
        assert readers[follower].values == [b"%d" % each for each in range(40)], "each once, in order"
    finally:
        for reader in readers.values():
            reader.consumer.close()
