"""A broker whose disk takes no more records, while the rest of it goes on."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.disks import FailingDisk, Tmpfs
from tests.cluster.processes import ClusterProcesses
from tests.cluster.steady import Steady
from tests.cluster.views import Seen, assert_equal_replicas, log_bytes
from tests.compat.clients.patient import wait_until
from tests.processes import Process

SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}


@contextmanager
def no_file_grows_beyond(size: int, process: Process) -> Iterator[None]:
    """What the system refuses with EFBIG, as a full disk with ENOSPC."""
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


def test_a_leader_that_cannot_write_hands_over_and_is_in_sync_again_when_it_can(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, settings=SETTINGS) as cluster:
        seen = Seen(cluster.bootstrap)
        seen.create_topic("orders", partitions=1, replicas=3)
        leader = seen.leader("orders")
        sent = seen.send("orders", [b"x" * 100_000] * 10, acks="all")
        data = tmp_path / f"node-{leader}"
        with no_file_grows_beyond(len(log_bytes(data, "orders")), cluster.nodes[leader]):
            sent += seen.send("orders", [b"y" * 1000] * 10, acks="all", retries=1000, enable_idempotence=True)
            assert seen.leader("orders") != leader
            assert cluster.nodes[leader].is_running
        assert sent == list(range(20)), "each is there once"
        wait_until(lambda: seen.isr("orders") == {1, 2, 3})
        assert (
            "the disk of orders-0 fails on this broker; handing over leadership"
            in cluster.nodes[leader].stderr
        )
    assert_equal_replicas([tmp_path / f"node-{number}" for number in (1, 2, 3)], "orders")


# -- how long acks=all waits, with the default settings of brokers -----------------------------------------

PARTITIONS = 6
NODES = (1, 2, 3)
AILING = 2
"""The node whose disk fails: it leads some of the partitions, and follows the others."""

PAUSE_S_MAX = 15.0
"""Generous, for a busy machine: mostly it is a fraction of a second. A leader that finds out by itself that a follower
stands still needs 30 to 45 s."""

REPLICATED = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


@contextmanager
def steadily_written(cluster: ClusterProcesses) -> Iterator[tuple[Seen, Steady]]:
    """A topic of which every node leads a part, and a producer that waits for nothing but acknowledgements."""
    seen = Seen(cluster.bootstrap)
    seen.create_topic("orders", partitions=PARTITIONS, replicas=3)
    wait_until(lambda: {seen.leader("orders", each) for each in range(PARTITIONS)} == set(NODES))
    producer = seen.producer(acks="all", enable_idempotence=True, message_timeout_ms=120_000)
    steady = Steady(producer, "orders", PARTITIONS).start()
    try:
        wait_until(lambda: steady.acked)
        steady.forget()
        yield seen, steady
    finally:
        steady.finish()
    steady.assert_exactly_once(seen)


def start_again(node: Process) -> None:
    """A node that could not write its metadata log has stopped."""
    if not node.is_running:
        node.kill()
        node.start()


def isrs(seen: Seen) -> list[set[int]]:
    return [set(each.isrs) for each in seen.partitions("orders").values()]


def test_a_full_disk_pauses_nobody_for_long(tmp_path: Path) -> None:
    if (refusal := Tmpfs.refusal()) is not None:
        pytest.skip(refusal)
    with (
        Tmpfs(tmp_path / f"node-{AILING}") as disk,
        ClusterProcesses(tmp_path, settings=REPLICATED) as cluster,
    ):
        with steadily_written(cluster) as (seen, steady):
            disk.fill()
            wait_until(lambda: all(each == {1, 3} for each in isrs(seen)))
            acked_from = steady.sent
            wait_until(lambda: steady.sent > acked_from + 100)
            disk.make_room()
            start_again(cluster.nodes[AILING])
            wait_until(lambda: all(each == set(NODES) for each in isrs(seen)))
        assert steady.pause_s < PAUSE_S_MAX


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", [FailingDisk.fail_writes, FailingDisk.fail_syncs, FailingDisk.become_read_only]
)
def test_a_failing_disk_pauses_nobody_for_long(fault: Callable[[FailingDisk], None], tmp_path: Path) -> None:
    if (refusal := FailingDisk.refusal()) is not None:
        pytest.skip(refusal)
    disk = FailingDisk(tmp_path / f"node-{AILING}", tmp_path)
    environments = {AILING: disk.environment}
    with ClusterProcesses(tmp_path, settings=REPLICATED, environments=environments) as cluster:
        with steadily_written(cluster) as (seen, steady):
            fault(disk)
            if fault is not FailingDisk.fail_syncs:
                wait_until(lambda: all(each == {1, 3} for each in isrs(seen)))
            acked_from = steady.sent
            wait_until(lambda: steady.sent > acked_from + 100)
            disk.work()
            start_again(cluster.nodes[AILING])
            wait_until(lambda: all(each == set(NODES) for each in isrs(seen)))
        assert steady.pause_s < PAUSE_S_MAX


@pytest.mark.long
def test_two_full_disks_of_three_are_said_at_once(tmp_path: Path) -> None:
    """The request that was on its way, too, is answered long before its 30 s are over."""
    with ClusterProcesses(tmp_path, settings=REPLICATED) as cluster:
        seen = Seen(cluster.bootstrap)
        seen.create_topic("orders", partitions=1, replicas=3)
        leader = seen.leader("orders")
        seen.send("orders", [b"x" * 100_000] * 10, acks="all")
        wait_until(lambda: seen.isr("orders") == set(NODES))
        size = len(log_bytes(tmp_path / f"node-{leader}", "orders"))
        followers = [node for number, node in cluster.nodes.items() if number != leader]
        with no_file_grows_beyond(size, followers[0]), no_file_grows_beyond(size, followers[1]):
            began_s = time.monotonic()
            first = seen.refusal("orders", acks="all", request_timeout_ms=30_000)
            assert first in ("_MSG_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
            assert time.monotonic() - began_s < PAUSE_S_MAX
            wait_until(lambda: seen.isr("orders") == {leader})
            assert seen.refusal("orders", acks="all") == "NOT_ENOUGH_REPLICAS"
        wait_until(lambda: seen.isr("orders") == set(NODES))
        assert seen.send("orders", [b"y"], acks="all")
