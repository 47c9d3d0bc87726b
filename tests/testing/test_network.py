"""Nodes of a cluster that do not reach each other, and leaders that are moved."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from penstock.testing import Cluster

SECONDS_MAX = 90.0
SETTINGS = {"broker.session.timeout.ms": 1500, "replica.lag.time.max.ms": 1500}


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def in_sync(cluster: Cluster, through: int) -> set[int]:
    """The ISR of the one partition, as one broker knows it."""
    admin = AdminClient({"bootstrap.servers": cluster.nodes[through].bootstrap, "log_level": 0})
    return set(admin.list_topics("orders", SECONDS_MAX).topics["orders"].partitions[0].isrs)


def test_a_leader_that_is_cut_off_is_replaced_and_comes_back() -> None:
    with Cluster(brokers=3, settings=SETTINGS) as cluster:
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        eventually(lambda: in_sync(cluster, 1) == {1, 2, 3})
        cluster.move_leader("orders", to=2)
        assert cluster.leader_of("orders") is cluster.nodes[2]
        cluster.isolate(2)
        eventually(lambda: in_sync(cluster, 1) == {1, 3})
        told: list[KafkaError | None] = []
        # A client that asks the broker that was cut off hears of the old leader: it is on the other side.
        majority = cluster.nodes[1].bootstrap
        producer = Producer({"bootstrap.servers": majority, "enable.idempotence": True, "log_level": 0})
        producer.produce("orders", b"1", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        assert told == [None]
        cluster.heal()
        eventually(lambda: in_sync(cluster, 2) == {1, 2, 3})


def test_a_cut_between_two_brokers_leaves_the_others_in_touch_with_both() -> None:
    with Cluster(brokers=3, controllers=1, settings=SETTINGS) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        eventually(lambda: in_sync(cluster, 1) == {1, 2, 3})
        cluster.move_leader("orders", to=1)
        cluster.partition([1], [2])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})

        def is_out() -> bool:
            producer.produce("orders", b"1")
            producer.flush(SECONDS_MAX)
            return in_sync(cluster, 3) == {1, 3}

        eventually(is_out)
        cluster.heal()
        eventually(lambda: in_sync(cluster, 3) == {1, 2, 3})


def test_only_replicas_lead() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        leader = next(number for number, node in cluster.nodes.items() if node is cluster.leader_of("orders"))
        other = 1 + leader % 3
        with pytest.raises(ValueError, match=f"node {other} has no replica of orders-0; expected one of"):
            cluster.move_leader("orders", to=other)
        with pytest.raises(ValueError, match="there is no node 9"):
            cluster.partition([9], [1])
