"""Topics that are created while a broker's disk has no room for their files."""

import subprocess
from pathlib import Path

import pytest
from tests.cluster.disks import Tmpfs
from tests.cluster.processes import ClusterProcesses
from tests.cluster.views import Seen
from tests.compat.clients.patient import wait_until
from tests.processes import Process


def allow_inodes(at: Path, count: int) -> None:
    """How many files and directories there may be; what is there may still be written to."""
    subprocess.run(["mount", "-o", f"remount,nr_inodes={count}", str(at)], check=True, capture_output=True)


def used_inodes(at: Path) -> int:
    out = subprocess.run(["df", "--output=iused", str(at)], check=True, capture_output=True, text=True).stdout
    return int(out.split()[-1])


@pytest.fixture(autouse=True)
def _may_mount() -> None:
    if (refusal := Tmpfs.refusal()) is not None:
        pytest.skip(refusal)


def test_a_topic_gets_its_files_when_there_is_room(tmp_path: Path) -> None:
    at = tmp_path / "node"
    with Tmpfs(at), Process(data=at / "data") as penstock:
        seen = Seen(penstock.bootstrap)
        seen.create_topic("before", partitions=1, replicas=1)
        allow_inodes(at, used_inodes(at))
        seen.create_topic("orders", partitions=2, replicas=1)
        assert seen.refusal("orders", message_timeout_ms=5_000) in ("KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT")
        assert seen.send("before", [b"others go on"]) == [0]
        allow_inodes(at, 10_000)
        assert seen.send("orders", [b"first"], retries=1000) == [0]
        assert "it is tried again every second" in penstock.stderr


@pytest.mark.long
def test_a_cluster_does_not_wait_for_a_replica_without_files(tmp_path: Path) -> None:
    """A leader without files hands over; a follower leaves the ISR, and is back when it has some."""
    settings = {"min.insync.replicas": "2"}
    at = tmp_path / "node-2"
    with Tmpfs(at), ClusterProcesses(tmp_path, settings=settings) as cluster:
        seen = Seen(cluster.bootstrap)
        seen.create_topic("before", partitions=1, replicas=3)
        allow_inodes(at, used_inodes(at))
        seen.create_topic("orders", partitions=3, replicas=3)
        for partition in range(3):
            sent = seen.send("orders", [b"taken"] * 10, partition=partition, acks="all", retries=1000)
            assert sent == list(range(10))
        wait_until(lambda: all(seen.isr("orders", each) == {1, 3} for each in range(3)))
        allow_inodes(at, 100_000)
        wait_until(lambda: all(seen.isr("orders", each) == {1, 2, 3} for each in range(3)))
