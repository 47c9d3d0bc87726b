"""What hosts a node, in a thread and in a process, around a node that only echoes."""

import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes import Process, refusal
from tests.server.fakes import EchoNode

from penstock.base.world import World
from penstock.server.config import NodeConfig
from penstock.testing import Broker, BrokerFailed
from penstock.vfs import Vfs

UP_ECHO = (
    sys.executable,
    "-c",
    "import sys\n"
    "from tests.server.fakes import EchoNode\n"
    "from penstock.server.config import config_from\n"
    "from penstock.server.up import run, start_logging\n"
    "_, _, data, _, kafka, *more = sys.argv\n"
    "start_logging(None)\n"
    "sys.exit(run(config_from(data, dict(each.split('=') for each in more), kafka=kafka), EchoNode))\n",
)


class Nodes:
    """Makes nodes and keeps them to be looked at."""

    def __init__(self) -> None:
        self.made: list[EchoNode] = []

    def __call__(self, world: World, vfs: Vfs, config: NodeConfig) -> EchoNode:
        self.made.append(EchoNode(world, vfs, config))
        return self.made[-1]


def echo(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"hello")
        return client.recv(5)


def is_over(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    """A broker that serves many tests may have its own."""
    return set(threading.enumerate())


def threads_left(before: set[threading.Thread]) -> list[str]:
    return [
        each.name
        for each in threading.enumerate()
        if each.name.startswith("penstock-") and each not in before
    ]


# -- in a thread ---------------------------------------------------------------------------------------


def test_a_broker_serves_and_leaves_nothing_behind(threads_before: set[threading.Thread]) -> None:
    with Broker(make_node=EchoNode) as broker:
        assert echo(broker.port) == b"hello"
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert broker.data is not None
        data = Path(broker.data)
        assert data.is_dir()
    assert not data.exists()
    assert threads_left(threads_before) == []
    with pytest.raises(ConnectionRefusedError):
        echo(broker.port)


def test_a_directory_that_was_given_stays(tmp_path: Path) -> None:
    with Broker(make_node=EchoNode, data=tmp_path):
        pass
    assert tmp_path.is_dir()


def test_a_stopped_broker_is_stopped_and_a_killed_one_is_not() -> None:
    nodes = Nodes()
    with Broker(make_node=nodes) as broker:
        broker.stop()
        broker.stop()
        broker.start()
        broker.kill()
        broker.kill()
        broker.restart()
        broker.restart()
    assert [each.history for each in nodes.made] == [
        ["start", "stop"],
        ["start", "abandon"],
        ["start", "stop"],
        ["start", "stop"],
    ]


def test_a_kill_breaks_connections_and_a_restart_has_the_same_port_and_directory() -> None:
    nodes = Nodes()
    with Broker(make_node=nodes) as broker:
        port, data = broker.port, broker.data
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"hello")
            assert client.recv(5) == b"hello"
            broker.kill()
            assert is_over(client)
        with pytest.raises(ConnectionRefusedError):
            echo(port)
        broker.restart()
        assert (broker.port, broker.data) == (port, data)
        assert echo(port) == b"hello"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no way to hold a port")
def test_while_a_broker_is_down_its_port_is_reserved() -> None:
    with Broker(make_node=EchoNode) as broker:
        broker.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", broker.port))
        broker.restart()


def test_many_brokers_live_side_by_side() -> None:
    with Broker(make_node=EchoNode) as one, Broker(make_node=EchoNode) as two:
        assert one.port != two.port
        assert one.data != two.data
        assert echo(one.port) == echo(two.port) == b"hello"


def test_settings_are_kafkas_text() -> None:
    settings = {
        "auto.create.topics.enable": False,
        "log.cleanup.policy": ["compact", "delete"],
        "num.partitions": 1,
    }
    nodes = Nodes()
    with Broker(make_node=nodes, settings=settings):
        had = nodes.made[0].config.settings
    assert had["auto.create.topics.enable"] == "false"
    assert had["log.cleanup.policy"] == "compact,delete"
    assert had["num.partitions"] == "1"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"no.such.thing": 1}, "unknown setting no.such.thing"),
        ({"node.id": 13}, "the directory is cursed"),
        ({"node.id": 14}, "the disk is cursed"),
        ({"node.id": 17}, "ZeroDivisionError: a bug"),
    ],
)
def test_a_broker_that_cannot_start_says_why(
    settings: dict[str, int], reason: str, threads_before: set[threading.Thread]
) -> None:
    broker = Broker(make_node=EchoNode, settings=settings)
    with pytest.raises(BrokerFailed, match=reason):
        broker.start()
    broker.close()
    assert broker.data is None
    assert threads_left(threads_before) == []


def test_a_broker_that_failed_says_so_when_it_is_stopped(threads_before: set[threading.Thread]) -> None:
    nodes = Nodes()
    broker = Broker(make_node=nodes, settings={"node.id": 15}).start()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as client:
        assert is_over(client)
    with pytest.raises(BrokerFailed, match="a client is cursed"):
        broker.close()
    assert nodes.made[0].history == ["start", "abandon"]
    assert threads_left(threads_before) == []


def test_a_broker_is_started_once() -> None:
    with Broker(make_node=EchoNode) as broker, pytest.raises(BrokerFailed, match="runs already"):
        broker.start()


# -- in a process --------------------------------------------------------------------------------------


@pytest.fixture
def _heeds_hangups() -> Iterator[None]:
    """Processes that are started here do, also where the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_heeds_hangups")
def test_the_first_signal_stops_a_process_cleanly(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Process(data=tmp_path, command=UP_ECHO) as process:
            assert echo(process.port) == b"hello"
            process.send(number)
            assert process.wait() == 0
            lines = process.stderr.splitlines()
        assert len(lines) == 2
        assert f"{number.name}: stopping" in lines[0]
        assert lines[1].endswith("stopped")


def test_a_signal_that_comes_while_the_node_starts_is_not_lost(tmp_path: Path) -> None:
    process = refusal("node.id=16", data=tmp_path, command=UP_ECHO)
    assert (process.code, process.out) == (0, "")
    assert "SIGTERM: stopping" in process.err


def test_a_bug_does_not_leave_a_process_that_serves_nothing(tmp_path: Path) -> None:
    process = refusal("node.id=17", data=tmp_path, command=UP_ECHO)
    assert (process.code, process.out) == (1, "")
    assert "ZeroDivisionError: a bug" in process.err


def test_a_failure_ends_a_process_with_one_and_a_failed_start_with_two(tmp_path: Path) -> None:
    with Process("node.id=15", data=tmp_path, command=UP_ECHO) as process:
        with socket.create_connection(("127.0.0.1", process.port), timeout=30):
            assert process.wait() == 1
        assert process.stderr == "penstock: a client is cursed\n"
    for node_id, reason in (("13", "the directory is cursed"), ("14", "the disk is cursed")):
        refused = refusal(f"node.id={node_id}", data=tmp_path, command=UP_ECHO)
        assert refused == (2, "", f"penstock: {reason}\n")
