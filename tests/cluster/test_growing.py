"""A node alone becomes a cluster of three, voter by voter, and outlives the one that it began with (KIP-853)."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.views import LOGS, Seen
from tests.compat.clients.patient import wait_until
from tests.compat.kafka.peer import KafkaPeer
from tests.processes import HOST, Process

from penstock.client.cluster import Cluster
from penstock.client.quorum import describe_quorum
from penstock.client.settings import parse_servers
from penstock.server.ports import hold_port
from penstock.storage.checkpoints import META_PROPERTIES, MetaProperties

SETTINGS = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "offsets.topic.replication.factor": "1",
}


class Growing:
    """Node 1, which is a quorum by itself, and nodes 2 and 3, which know where it is."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._held = {number: (hold_port(), hold_port()) for number in (1, 2, 3)}
        self.nodes: dict[int, Process] = {}

    def controller(self, number: int) -> str:
        return f"{HOST}:{self._held[number][1].getsockname()[1]}"

    def add(self, number: int, settings: Mapping[str, str] | None = None) -> Process:
        own = {"node.id": str(number), **SETTINGS, **(settings or {})}
        flags = [flag for name, value in own.items() for flag in ("--set", f"{name}={value}")]
        self.nodes[number] = Process(
            "--controller",
            self.controller(number),
            *flags,
            data=self._data / f"node-{number}",
            port=self._held[number][0].getsockname()[1],
        )
        return self.nodes[number].start()

    def join(self, number: int) -> Process:
        path = self._data / "node-1" / LOGS / META_PROPERTIES
        cluster_id = MetaProperties.decode(path.read_bytes(), str(path)).cluster_id
        servers = ",".join(self.controller(each) for each in (1, 2, 3))
        return self.add(number, {"cluster.id": cluster_id, "controller.quorum.bootstrap.servers": servers})

    @property
    def running(self) -> str:
        """Where one listens that runs."""
        return next(each.bootstrap for each in self.nodes.values() if each.is_running)

    def penstock(self, *words: str) -> None:
        """A command, which must succeed."""
        command = [sys.executable, "-m", "penstock", *words, "--server", self.running]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr

    def quorum(self) -> tuple[int, set[int], set[int]]:
        """The leader, the voters, the observers."""
        with Cluster(parse_servers(self.running)) as client:
            told = describe_quorum(client)
        return told.leader_id, {each.id for each in told.voters}, {each.id for each in told.observers}

    def close(self) -> None:
        for each in self.nodes.values():
            each.close()
        for ports in self._held.values():
            for port in ports:
                port.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    made = Growing(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.long
def test_a_node_alone_becomes_a_quorum_of_three_and_is_not_needed_any_more(growing: Growing) -> None:
    growing.add(1)
    assert growing.quorum() == (1, {1}, set())
    for number in (2, 3):
        growing.join(number)
    wait_until(lambda: growing.quorum() == (1, {1}, {2, 3}))
    for number in (2, 3):
        growing.penstock("quorum", "add-voter", str(number), growing.controller(number))
    assert growing.quorum() == (1, {1, 2, 3}, set())

    seen = Seen(",".join(each.bootstrap for each in growing.nodes.values()))
    seen.create_topic("orders", 3, 3, {"min.insync.replicas": "2"})
    seen.send("orders", [b"by three"], acks="all")
    assert growing.nodes[1].stop() == 0
    wait_until(lambda: growing.quorum()[0] in (2, 3))
    leader, voters, _ = growing.quorum()
    assert voters == {1, 2, 3}
    for partition in range(3):
        seen.send("orders", [b"without the first"], partition=partition, acks="all")

    growing.penstock("quorum", "remove-voter", "1")
    assert growing.quorum()[1] == {2, 3}
    growing.nodes.pop(1).close()
    growing.join(1)
    wait_until(lambda: growing.quorum()[1:] == ({2, 3}, {1}))
    growing.nodes[leader].kill()
    growing.nodes[leader].start()
    wait_until(seen.is_whole)
    seen.send("orders", [b"with the first as a broker"], acks="all")


@pytest.mark.kafka
@pytest.mark.long
def test_kafkas_own_tool_describes_the_quorum_and_changes_it(growing: Growing, kafka: KafkaPeer) -> None:
    growing.add(1)
    growing.join(2)

    def tool(*words: str) -> str:
        servers = ",".join(each.bootstrap for each in growing.nodes.values())
        return kafka.java(
            "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", servers, *words
        )

    status = dict(line.split(":", 1) for line in tool("describe", "--status").splitlines() if ":" in line)
    assert status["LeaderId"].strip() == "1"
    assert int(status["HighWatermark"]) > 0
    assert '"id": 1' in status["CurrentVoters"]
    assert '"id": 2' in status["CurrentObservers"]
    rows = [line.split() for line in tool("describe", "--replication").splitlines()]
    head = next(row for row in rows if row and row[0] == "NodeId")
    told = {row[0]: dict(zip(head, row, strict=False)) for row in rows if row and row[0] in ("1", "2")}
    assert {number: row["Status"] for number, row in told.items()} == {"1": "Leader", "2": "Observer"}
    assert int(told["2"]["Lag"]) < 100
    growing.penstock("quorum", "add-voter", "2", growing.controller(2))
    directory = told["2"]["DirectoryId"]
    tool("remove-controller", "--controller-id", "2", "--controller-directory-id", directory)
    assert growing.quorum()[1] == {1}
