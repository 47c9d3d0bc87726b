"""What is measured, as child processes: Penstock as its user starts it, Apache Kafka, and the floor.

Each has a port, a process whose CPU clock and memory can be read, and for the first two a directory of data.
Leaving the `with` block stops it.
"""

import compileall
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[2] / "src"

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0

KAFKA_JVM = (
    # What Kafka's own start script gives its broker.
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

INITIAL_DELAY = ("group.initial.rebalance.delay.ms", "0")
"""The one setting of Penstock's that is not the default: an empty group waits for more members, and does nothing."""

KAFKA_PROPERTIES = dict(
    [
        # A deleted topic's files go at once, so that the next round finds their pages free.
        ("log.segment.delete.delay.ms", "0"),
        # Its default, and Penstock's.
        ("offsets.topic.num.partitions", "50"),
        INITIAL_DELAY,
    ]
)


class ServerError(RuntimeError):
    """A server that was to be measured did not start."""


class Server(NamedTuple):
    name: str
    pid: int
    port: int
    data: Path
    """Where its partitions' files are, at some depth."""
    start_seconds: float
    """From the command to being ready."""

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


def start(name: str, data: Path) -> AbstractContextManager[Server]:
    """A fresh server of a kind, on a directory of its own."""
    kinds = {"penstock": penstock, "penstock-quotas": penstock_with_quotas, "kafka": kafka}
    return kinds[name](data)


@contextmanager
def penstock(data: Path) -> Iterator[Server]:
    """Penstock with its bytecode in place, as pip leaves what it installs."""
    compileall.compile_dir(SOURCES, quiet=1)
    command = [
        str(Path(sys.executable).with_name("penstock")),
        "up",
        "--kafka",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--line",
        "127.0.0.1:0",
        "--data",
        str(data),
        "--set",
        "=".join(INITIAL_DELAY),
    ]
    with child(command, "penstock ready ") as (process, line, seconds):
        address = dict(word.split("=", 1) for word in line.split() if "=" in word)["kafka"]
        yield Server("penstock", process.pid, int(address.rpartition(":")[2]), data, seconds)


@contextmanager
def penstock_with_quotas(data: Path) -> Iterator[Server]:
    """The same in a cluster with quotas of every kind, which nobody reaches: what they cost."""
    from penstock.client.cluster import Cluster  # noqa: PLC0415  # only who asks for it needs it
    from penstock.client.quotas import alter_quotas  # noqa: PLC0415
    from penstock.client.settings import Address  # noqa: PLC0415
    from penstock.metadata.quotas import CLIENT_KEYS  # noqa: PLC0415

    with penstock(data) as server:
        with Cluster([Address("127.0.0.1", server.port)]) as cluster:
            alter_quotas(cluster, (("user", None),), dict.fromkeys(CLIENT_KEYS, 1e12))
        yield server._replace(name="penstock-quotas")


@contextmanager
def kafka(data: Path) -> Iterator[Server]:
    """Apache Kafka, one KRaft node with the heap and collector of its own start script."""
    from tests.compat.kafka.peer import KafkaPeer, jars  # noqa: PLC0415  # only who asks for it needs it

    peer = KafkaPeer(jars(), jvm=KAFKA_JVM)
    peer.format_storage(data)
    started = time.perf_counter()
    with peer.running_kafka(data, KAFKA_PROPERTIES) as broker:
        seconds = time.perf_counter() - started
        port = int(broker.bootstrap.rpartition(":")[2])
        yield Server("kafka", broker.process.pid, port, data, seconds)


@contextmanager
def floor(request_bytes: int, reply_bytes: int) -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.broker.echo", str(request_bytes), str(reply_bytes)]
    with child(command, "") as (process, line, seconds):
        yield Server("floor", process.pid, int(line), Path(), seconds)


@contextmanager
def child(command: Sequence[str], ready: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """A process, the line with which it says that it is ready, and how long that took."""
    with tempfile.TemporaryFile("w+") as complaints:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            line = _ready_line(process, ready)
            seconds = time.perf_counter() - started
            if line is None:
                process.kill()
                process.wait()
                complaints.seek(0)
                said = complaints.read()[-2000:].strip() or "nothing"
                raise ServerError(f"{' '.join(command)} was not ready in {seconds:.1f} s; it said: {said}")
            yield process, line, seconds
        finally:
            _stop(process)


def _ready_line(process: subprocess.Popen[str], ready: str) -> str | None:
    assert process.stdout is not None
    ends_at = time.perf_counter() + START_SECONDS_MAX
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, ends_at - time.perf_counter())):
            line = process.stdout.readline()
            if not line:
                return None
            if line.startswith(ready):
                return line
    return None


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
