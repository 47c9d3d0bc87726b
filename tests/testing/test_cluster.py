"""The cluster in one process: it starts, loses a node, gets it back, and leaves nothing behind."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import BrokerFailed, Cluster

SECONDS_MAX = 90


def eventually(holds: Callable[[], bool]) -> None:
    """Nobody tells a client when an ISR has changed: look until it has."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def in_sync(cluster: Cluster, topic: str) -> list[list[int]]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(
        topic, SECONDS_MAX
    )
    return [sorted(each.isrs) for each in found.topics[topic].partitions.values()]


def produce(cluster: Cluster, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consume(cluster: Cluster, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        found = consumer.consume(count, timeout=SECONDS_MAX)
        return [each.value() or b"" for each in found]
    finally:
        consumer.close()


def penstock_threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("penstock-")}


def test_a_record_outlives_the_broker_that_took_it_and_the_broker_catches_up() -> None:
    threads = penstock_threads()
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", replication_factor=3, min_insync_replicas=2)
        eventually(lambda: in_sync(cluster, "orders") == [[1, 2, 3]])
        produce(cluster, b"first")
        cluster.brokers[0].kill()
        produce(cluster, b"second")
        eventually(lambda: in_sync(cluster, "orders") == [[2, 3]])
        cluster.brokers[0].start()
        eventually(lambda: in_sync(cluster, "orders") == [[1, 2, 3]])
        cluster.brokers[2].stop()
        cluster.brokers[1].stop()
        cluster.brokers[1].start()
        assert consume(cluster, 2) == [b"first", b"second"]
        data = [each.data for each in cluster.brokers]
    assert not [path for path in data if path is not None and os.path.exists(path)]
    assert penstock_threads() == threads


def test_controllers_may_be_nodes_of_their_own() -> None:
    with Cluster(brokers=1, controllers=3) as cluster:
        assert sorted(cluster.nodes) == [1, 101, 102, 103]
        cluster.create_topic("orders")
        cluster.controllers[0].kill()
        cluster.create_topic("more")
        produce(cluster, b"first")
        assert consume(cluster, 1) == [b"first"]


def test_a_cluster_that_was_stopped_is_the_same_when_it_starts_again(tmp_path: Path) -> None:
    with Cluster(brokers=2, data=tmp_path) as cluster:
        cluster.create_topic("orders", replication_factor=2)
        produce(cluster, b"first")
        cluster.stop()
        assert not any(each.is_running for each in cluster.brokers)
        cluster.start()
        assert consume(cluster, 1) == [b"first"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node-1", "node-2"]


def test_settings_of_one_broker_are_its_own() -> None:
    with Cluster(brokers=2, of_broker={2: {"broker.rack": "attic"}}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        nodes = admin.describe_cluster(request_timeout=SECONDS_MAX).result().nodes
        assert {each.id: each.rack for each in nodes} == {1: None, 2: "attic"}


def test_a_start_that_fails_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = penstock_threads()
    descriptors = len(os.listdir("/proc/self/fd"))
    cluster = Cluster(brokers=3, of_broker={2: {"no.such.setting": 1}})
    with pytest.raises(BrokerFailed, match=r"no\.such\.setting"):
        cluster.start()
    assert not any(each.is_running for each in cluster.brokers)
    assert list(tmp_path.iterdir()) == []
    assert penstock_threads() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
