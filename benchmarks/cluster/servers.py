"""Clusters to be measured: three nodes each, brokers and controllers at once, with the defaults that they ship."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker.load import cpu_seconds
from benchmarks.broker.servers import KAFKA_JVM
from penstock.server.ports import hold_port

HOST = "127.0.0.1"
NODES = 3

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.segment.delete.delay.ms": "1000",
}
"""What differs from the defaults. A round's files are deleted soon after it: or they would be written to the disk
while the next one is measured."""


@dataclass(frozen=True)
class Cluster:
    name: str
    bootstrap: str
    pids: dict[int, int]
    """By node id."""
    data: Path
    """Where the nodes have their directories."""

    def cpu(self, node: int | None = None) -> float:
        """CPU seconds that all nodes, or one, have used so far."""
        pids = self.pids.values() if node is None else [self.pids[node]]
        return sum(cpu_seconds(pid) for pid in pids)

    def signal(self, node: int, number: signal.Signals) -> None:
        os.kill(self.pids[node], number)


def start(name: str, data: Path) -> AbstractContextManager[Cluster]:
    return {"penstock": penstock, "kafka": kafka}[name](data)


@contextmanager
def penstock(data: Path) -> Iterator[Cluster]:
    ports, controllers, held = _ports()
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in controllers.items())
    command = str(Path(sys.executable).with_name("penstock"))
    with ExitStack() as stack:
        for each in held:
            stack.callback(each.close)
        children: dict[int, subprocess.Popen[bytes]] = {}
        for number, port in ports.items():
            flags = {"node.id": str(number), "controller.quorum.voters": voters, **REPLICATED}
            children[number] = subprocess.Popen(
                [
                    command,
                    "up",
                    *("--data", str(data / f"node-{number}")),
                    *("--kafka", f"{HOST}:{port}", "--controller", f"{HOST}:{controllers[number]}"),
                    *("--http", "off", "--line", "off"),
                    *(word for name, value in flags.items() for word in ("--set", f"{name}={value}")),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_end, children[number])
        for process in children.values():
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith(b"penstock ready"):
                raise RuntimeError(f"a node of the cluster is not ready: it said {line!r}")
        pids = {number: process.pid for number, process in children.items()}
        yield Cluster("penstock", _bootstrap(ports), pids, data)


@contextmanager
def kafka(data: Path) -> Iterator[Cluster]:
    from tests.compat.kafka.peer import (  # noqa: PLC0415  # only who asks for it needs it
        CLUSTER_ID,
        KafkaPeer,
        jars,
    )

    peer = KafkaPeer(jars(), jvm=KAFKA_JVM)
    ports, controllers, held = _ports()
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in controllers.items())
    for number in ports:
        peer.format_storage(data / f"node-{number}", CLUSTER_ID, number)
    for each in held:
        each.close()
    classes = str(Path(peer.jar_dir) / "*")
    with ExitStack() as stack:
        running = {}
        for number, port in ports.items():
            settings = data / f"node-{number}.properties"
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controllers[number]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "log.dirs": str((data / f"node-{number}").resolve()),
                **REPLICATED,
            }
            settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            log_level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
            running[number] = subprocess.Popen(
                ["java", *KAFKA_JVM, log_level, "-cp", classes, "kafka.Kafka", str(settings)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_end, running[number])
        pids = {number: process.pid for number, process in running.items()}
        yield Cluster("kafka", _bootstrap(ports), pids, data)


def _ports() -> tuple[dict[int, int], dict[int, int], Sequence[socket.socket]]:
    """By node, where its clients and where its controller is reached; the ports are held until somebody listens."""
    held = [hold_port(host=HOST) for _ in range(2 * NODES)]
    numbers = [each.getsockname()[1] for each in held]
    nodes = range(1, NODES + 1)
    return (
        dict(zip(nodes, numbers[:NODES], strict=True)),
        dict(zip(nodes, numbers[NODES:], strict=True)),
        held,
    )


def _bootstrap(ports: dict[int, int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports.values())


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
