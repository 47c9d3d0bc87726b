"""Replication, failover and the simulator against their goals: `python -m benchmarks.cluster`.

replicate    acks=all, 1 KB records in 128 KB batches: MB/s, and CPU seconds of all nodes for a GB
follower     what a follower costs its leader, beside a consumer that reads the same
kill         the longest time without an acknowledgement after a kill -9 of a partition's leader
freeze       the same after a SIGSTOP, for a client whose requests wait less long than the session
sim          simulated time for real time, three nodes under load
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.broker.report import machine
from benchmarks.cluster import load, servers
from benchmarks.cluster.pages import touch
from benchmarks.cluster.servers import Cluster

ROUNDS = 3
SIZE = 600 << 20
QUICK_SIZE = 8 << 20
WARM_SIZE = 1000 << 20
WARM_ROUNDS = 5
"""Before anything counts: three JVMs compile what they run, on the cores that they are to be measured on, and are not
done before they have taken some gigabytes."""
FREEZE_SECONDS = 14.0
"""Longer than the session that a frozen broker has."""
IMPATIENT = {
    "socket.timeout.ms": 2000,
    "api.version.request.timeout.ms": 2000,
    "topic.metadata.refresh.interval.ms": 1000,
}
"""The connections to a frozen broker stay open. A client that waits for an answer as long as librdkafka does by
itself, a minute, and asks every five who leads, would be all that is measured: this one gives up sooner."""

Figures = dict[str, float]


class Goal(NamedTuple):
    """Of a figure, or, with `of_peer`, of its ratio to Apache Kafka's in the same run."""

    limit: float
    at_least: bool = False
    of_peer: bool = False

    def is_met(self, own: float, peer: float | None) -> bool | None:
        if self.of_peer and peer is None:
            return None
        held = own / peer if self.of_peer and peer is not None else own
        return held >= self.limit if self.at_least else held <= self.limit

    def __str__(self) -> str:
        return (
            f"{'at least' if self.at_least else 'at most'} {self.limit:g}{' x Kafka' if self.of_peer else ''}"
        )


LINES: dict[str, tuple[str, str, Goal | None]] = {
    "replicate-mbs": ("acks=all, RF 3, 128 KB batches", "MB/s", Goal(1.5, at_least=True, of_peer=True)),
    "replicate-cpu": ("the same, all three nodes", "CPU s/GB", Goal(0.5, of_peer=True)),
    "replicate-client": ("the same, the client", "CPU s/GB", None),
    "follower": ("leader's CPU for a follower / for a consumer", "x", Goal(1.0)),
    "kill": ("kill -9 of a leader, longest pause", "s", Goal(1.0)),
    "freeze": ("SIGSTOP of a leader, longest pause (session 9 s, requests 2 s)", "s", Goal(10.0)),
    "sim": ("simulated time / real time, three nodes", "x", Goal(20, at_least=True)),
}


def replicate(cluster: Cluster, size: int, number: int) -> Figures:
    if number == 0:
        for each in range(WARM_ROUNDS if size > QUICK_SIZE else 1):
            _replicated(cluster, f"warm-{each}", WARM_SIZE if size > QUICK_SIZE else size)
    return _replicated(cluster, f"replicate-{number}", size)


def _replicated(cluster: Cluster, topic: str, size: int) -> Figures:
    load.create_topic(cluster.bootstrap, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    touch(size * servers.NODES)
    used = cluster.cpu()
    produced = load.produce(cluster.bootstrap, topic, size)
    time.sleep(0.5)  # followers end what they do
    used = cluster.cpu() - used
    load.delete_topic(cluster, topic)
    gigabytes = produced.size / 1e9
    return {
        "replicate-mbs": produced.size / produced.seconds / 1e6,
        "replicate-cpu": used / gigabytes,
        "replicate-client": produced.client_cpu / gigabytes,
    }


def follower(cluster: Cluster, size: int, number: int) -> Figures:
    """What the leader of a partition uses while it is written to: alone, with a follower, and with a consumer that
    reads along. What the second and the third use more than the first is for whoever copies."""
    names = ("warm", "alone", "follower", "consumer")
    costs = {
        each: _leader_cost(
            cluster, f"{each}-{number}", size, [1, 2] if each == "follower" else [1], each == "consumer"
        )
        for each in names
    }
    copied, read = costs["follower"] - costs["alone"], costs["consumer"] - costs["alone"]
    return {"follower": max(copied, 0.0) / read if read > 0 else 0.0}


def _leader_cost(cluster: Cluster, topic: str, size: int, replicas: list[int], is_read: bool) -> float:
    load.create_topic(cluster.bootstrap, topic, [replicas], {"min.insync.replicas": "1"})
    leader = load.leader(cluster.bootstrap, topic)
    reader = Thread(target=load.consume, args=(cluster.bootstrap, topic, size))
    used = cluster.cpu(leader)
    if is_read:
        reader.start()
    load.produce(cluster.bootstrap, topic, size, acks="1")
    if is_read:
        reader.join()
    else:
        time.sleep(1.0)  # a follower ends what it does
    return cluster.cpu(leader) - used


def strike(
    cluster: Cluster,
    topic: str,
    blow: signal.Signals,
    seconds: float,
    settings: Mapping[str, Any] | None = None,
) -> float:
    """Send a signal to the leader of a partition, which is not the active controller, and see for how long nothing is
    acknowledged."""
    load.create_topic(cluster.bootstrap, topic, [_others_first(load.active_controller(cluster.bootstrap))])
    pulse = load.Pulse(cluster.bootstrap, topic, settings)
    pulse.beat(2.0)
    node = load.leader(cluster.bootstrap, topic)
    struck = time.perf_counter()
    cluster.signal(node, blow)
    pulse.beat(seconds)
    pause = pulse.longest_pause(struck)
    if blow is signal.SIGSTOP:
        cluster.signal(node, signal.SIGCONT)
    return pause


def _others_first(node: int) -> list[int]:
    nodes = range(1, servers.NODES + 1)
    return [*(each for each in nodes if each != node), node]


def simulate(minutes: float) -> float:
    from benchmarks.cluster.simulator import speed  # noqa: PLC0415  # a cluster is not needed for it

    return speed(minutes)


def killed(cluster: Cluster, size: int, number: int) -> Figures:
    seconds = 12.0 if size > QUICK_SIZE else 1.0
    return {"kill": strike(cluster, f"kill-{number}", signal.SIGKILL, seconds)}


def frozen(cluster: Cluster, size: int, number: int) -> Figures:
    seconds = FREEZE_SECONDS if size > QUICK_SIZE else 1.0
    return {"freeze": strike(cluster, f"freeze-{number}", signal.SIGSTOP, seconds, IMPATIENT)}


class Row(NamedTuple):
    run: Callable[[Cluster, int, int], Figures]
    is_harmless: bool
    """Whether the next round finds the cluster as this one did, and warm."""


ROWS: dict[str, Row | None] = {
    "replicate": Row(replicate, is_harmless=True),
    "follower": Row(follower, is_harmless=True),
    "kill": Row(killed, is_harmless=False),
    "freeze": Row(frozen, is_harmless=False),
    "sim": None,
}
"""What is measured, in a cluster of its own: a node that was killed is not missed by the next row. The simulator needs
none."""


def measure(row: str, name: str, data: Path, size: int, rounds: int) -> Iterator[Figures]:
    """The figures of all rounds, one after the other."""
    chosen = ROWS[row]
    if chosen is None:
        for _ in range(rounds):
            yield {"sim": simulate(1.0 if size > QUICK_SIZE else 0.05)}
        return
    numbers = [range(rounds)] if chosen.is_harmless else [range(each, each + 1) for each in range(rounds)]
    for some in numbers:
        with (
            tempfile.TemporaryDirectory(prefix=f"{name}-", dir=data) as directory,
            servers.start(name, Path(directory)) as cluster,
        ):
            for number in some:
                yield chosen.run(cluster, size, number)


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    rows = options.rows.split(",") if options.rows else list(ROWS)
    unknown = [each for each in rows if each not in ROWS]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    names = ["penstock", *([options.peer] if options.peer else [])]
    size, rounds = (QUICK_SIZE, 1) if options.quick else (SIZE, options.rounds)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for row in rows:
            for name in names if ROWS[row] is not None else names[:1]:
                print(f"{row} {name} ...", file=sys.stderr, flush=True)
                for figures in measure(row, name, Path(directory), size, rounds):
                    told = ", ".join(f"{key} {figure:.3g}" for key, figure in figures.items())
                    print(f"{row} {name}: {told}", file=sys.stderr, flush=True)
                    for key, figure in figures.items():
                        found[name].setdefault(key, []).append(figure)
    if options.json:
        print(json.dumps({"machine": machine(), "rounds": found}, indent=2))
    else:
        _print(found)
    missed = [key for key in found["penstock"] if _is_met(found, key) is False]
    return 1 if options.goals and missed else 0


def _median(found: dict[str, dict[str, list[float]]], name: str, key: str) -> float | None:
    values = found.get(name, {}).get(key)
    return statistics.median(values) if values else None


def _is_met(found: dict[str, dict[str, list[float]]], key: str) -> bool | None:
    own, goal = _median(found, "penstock", key), LINES[key][2]
    return None if own is None or goal is None else goal.is_met(own, _median(found, "kafka", key))


def _print(found: dict[str, dict[str, list[float]]]) -> None:
    table = Table("work", "unit", "Penstock", "Kafka", "Penstock / Kafka", "goal", "", title="Three nodes")
    for key, (work, unit, goal) in LINES.items():
        own, peer = _median(found, "penstock", key), _median(found, "kafka", key)
        if own is None:
            continue
        is_met = _is_met(found, key)
        table.add_row(
            work,
            unit,
            f"{own:.3g}",
            "" if peer is None else f"{peer:.3g}",
            "" if peer is None else f"{own / peer:.2f}",
            str(goal or ""),
            {True: "[green]ok[/]", False: "[red]missed[/]", None: ""}[is_met],
        )
    Console(width=max(Console().width, 130)).print(table)


def _parse(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="benchmarks.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", help="only these, separated by commas")
    parser.add_argument("--peer", choices=["kafka"], help="run the same rows on it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"for each row; {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, to see that it runs")
    parser.add_argument("--no-goals", dest="goals", action="store_false", help="a missed goal is no failure")
    parser.add_argument("--json", action="store_true", help="figures of all rounds instead of a table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
