"""Controllers that lost their metadata log, or the end of it: no record goes because metadata is missing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.views import Seen
from tests.compat.clients.patient import wait_until

from penstock.storage.strays import Stray, find_strays
from penstock.testing import Broker, Cluster
from penstock.testing.broker import BrokerFailed
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


# -- a start that is refused -----------------------------------------------------------------------------


@pytest.mark.long
def test_a_cluster_whose_controllers_all_lost_metadata_does_not_start_and_keeps_everything(
    tmp_path: Path,
) -> None:
    quick = {**SETTINGS, "initial.broker.registration.timeout.ms": 5_000}
    with Cluster(brokers=3, data=tmp_path, settings=quick) as cluster:
        seen = Seen(cluster.bootstrap)
        cluster.create_topic("orders")
        sent = seen.send("orders", (b"%d" % each * 20 for each in range(100)), acks="all")
        cluster.stop()
        for number in NODES:
            shutil.move(logs_of(tmp_path, number) / METADATA, tmp_path / f"copy-{number}")
        before = [log_bytes(logs_of(tmp_path, number) / "orders-0") for number in NODES]
        with pytest.raises(
            BrokerFailed,
            match=r"the end of the metadata log is lost, and no controller that has it was found",
        ):
            cluster.start()
        assert [log_bytes(logs_of(tmp_path, number) / "orders-0") for number in NODES] == before
        assert not any(strays_of(tmp_path, number) for number in NODES)

        # One that has all of it is enough: who stopped last may have a record more than the others.
        longest = max(NODES, key=lambda number: len(log_bytes(tmp_path / f"copy-{number}")))
        shutil.rmtree(logs_of(tmp_path, longest) / METADATA)
        shutil.copytree(tmp_path / f"copy-{longest}", logs_of(tmp_path, longest) / METADATA)
        cluster._settings["initial.broker.registration.timeout.ms"] = "60000"  # no reason to hurry any more
        cluster.start()
        wait_until(seen.is_whole)
        assert seen.driver.watermarks("orders", 0) == (0, len(sent))
        assert not any(strays_of(tmp_path, number) for number in NODES)


def test_a_single_node_that_lost_metadata_does_not_start_until_an_operator_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = tmp_path / "data" / "logs"
    with Broker(data=tmp_path / "data") as broker:
        broker.create_topic("orders", retention_ms=-1)
        Seen(broker.bootstrap).send("orders", [b"precious"] * 10)
    (log,) = (logs / METADATA).glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 3)
    for lose in (lambda: None, lambda: shutil.rmtree(logs / METADATA)):
        lose()
        with pytest.raises(
            BrokerFailed, match=r"__cluster_metadata-0 ends at offset \d+, but was synced to offset \d+"
        ):
            Broker(data=tmp_path / "data").start()
        assert len(log_bytes(logs / "orders-0")) > 10 * len(b"precious")

    (tmp_path / "data" / "meta" / "metadata-synced").unlink()
    with Broker(data=tmp_path / "data") as broker:
        assert Seen(broker.bootstrap).driver.watermarks("orders", 0) == (0, 10)
    assert "They have the broker's default settings" in caplog.text
