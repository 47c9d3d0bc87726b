"""A broker whose disk takes no more records, while the rest of it goes on."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.processes import ClusterProcesses
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
        assert "the disk fails orders-0 here: another replica is to lead it" in cluster.nodes[leader].stderr
    assert_equal_replicas([tmp_path / f"node-{number}" for number in (1, 2, 3)], "orders")
