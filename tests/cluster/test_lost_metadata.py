"""Controllers that lost their metadata log, or the end of it: no record goes because metadata is missing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.views import Seen
from tests.compat.clients.patient import wait_until

from penstock.storage.strays import Stray, find_strays
from penstock.testing import Cluster
from penstock.vfs import RealDisk

SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "log.segment.delete.delay.ms": 0,
}
METADATA = "__cluster_metadata-0"
NODES = (1, 2, 3)


def logs_of(data: Path, number: int) -> Path:
    return data / f"node-{number}" / "logs"


def strays_of(data: Path, number: int) -> list[Stray]:
    return list(find_strays(RealDisk(), str(logs_of(data, number))))


def log_bytes(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))


def remove(data: Path, number: int) -> None:
    """The metadata log is gone, and so is what the node knows of its end: as if all of that were on a lost volume."""
    shutil.rmtree(logs_of(data, number) / METADATA)
    forget_end(data, number)


def put_back(data: Path, number: int) -> None:
    """The metadata log is as it was before the topic was made."""
    directory = logs_of(data, number) / METADATA
    shutil.rmtree(directory)
    shutil.copytree(data / f"copy-{number}", directory)
    forget_end(data, number)


def forget_end(data: Path, number: int) -> None:
    for each in (data / f"node-{number}" / "meta").glob("metadata-*"):
        each.unlink()


@pytest.mark.parametrize("lose", [remove, put_back])
def test_records_are_kept_where_all_controllers_lost_their_metadata(
    tmp_path: Path, lose: Callable[[Path, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    """All brokers hear the same: the cluster has no such topic. Before, each deleted its replica."""
    with Cluster(brokers=3, data=tmp_path, settings=SETTINGS) as cluster:
        seen = Seen(cluster.bootstrap)
        cluster.create_topic("first")
        cluster.stop()
        for number in NODES:
            shutil.copytree(logs_of(tmp_path, number) / METADATA, tmp_path / f"copy-{number}")
        cluster.start()
        cluster.create_topic("orders", partitions=2)
        for partition in range(2):
            seen.send("orders", (b"%d" % each * 20 for each in range(300)), partition=partition, acks="all")
        cluster.stop()
        before = {
            (number, partition): log_bytes(logs_of(tmp_path, number) / f"orders-{partition}")
            for number in NODES
            for partition in range(2)
        }
        assert all(before.values())
        for number in NODES:
            lose(tmp_path, number)

        caplog.clear()
        cluster.start()
        cluster.create_topic("orders", partitions=2)  # as a producer's auto-create would
        assert seen.send("orders", [b"new"], acks="all") == [0]
        cluster.stop()
        for number in NODES:
            kept = {
                each.partition.partition: log_bytes(Path(each.path))
                for each in strays_of(tmp_path, number)
                if each.partition.topic == "orders"
            }
            assert kept == {partition: before[number, partition] for partition in range(2)}
        assert "They are kept as strays and are not served" in caplog.text


def test_strays_are_served_again_when_the_metadata_is_back(tmp_path: Path) -> None:
    with Cluster(brokers=3, data=tmp_path, settings=SETTINGS) as cluster:
        seen = Seen(cluster.bootstrap)
        cluster.create_topic("orders")
        sent = seen.send("orders", (b"%d" % each * 20 for each in range(100)), acks="all")
        cluster.stop()
        for number in NODES:
            shutil.copytree(logs_of(tmp_path, number) / METADATA, tmp_path / f"copy-{number}")
            remove(tmp_path, number)
        cluster.start()
        wait_until(lambda: all(strays_of(tmp_path, number) for number in NODES))
        assert "orders" not in seen.driver.topics()
        cluster.stop()
        for number in NODES:
            put_back(tmp_path, number)
        cluster.start()
        wait_until(seen.is_whole)
        assert seen.driver.watermarks("orders", 0) == (0, len(sent))
        assert not any(strays_of(tmp_path, number) for number in NODES)
