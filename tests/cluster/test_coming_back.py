"""Nodes that come back otherwise than they went: with an empty disk, to topics that are gone, to another cluster."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.views import Seen, assert_equal_replicas, assert_same_metadata, directories_of
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

from penstock.testing import Broker, Cluster
from penstock.testing.broker import BrokerFailed

SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "log.segment.delete.delay.ms": 0,
    "initial.broker.registration.timeout.ms": 20_000,
}


@contextmanager
def three(data: Path, **more: object) -> Iterator[tuple[Cluster, Seen]]:
    with Cluster(brokers=3, data=data, settings={**SETTINGS, **more}) as cluster:
        yield cluster, Seen(cluster.bootstrap)


def directories(data: Path) -> list[Path]:
    return [data / f"node-{number}" for number in (1, 2, 3)]


# -- an empty disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_node_whose_disk_was_wiped_gets_everything_again(tmp_path: Path, number: int) -> None:
    """Broker and voter. A static quorum knows its voters by id alone, as Kafka's does (`kraft.version` 0): one with an
    empty disk is taken back, and reads the metadata log from its leader."""
    with three(tmp_path) as (cluster, seen):
        cluster.create_topic("orders", partitions=3, segment_bytes=20_000)
        for partition in range(3):
            seen.send("orders", (b"before %d" % each * 20 for each in range(300)), partition=partition)
        wiped = cluster.brokers[number - 1]
        wiped.kill()
        shutil.rmtree(tmp_path / f"node-{number}")
        for partition in range(3):
            seen.send("orders", (b"meanwhile %d" % each * 20 for each in range(300)), partition=partition)
        wait_until(lambda: all(number not in seen.isr("orders", each) for each in range(3)))

        wiped.start()
        wait_until(seen.is_whole)
        for partition in range(3):
            seen.send("orders", [b"after"], partition=partition)
        cluster.stop()
        assert_equal_replicas(directories(tmp_path), "orders", range(3))
        assert_same_metadata(directories(tmp_path))


def test_a_wiped_replica_does_not_lead_before_it_has_everything_again(tmp_path: Path) -> None:
    """It was the leader, and it is the preferred one; its empty log must never be the one that the others follow."""
    with three(tmp_path) as (cluster, seen):
        cluster.create_topic("orders", partitions=3)
        offsets = [seen.send("orders", [b"precious"] * 50, partition=each) for each in range(3)]
        for number in (1, 2, 3):
            cluster.brokers[number - 1].kill()
            shutil.rmtree(tmp_path / f"node-{number}")
            cluster.brokers[number - 1].start()
            wait_until(seen.is_whole)
        for partition in range(3):
            assert seen.driver.watermarks("orders", partition) == (0, len(offsets[partition]))
        cluster.stop()
        assert_equal_replicas(directories(tmp_path), "orders", range(3))


# -- topics that are gone --------------------------------------------------------------------------------


def test_a_node_that_comes_back_to_deleted_topics_removes_their_directories(tmp_path: Path) -> None:
    """One deleted for good, and one made anew with the same name: another topic, of which it has nothing."""
    with three(tmp_path) as (cluster, seen):
        for topic in ("gone", "anew", "stays"):
            cluster.create_topic(topic, partitions=2)
            seen.send(topic, [b"old"] * 10)
        back = cluster.brokers[2]
        back.stop()
        seen.driver.delete_topic("gone")
        seen.driver.delete_topic("anew")
        wait_until(lambda: not {"gone", "anew"} & seen.driver.topics())
        cluster.create_topic("anew", partitions=2)
        seen.send("anew", [b"new"] * 3)
        assert any(name.startswith("gone") for name in directories_of(tmp_path / "node-3"))

        back.start()
        wait_until(seen.is_whole)
        wait_until(
            lambda: (
                directories_of(tmp_path / "node-3", lambda name: not name.startswith("__"))
                == {"anew-0", "anew-1", "stays-0", "stays-1"}
            )
        )
        seen.send("anew", [b"newer"])
        cluster.stop()
        assert_equal_replicas(directories(tmp_path), "anew")
        assert_equal_replicas(directories(tmp_path), "stays")


# -- another cluster's directory, another node's id ------------------------------------------------------


@pytest.mark.long
def test_a_node_with_another_clusters_directory_refuses_to_start_and_the_others_go_on(tmp_path: Path) -> None:
    """A voter. The others refuse it, and are a majority; it refuses them too, and is none."""
    with three(tmp_path / "ours") as (cluster, seen), three(tmp_path / "theirs") as (other, _):
        cluster.create_topic("orders", partitions=3)
        other.stop()
        stray = cluster.brokers[2]
        stray.stop()
        stray.data = str(tmp_path / "theirs" / "node-3")
        with pytest.raises(
            BrokerFailed,
            match=r"the data directory belongs to cluster \S+, but the (configured )?controllers ",
        ):
            stray.start()
        seen.send("orders", [b"the others go on"], acks="all")
        cluster.brokers[1].restart()  # one that starts is not misled either
        stray.data = str(tmp_path / "ours" / "node-3")
        stray.start()
        wait_until(seen.is_whole)


def test_a_broker_with_another_clusters_directory_refuses_to_start(tmp_path: Path) -> None:
    """One without a vote."""
    with Cluster(brokers=2, controllers=1, data=tmp_path / "theirs") as other:
        theirs = cluster_id(other)
    with Cluster(brokers=2, controllers=1, data=tmp_path / "ours") as cluster:
        seen = Seen(cluster.bootstrap)
        ours = cluster_id(cluster)
        assert ours != theirs
        stray = cluster.brokers[1]
        stray.stop()
        stray.data = str(tmp_path / "theirs" / "node-2")
        with pytest.raises(
            BrokerFailed,
            match=f"the data directory belongs to cluster {theirs}, but the (configured )?controllers ",
        ):
            stray.start()
        stray.settings["cluster.id"] = ours  # told which it is, it need not ask
        with pytest.raises(BrokerFailed, match=f"belongs to cluster {theirs}, but cluster.id is {ours}$"):
            stray.start()
        cluster.create_topic("orders", replication_factor=1)
        seen.send("orders", [b"the others go on"])


def cluster_id(cluster: Cluster) -> str:
    seen = Seen(cluster.bootstrap)
    return str(seen.driver.admin.describe_cluster().result(SECONDS_MAX).cluster_id)


def test_a_node_with_another_nodes_directory_refuses_to_start(tmp_path: Path) -> None:
    with Cluster(brokers=2, controllers=1, data=tmp_path) as cluster:
        stray = cluster.brokers[1]
        stray.stop()
        cluster.brokers[0].stop()
        stray.data = str(tmp_path / "node-1")
        with pytest.raises(BrokerFailed, match=r"node-1/logs belongs to node 1, but node.id is 2$"):
            stray.start()


def test_a_second_node_with_the_same_id_is_not_taken_and_the_first_one_goes_on(tmp_path: Path) -> None:
    """Kafka's DUPLICATE_BROKER_REGISTRATION, until `initial.broker.registration.timeout.ms`."""
    with Cluster(brokers=2, controllers=1, data=tmp_path) as cluster:
        seen = Seen(cluster.bootstrap)
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        twin = Broker(data=tmp_path / "twin", settings=cluster.brokers[1].settings)
        twin.settings["initial.broker.registration.timeout.ms"] = "2000"
        with pytest.raises(BrokerFailed, match=r"another running broker is registered with node.id 2"):
            twin.start()
        for partition in (0, 1):
            seen.send("orders", [b"goes on"], partition=partition, acks="all")
        wait_until(seen.is_whole)
        with pytest.raises(BrokerFailed, match="is in use by another process"):
            Broker(data=cluster.brokers[1].data, settings=cluster.brokers[1].settings).start()
