"""`penstock cluster`: a cluster of processes as a user runs it, looked at and troubled from another terminal."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command
from tests.processes import WAIT_S_MAX, is_readable

from penstock.cli import cluster_nodes as nodes
from penstock.cli.cluster_nodes import ClusterOptions

PENSTOCK = (sys.executable, "-m", "penstock")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


class Watch:
    """`penstock cluster start` in a terminal of its own; what it tells, line by line."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._unread = b""

    def next(self, **wanted: Any) -> dict[str, Any]:
        """The next event that has these values."""
        deadline = time.monotonic() + WAIT_S_MAX
        while True:
            event: dict[str, Any] = json.loads(self._line(deadline))
            if all(event.get(name) == value for name, value in wanted.items()):
                return event

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            assert is_readable(self.process.stdout, max(0, deadline - time.monotonic())), "nothing came"
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, f"it ended: {self.process.stderr.read().decode() if self.process.stderr else ''}"
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


@contextmanager
def watched(*arguments: object) -> Iterator[Watch]:
    words = [*PENSTOCK, *(str(each) for each in arguments)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    try:
        yield Watch(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S_MAX)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_cluster_of_one_is_started_looked_at_killed_and_restarted(
    penstock: Command, tmp_path: Path
) -> None:
    place = ("--data", tmp_path / "c")
    with watched("cluster", "start", "--brokers", 1, *place, "--base-port", 0, "--json") as watch:
        ready = watch.next(event="ready")
        [node] = ready["nodes"]
        assert (node["id"], node["roles"], node["state"], ready["controller"]) == (
            1,
            "broker,controller",
            "up",
            1,
        )
        assert penstock("topics", "create", "t", "--server", ready["bootstrap"]).code == 0

        status = penstock("cluster", "status", *place, "--json")
        assert (status.code, status.json()["partitions"], status.json()["nodes"][0]["leads"]) == (0, 3, 3)
        assert (
            "controller 1, 3 partitions, 0 under-replicated, 0 without leader"
            in penstock("cluster", "status", *place).out
        )

        again = penstock("cluster", "start", *place)
        assert (again.code, again.out) == (2, "")
        assert f"runs already: node 1 is process {node['pid']}" in again.err

        assert penstock("cluster", "kill", 1, *place).out == "killed node 1\n"
        assert watch.next(event="node")["state"] == "down"
        gone = penstock("cluster", "kill", 1, *place)
        assert (gone.code, gone.err) == (2, "penstock: node 1 does not run\n")
        down = penstock("cluster", "status", *place)
        assert down.code == 1
        assert "No broker answers." in down.out

        restarted = penstock("cluster", "restart", 1, *place, "--json").json()
        assert watch.next(event="node", state="up")["pid"] == restarted["pid"] != node["pid"]
        assert penstock("topics", "list", "--server", ready["bootstrap"]).out.count("\n") == 2

        assert penstock("cluster", "stop", *place, "--json").json() == {"stopped": [1]}
        assert watch.next(event="stopped") == {"event": "stopped", "ids": []}
        assert watch.process.wait(WAIT_S_MAX) == 0
    assert penstock("cluster", "stop", *place).out == "no node runs\n"


@pytest.mark.long
def test_ctrl_c_stops_all_and_the_next_start_goes_on_where_it_ended(
    penstock: Command, tmp_path: Path
) -> None:
    place = ("--data", tmp_path / "c")
    with watched("cluster", "start", "--brokers", 1, *place, "--base-port", 0, "--json") as watch:
        first = watch.next(event="ready")
        assert penstock("topics", "create", "t", "--server", first["bootstrap"]).code == 0
        watch.process.send_signal(signal.SIGINT)
        assert watch.next(event="stopped")["ids"] == [1]
        assert watch.process.wait(WAIT_S_MAX) == 0
    with watched("cluster", "start", *place, "--json") as watch:
        second = watch.next(event="ready")
        assert (second["bootstrap"], second["clusterId"]) == (first["bootstrap"], first["clusterId"])
        assert second["partitions"] == 3
    other = penstock("cluster", "start", "--brokers", 3, *place)
    assert other.code == 2
    assert "has a cluster of 1 broker; leave --brokers out" in other.err


def test_a_node_that_cannot_start_ends_the_start_with_its_reason(penstock: Command, tmp_path: Path) -> None:
    outcome = penstock(
        "cluster", "start", "--brokers", 1, "--data", tmp_path / "c", "--base-port", 0,
        "--set", "num.partitions=many", "--json",
    )  # fmt: skip
    assert (outcome.code, outcome.out) == (2, "")
    assert "node 1 did not start" in outcome.err
    assert "num.partitions" in outcome.err
    assert nodes.running_nodes(nodes.find_layout(tmp_path / "c")) == {}  # type: ignore[arg-type]


def test_up_with_brokers_is_the_same_on_the_ports_of_up(penstock: Command, tmp_path: Path) -> None:
    arguments = ("up", "--brokers", 1, "--data", tmp_path / "c", "--kafka", "127.0.0.1:0", "--http", "off")
    with watched(*arguments) as watch:
        eventually(lambda: (tmp_path / "c" / "node-1.out").exists() and _is_ready(tmp_path / "c"))
        [node] = penstock("cluster", "status", "--data", tmp_path / "c", "--json").json()["nodes"]
        assert (node["http"], node["line"] is None) == (None, False)
        watch.process.send_signal(signal.SIGTERM)
        assert watch.process.wait(WAIT_S_MAX) == 0


def _is_ready(directory: Path) -> bool:
    return (directory / "node-1.out").read_text().startswith("penstock ready")


@pytest.mark.long
def test_three_brokers_lose_one_and_get_it_back(penstock: Command, tmp_path: Path) -> None:
    place = ("--data", tmp_path / "c")
    fast = ("--set", "broker.session.timeout.ms=2000", "--set", "broker.heartbeat.interval.ms=200")
    with watched("cluster", "start", "--brokers", 3, *place, "--base-port", 0, "--json", *fast) as watch:
        ready = watch.next(event="ready")
        assert [each["state"] for each in ready["nodes"]] == ["up"] * 3
        assert ready["controller"] in (1, 2, 3)
        server = ("--server", ready["bootstrap"])
        assert penstock("topics", "create", "t", *server).code == 0
        [topic] = penstock("topics", "describe", "t", "--json", *server).json()["topics"]
        assert (topic["replicationFactor"], topic["configs"]["min.insync.replicas"]) == (3, "2")

        assert penstock("cluster", "kill", 2, *place).code == 0
        lost = watch.next(event="cluster", underReplicated=3)
        assert lost["withoutLeader"] == 0
        assert penstock("cluster", "status", *place).code == 1
        [topic] = penstock("topics", "describe", "t", "--json", *server).json()["topics"]
        assert all(2 not in each["isr"] and each["leader"] != 2 for each in topic["partitionList"])
        unheard = [
            each for row in topic["partitionList"] for each in row["replicaList"] if each["broker"] == 2
        ]
        assert [each["lag"] for each in unheard] == [None] * 3

        assert penstock("cluster", "restart", 2, *place).code == 0
        watch.next(event="cluster", underReplicated=0)
        assert penstock("cluster", "status", *place).code == 0
        watch.process.send_signal(signal.SIGINT)
        assert sorted(watch.next(event="stopped")["ids"]) == [1, 2, 3]
    assert nodes.running_nodes(nodes.find_layout(tmp_path / "c")) == {}  # type: ignore[arg-type]


# What needs no process.


@pytest.mark.parametrize(
    ("brokers", "controllers", "roles"),
    [
        (1, 0, {1: "broker,controller"}),
        (2, 0, {1: "broker,controller", 2: "broker"}),
        (4, 0, {1: "broker,controller", 2: "broker,controller", 3: "broker,controller", 4: "broker"}),
        (1, 3, {1: "broker", 101: "controller", 102: "controller", 103: "controller"}),
    ],
)
def test_who_is_a_controller(brokers: int, controllers: int, roles: dict[int, str], tmp_path: Path) -> None:
    """A quorum of two is worse than one of one: either's end is the end of both."""
    layout = nodes.make_layout(tmp_path, ClusterOptions(brokers, controllers, 19092))
    assert {each.id: each.roles for each in layout.nodes} == roles
    voters = next(
        each for each in layout.arguments(layout.nodes[0]) if each.startswith("controller.quorum.voters")
    )
    assert voters.count("@") == sum("controller" in each for each in roles.values())
    assert len({each.controller for each in layout.nodes if each.controller is not None}) == voters.count("@")
    assert nodes.find_layout(tmp_path) == layout


def test_a_process_is_not_taken_for_a_node_because_of_its_number(tmp_path: Path) -> None:
    """The number in the file may have been given to another process since."""
    layout = nodes.make_layout(tmp_path, ClusterOptions(1))
    [node] = layout.nodes
    layout.file(node, ".pid").write_text(f"{os.getpid()}\n")
    assert nodes.process_of(layout, node) is None
    assert nodes.kill_node(layout, node) is False
    assert nodes.stop_nodes(layout, [node]) == []


@pytest.mark.parametrize("command", [("status",), ("stop",), ("kill", 1), ("restart", 1)])
def test_where_there_is_no_cluster_it_says_so(
    penstock: Command, command: tuple[Any, ...], tmp_path: Path
) -> None:
    outcome = penstock("cluster", *command, "--data", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"there is no cluster in {tmp_path}" in outcome.err


def test_a_node_that_there_is_not_is_refused(penstock: Command, tmp_path: Path) -> None:
    nodes.make_layout(tmp_path, ClusterOptions(2))
    outcome = penstock("cluster", "kill", 7, "--data", tmp_path)
    assert outcome.err == f"penstock: the cluster in {tmp_path} has no node 7; its nodes are 1, 2\n"


def test_the_data_directory_of_a_node_is_not_taken_for_a_clusters(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    outcome = penstock("cluster", "start", "--data", tmp_path)
    assert outcome.code == 2
    assert "is the data directory of a node" in outcome.err


def test_a_spoilt_file_is_refused_with_its_name(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 1}')
    outcome = penstock("cluster", "status", "--data", tmp_path)
    assert outcome.code == 2
    assert f"{tmp_path}/cluster.json does not describe a cluster" in outcome.err
