"""Two clusters with the same list of voters, one after the other: the second takes no directory of the first."""

import shutil
from pathlib import Path

import pytest
from tests.cluster.views import Seen, assert_equal_replicas, log_bytes
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

from penstock.storage.checkpoints import META_PROPERTIES, MetaProperties
from penstock.testing import Cluster
from penstock.testing.broker import BrokerFailed

SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "initial.broker.registration.timeout.ms": 30_000,
}
NODES = (1, 2, 3)
METADATA = "__cluster_metadata"
REFUSED = r"the data directory belongs to cluster {}, but the .*controllers.* belong to another cluster"


def cluster_id(bootstrap: str) -> str:
    seen = Seen(bootstrap)
    return str(seen.driver.admin.describe_cluster().result(SECONDS_MAX).cluster_id)


def id_on_disk(directory: Path) -> str:
    path = directory / "logs" / META_PROPERTIES
    return MetaProperties.decode(path.read_bytes(), str(path)).cluster_id


def move(cluster: Cluster, data: Path) -> None:
    """Give the nodes, which are stopped, these directories. Their addresses stay, and so does the list of voters."""
    for number, node in cluster.nodes.items():
        node.data = str(data / f"node-{number}")


def fill(cluster: Cluster, value: bytes) -> None:
    cluster.create_topic("orders", partitions=1, replication_factor=len(cluster.brokers))
    Seen(cluster.bootstrap).send("orders", [value] * 50, acks="all")


def test_a_broker_with_a_directory_of_an_earlier_cluster_is_refused_and_keeps_its_records(
    tmp_path: Path,
) -> None:
    """The broker is a voter, and its metadata log is longer than the new cluster's."""
    old, new = tmp_path / "old", tmp_path / "new"
    with Cluster(brokers=3, data=old, settings=SETTINGS) as cluster:
        fill(cluster, b"old")
        first = cluster_id(cluster.bootstrap)
        cluster.stop()
        kept = {topic: log_bytes(old / "node-3", topic) for topic in ("orders", METADATA)}

        move(cluster, new)
        stray = cluster.brokers[2]
        stray.data = str(old / "node-3")
        with pytest.raises(BrokerFailed, match=REFUSED.format(first)):
            cluster.start()
        for number in (1, 2):
            assert id_on_disk(new / f"node-{number}") != first
        assert {topic: log_bytes(old / "node-3", topic) for topic in kept} == kept

        stray.data = str(new / "node-3")
        cluster.start()
        fill(cluster, b"new")
        second = cluster_id(cluster.bootstrap)
        assert first != second
        stray.stop()
        stray.data = str(old / "node-3")
        with pytest.raises(BrokerFailed, match=REFUSED.format(first)):
            stray.start()
        Seen(cluster.bootstrap).send("orders", [b"the others go on"], acks="all")
        cluster.brokers[1].restart()
        assert {topic: log_bytes(old / "node-3", topic) for topic in kept} == kept

        stray.data = str(new / "node-3")
        stray.start()
        wait_until(Seen(cluster.bootstrap).is_whole)
        cluster.stop()
        assert_equal_replicas([new / f"node-{number}" for number in NODES], "orders")

        move(cluster, old)
        cluster.start()
        assert cluster_id(cluster.bootstrap) == first
        wait_until(Seen(cluster.bootstrap).is_whole)
        assert Seen(cluster.bootstrap).driver.watermarks("orders", 0) == (0, 50)


def test_a_broker_without_a_vote_is_refused_by_a_new_controller_at_the_old_address(tmp_path: Path) -> None:
    """Only the controller lost its directory: nobody can tell that from a new cluster."""
    old, new = tmp_path / "old", tmp_path / "new"
    with Cluster(brokers=1, controllers=1, data=old) as cluster:
        fill(cluster, b"old")
        first = cluster_id(cluster.bootstrap)
        cluster.stop()
        kept = log_bytes(old / "node-1", "orders")
        cluster.controllers[0].data = str(new / "node-101")
        with pytest.raises(BrokerFailed, match=REFUSED.format(first)):
            cluster.start()
        assert log_bytes(old / "node-1", "orders") == kept

        cluster.controllers[0].data = str(old / "node-101")
        cluster.start()
        assert Seen(cluster.bootstrap).driver.watermarks("orders", 0) == (0, 50)


@pytest.mark.long
def test_a_cluster_whose_directories_have_an_id_keeps_it_and_tells_it_to_new_directories(
    tmp_path: Path,
) -> None:
    """As directories of before the metadata log named the cluster, or those that `cluster.id` was once set for."""
    before = "cGVuc3RvY2stZ29sZGVuMA"
    with Cluster(brokers=3, data=tmp_path, settings={**SETTINGS, "cluster.id": before}) as cluster:
        fill(cluster, b"old")
        cluster.stop()
        for node in cluster.brokers:
            del node.settings["cluster.id"]
        cluster._settings.pop("cluster.id")
        cluster.start()
        assert cluster_id(cluster.bootstrap) == before
        cluster.brokers[0].stop()
        shutil.rmtree(tmp_path / "node-1")
        cluster.brokers[0].start()
        wait_until(Seen(cluster.bootstrap).is_whole)
        assert id_on_disk(tmp_path / "node-1") == before
        cluster.stop()
        cluster.start()
        assert cluster_id(cluster.bootstrap) == before
        wait_until(Seen(cluster.bootstrap).is_whole)
        assert Seen(cluster.bootstrap).driver.watermarks("orders", 0) == (0, 50)


def test_a_new_broker_is_told_to_set_the_cluster_id_where_the_settings_of_the_others_have_it(
    tmp_path: Path,
) -> None:
    before = "cGVuc3RvY2stZ29sZGVuMA"
    with Cluster(brokers=2, controllers=1, data=tmp_path, settings={"cluster.id": before}) as cluster:
        broker = cluster.brokers[1]
        broker.stop()
        shutil.rmtree(tmp_path / "node-2")
        del broker.settings["cluster.id"]
        with pytest.raises(BrokerFailed, match=r"the data directory is new, .* set cluster.id"):
            broker.start()
        broker.settings["cluster.id"] = before
        broker.start()
