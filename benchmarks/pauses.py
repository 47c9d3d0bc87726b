"""How long each kind of fault keeps `acks=all` waiting: `python -m benchmarks.pauses`.

Three nodes, brokers and controllers at once, with their default settings and three replicas of everything. An
idempotent producer (librdkafka) writes 1 KB records at a steady pace to partitions that all nodes lead. A fault
strikes one node. The figure is the longest time for which a partition acknowledged nothing, from the fault until
everything is in sync again. What was written is read back: all of it must be there, in order.

    kill        SIGKILL of a node; it is started again after FAULT_S
    kill all    SIGKILL of all nodes, started again at once
    freeze      SIGSTOP, SIGCONT after FAULT_S
    isolate     the node's cable is cut, both ways        (network namespaces: root and `ip`)
    deaf        the node hears nobody, and is heard
    mute        nobody hears the node, and it hears all
    full        its disk is full                          (tmpfs: root)
    read-only   its disk refuses every change             (LD_PRELOAD: a C compiler)
    writes      its disk fails writes
    syncs       its disk fails syncs
    slow        its disk takes SYNC_MS for each sync

Each fault is measured twice: on a node that is not the active controller, and on the one that is.
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table
from tests.cluster.disks import FailingDisk, Tmpfs
from tests.cluster.processes import ClusterProcesses
from tests.cluster.steady import Steady
from tests.cluster.views import Seen
from tests.cluster.walled import WalledCluster
from tests.compat.clients.patient import wait_until
from tests.processes import Process

from benchmarks.broker.report import machine
from benchmarks.cluster.load import active_controller
from penstock.chaos.namespaces import CLIENTS, Network

TOPIC, PARTITIONS = "pauses", 6
NODES = (1, 2, 3)
FAULT_S = 15.0
"""Longer than a session."""
SYNC_MS = 3000

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
"""What differs from the defaults: a topic that is to survive a node."""

CLIENT = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "socket.timeout.ms": 2000,
    "api.version.request.timeout.ms": 2000,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}
"""A client that waits for a silent broker for 2 s, not for librdkafka's minute: that would be all that is measured."""


@dataclass
class Stage:
    """A cluster that runs, and what a fault may need of it."""

    seen: Seen
    steady: Steady
    nodes: Mapping[int, Process]
    target: int
    disk: Tmpfs | FailingDisk | None = None
    network: Network | None = None

    def rest(self) -> None:
        time.sleep(FAULT_S)

    @property
    def others(self) -> list[int]:
        return [*(each for each in NODES if each != self.target), CLIENTS]


def kill(stage: Stage) -> None:
    stage.nodes[stage.target].kill()
    stage.rest()
    stage.nodes[stage.target].start()


def kill_all(stage: Stage) -> None:
    for node in stage.nodes.values():
        node.send(signal.SIGKILL)
    for node in stage.nodes.values():
        node.kill()
        node.launch()
    for node in stage.nodes.values():
        node.read_line()


def freeze(stage: Stage) -> None:
    stage.nodes[stage.target].send(signal.SIGSTOP)
    stage.rest()
    stage.nodes[stage.target].send(signal.SIGCONT)


def isolate(stage: Stage) -> None:
    assert stage.network is not None
    stage.network.cut(stage.target)
    stage.rest()
    stage.network.heal(stage.target)


def deaf(stage: Stage) -> None:
    _cut_one_way(stage, [(each, stage.target) for each in stage.others])


def mute(stage: Stage) -> None:
    _cut_one_way(stage, [(stage.target, each) for each in stage.others])


def _cut_one_way(stage: Stage, ways: list[tuple[int, int]]) -> None:
    assert stage.network is not None
    for way in ways:
        stage.network.block(*way)
    stage.rest()
    for way in ways:
        stage.network.unblock(*way)


def full(stage: Stage) -> None:
    assert isinstance(stage.disk, Tmpfs)
    stage.disk.fill()
    stage.rest()
    stage.disk.make_room()
    _start_again(stage)


def _fail(begin: Callable[[FailingDisk], None]) -> "Callable[[Stage], None]":
    def strike(stage: Stage) -> None:
        assert isinstance(stage.disk, FailingDisk)
        begin(stage.disk)
        stage.rest()
        stage.disk.work()
        _start_again(stage)

    return strike


def _start_again(stage: Stage) -> None:
    """A node that could not write its metadata log has stopped."""
    node = stage.nodes[stage.target]
    if not node.is_running:
        node.kill()
        node.start()


FAULTS: dict[str, Callable[[Stage], None]] = {
    "kill": kill,
    "kill all": kill_all,
    "freeze": freeze,
    "isolate": isolate,
    "deaf": deaf,
    "mute": mute,
    "full": full,
    "read-only": _fail(FailingDisk.become_read_only),
    "writes": _fail(FailingDisk.fail_writes),
    "syncs": _fail(FailingDisk.fail_syncs),
    "slow": _fail(lambda disk: disk.become_slow(SYNC_MS)),
}
WALLED = ("isolate", "deaf", "mute")
SHIMMED = ("read-only", "writes", "syncs", "slow")


def refusal(fault: str) -> str | None:
    """Why a fault cannot be made here; None where it can."""
    if fault in WALLED:
        return Network.refusal()
    if fault == "full":
        return Tmpfs.refusal()
    return FailingDisk.refusal() if fault in SHIMMED else None


@contextmanager
def staged(fault: str, is_controller: bool, data: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        network: Network | None = None
        disks: dict[int, Tmpfs | FailingDisk] = {}
        nodes: Mapping[int, Process]
        if fault in WALLED:
            network = stack.enter_context(Network(len(NODES)))
            walled = stack.enter_context(WalledCluster(network, data, REPLICATED))
            nodes, bootstrap = walled.nodes, walled.bootstrap
            stack.enter_context(network.inside(network.hub))
        else:
            environments: dict[int, Mapping[str, str]] = {}
            for number in NODES:
                directory = data / f"node-{number}"
                if fault == "full":
                    disks[number] = stack.enter_context(Tmpfs(directory, 256 << 20))
                elif fault in SHIMMED:
                    failing = disks[number] = FailingDisk(directory, data)
                    environments[number] = failing.environment
            cluster = ClusterProcesses(data, settings=REPLICATED, environments=environments)
            stack.enter_context(cluster)
            nodes, bootstrap = cluster.nodes, cluster.bootstrap
        seen = Seen(bootstrap)
        seen.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        wait_until(seen.is_whole)
        controller = active_controller(bootstrap)
        target = controller if is_controller else next(each for each in NODES if each != controller)
        steady = Steady(Producer({"bootstrap.servers": bootstrap, **CLIENT}), TOPIC, PARTITIONS).start()
        try:
            wait_until(lambda: steady.acked)
            yield Stage(seen, steady, nodes, target, disks.get(target), network)
        finally:
            steady.finish()


def measure(fault: str, is_controller: bool) -> float:
    """The longest pause, in seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-pauses-", ignore_cleanup_errors=True) as directory,
        staged(fault, is_controller, Path(directory)) as stage,
    ):
        time.sleep(1)
        stage.steady.forget()
        FAULTS[fault](stage)
        wait_until(stage.seen.is_whole)
        time.sleep(1)
        stage.steady.finish()
        stage.steady.assert_exactly_once(stage.seen)
        return stage.steady.pause_s


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pauses", description="Measure how long faults keep acks=all waiting."
    )
    parser.add_argument("faults", nargs="*", help=f"which: {', '.join(FAULTS)}; all unless given")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    for fault in asked.faults:
        if fault not in FAULTS:
            parser.error(f"{fault!r} is no fault, expected one of {', '.join(FAULTS)}")
    figures: dict[str, dict[str, list[float]]] = {}
    console = Console(stderr=True)
    for fault in asked.faults or FAULTS:
        if (why := refusal(fault)) is not None:
            console.print(f"{fault} is left out: {why}")
            continue
        for name, is_controller in (("a broker", False), ("the active controller", True)):
            if fault == "kill all" and is_controller:
                continue
            pauses = figures.setdefault(fault, {}).setdefault(name, [])
            for _ in range(asked.rounds):
                pauses.append(measure(fault, is_controller))
                console.print(f"{fault}, {name}: {pauses[-1]:.2f} s")
    if asked.json:
        json.dump({"machine": machine(), "pauses_s": figures}, sys.stdout, indent=2)
        print()
    else:
        _show(figures)
    return 0


def _show(figures: Mapping[str, Mapping[str, list[float]]]) -> None:
    table = Table("fault", "a broker: median", "longest", "the active controller: median", "longest")
    for fault, columns in figures.items():
        row = [fault]
        for name in ("a broker", "the active controller"):
            pauses = columns.get(name)
            row += [f"{statistics.median(pauses):.2f} s", f"{max(pauses):.2f} s"] if pauses else ["", ""]
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(str(machine()))


if __name__ == "__main__":
    sys.exit(main())
