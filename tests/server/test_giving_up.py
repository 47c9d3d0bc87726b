"""A node that gives up ends, whatever else fails on the way out."""

import resource
import socket
import sys
from pathlib import Path

import pytest
from tests.processes import COMMAND, Process

from penstock.client.admin import NewTopic, create_topics
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.settings import Address, ClientSettings
from penstock.server.up import EXIT_FAILED

ON_A_FULL_DISK = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
"""Standard error of the command that follows cannot be written to."""

SOON = ClientSettings(api_timeout_ms=5000)
"""A client that does not wait for long for a node that is gone."""

UP_STUCK = (
    sys.executable,
    "-c",
    "import sys, time\n"
    "from tests.server.fakes import EchoNode\n"
    "from penstock.server import up\n"
    "from penstock.server.config import config_from\n"
    "class Stuck(EchoNode):\n"
    "    def start(self, ready, failed):\n"
    "        super().start(ready, failed)\n"
    "        self.world.beside(lambda: time.sleep(1000), lambda *_: None)\n"
    "        self.world.call_later(300, lambda: failed('the disk is gone'))\n"
    "_, _, data, _, kafka, *more = sys.argv\n"
    "up.END_S_MAX = 0.5\n"
    "up.start_logging(None)\n"
    "sys.exit(up.run(config_from(data, {}, kafka=kafka), Stuck))\n",
)
"""A node that gives up while a thread waits for the disk for ever."""


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("command", [COMMAND, (*ON_A_FULL_DISK, *COMMAND)])
def test_a_node_that_cannot_write_its_metadata_ends(command: tuple[str, ...], tmp_path: Path) -> None:
    """Also where it cannot say why: its standard error lies on the same disk."""
    with Process(data=tmp_path / "data", command=command) as process:
        with Cluster([Address("127.0.0.1", process.port)], SOON) as cluster:
            [made] = create_topics(cluster, [NewTopic("orders", 1, 1)])
            assert made.error is None
            [log] = (tmp_path / "data/logs/__cluster_metadata-0").glob("*.log")
            hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
            with pytest.raises(ClientError):
                create_topics(cluster, [NewTopic("payments", 1, 1)])
        assert process.wait() == EXIT_FAILED
        assert not is_open(process.port)
        said = "" if command is not COMMAND else f"penstock: cannot write {log}"
        assert said in process.stderr


def test_a_node_that_gives_up_waits_for_no_thread_for_ever(tmp_path: Path) -> None:
    with Process(data=tmp_path, command=UP_STUCK) as process:
        assert process.wait() == EXIT_FAILED
        assert "the disk is gone" in process.stderr


def test_a_node_that_cannot_start_says_so_by_its_exit_code(tmp_path: Path) -> None:
    """Also where its words go nowhere."""
    (tmp_path / "data").write_text("a file")
    process = Process(data=tmp_path / "data", command=(*ON_A_FULL_DISK, *COMMAND))
    try:
        assert process.launch().read_line() == ""
        assert process.wait() == 2
    finally:
        process.close()
