"""Rounds: each server has its turn with the same load, and what each said is kept by figure and server."""

import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks.broker import groups, latency, still
from benchmarks.broker.admin import Admin
from benchmarks.broker.crowd import Settled, gathered, settle
from benchmarks.broker.load import Measured, drive
from benchmarks.broker.members import Group
from benchmarks.broker.rows import TOPIC_CONFIGS, HotRow, Line, Topic, hot_rows
from benchmarks.broker.servers import Server, floor, start

YARDSTICK = "yardstick"
GONE_SECONDS_MAX = 10.0
TOPIC_NAME = "bench-{:06}"
FLOOR_TOPIC = Topic(TOPIC_NAME.format(0), bytes(16))
"""The floor has no topics, but its requests are to have the same size."""
LATENCY_RATES = (1000, 5000)
LATENCY_SECONDS = 5.0

Figures = dict[str, dict[str, list[float]]]
"""By line, by server (or YARDSTICK), a figure for each round."""

Turned = TypeVar("Turned")


class Bench:
    """What the rows of a run share: the servers, the generator's processes, a directory."""

    def __init__(
        self, servers: Sequence[Server], directory: Path, scale: float, rounds: int, warm_seconds: float
    ):
        self.servers = servers
        self.directory = directory
        self.scale = scale
        self.rounds = rounds
        self.warm_seconds = warm_seconds
        """How long a server with a compiler is driven before a row counts."""
        self._serial = self._group_serial = 0
        spawn = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(2, mp_context=spawn)

    def close(self) -> None:
        self.pool.shutdown()

    # -- rows ------------------------------------------------------------------------------------------

    def hot(self, row: HotRow) -> Figures:
        found: Figures = {line.key: {} for line in row.lines}
        with ExitStack() as stack:
            kept = {
                server.name: stack.enter_context(self._filled(row, server))
                for server in self.servers
                if row.fill
            }
            # The sizes that the floor is to have come from the round that does not count.
            measured = self._warm_up(lambda server: self._turn(row, server, kept))
            yardstick = None
            if row.raw is None:
                yardstick = stack.enter_context(floor(measured.request_bytes, measured.reply_bytes))
                self._drive(row, yardstick, FLOOR_TOPIC)
            for _ in range(self.rounds):
                if yardstick is not None:
                    _keep(found, YARDSTICK, row.figures(self._drive(row, yardstick, FLOOR_TOPIC)))
                elif row.raw is not None:
                    _keep(found, YARDSTICK, {row.name: row.raw(self.directory, self.scale)})
                for server in self.servers:
                    _keep(found, server.name, row.figures(self._turn(row, server, kept)))
        return found

    def settle(self, protocol: str) -> Figures:
        """Groups gather on one topic, a group of its own each time."""
        found: Figures = {line.key: {} for line in groups.settle_lines(protocol)}
        members, partitions = groups.settle_sizes(self.scale)
        with ExitStack() as stack:
            topics = {
                server.name: stack.enter_context(self._topic(server, partitions, TOPIC_CONFIGS))
                for server in self.servers
            }

            def turn(server: Server) -> Settled:
                [group] = self._groups(topics[server.name], protocol, 1, partitions)
                return self.pool.submit(settle, server.port, server.pid, group, members).result()

            self._warm_up(turn)
            for _ in range(self.rounds):
                for server in self.servers:
                    _keep(found, server.name, groups.settle_figures(protocol, turn(server)))
        return found

    def rest(self) -> Figures:
        found: Figures = {line.key: {} for line in still.LINES}
        for number in range(self.rounds):
            for server in self.servers:
                data = self.directory / f"rest-{server.name}-{number}"
                connections = max(50, int(still.CONNECTIONS * self.scale))
                _keep(found, server.name, still.at_rest(server.name, data, connections).figures())
                shutil.rmtree(data, ignore_errors=True)
        return found

    def latency(self, rate: int) -> Figures:
        found: Figures = {line.key: {} for line in latency.lines(rate)}
        for number in range(-1 if self.warm_seconds else 0, self.rounds):
            for server in self.servers:
                with self._topic(server, 1, {}) as topic:
                    seconds = LATENCY_SECONDS * max(self.scale, 0.02)
                    figures = latency.end_to_end(self.pool, server.port, topic.name, rate, seconds)
                if number >= 0:
                    _keep(found, server.name, figures)
        return found

    # -- turns -----------------------------------------------------------------------------------------

    def _warm_up(self, turn: Callable[[Server], Turned]) -> Turned:
        """The round that does not count, and what came of it."""
        for server in self.servers:
            ends_at = time.perf_counter() + (self.warm_seconds if server.name == "kafka" else 0)
            turned = turn(server)
            while time.perf_counter() < ends_at:
                turned = turn(server)
        return turned

    def _turn(self, row: HotRow, server: Server, kept: Mapping[str, Topic]) -> Measured:
        if server.name in kept:
            return self._drive(row, server, kept[server.name])
        with self._topic(server, row.partitions, self._configs(row, server)) as topic:
            if row.company is None:
                return self._drive(row, server, topic)
            wanted = row.company
            made = self._groups(topic, wanted.protocol, wanted.groups, row.partitions)
            with gathered(server.port, made, wanted.members) as members:
                return self._drive(row, server, topic._replace(members=members))

    def _groups(self, topic: Topic, protocol: str, count: int, partitions: int) -> list[Group]:
        """Groups that were not there before."""
        self._group_serial += count
        return [
            Group(groups.GROUP_NAME.format(self._group_serial - each), *topic[:2], partitions, protocol)
            for each in range(count)
        ]

    def _drive(self, row: HotRow, server: Server, topic: Topic) -> Measured:
        return self.pool.submit(drive, server.port, server.pid, row.load(topic, self.scale)).result()

    @contextmanager
    def _filled(self, row: HotRow, server: Server) -> Iterator[Topic]:
        with self._topic(server, row.partitions, self._configs(row, server)) as topic:
            assert row.fill is not None
            with Admin(server.port) as admin:
                for frame in row.fill(topic):
                    admin.produce(frame)
            yield topic

    @contextmanager
    def _topic(self, server: Server, partitions: int, configs: Mapping[str, str]) -> Iterator[Topic]:
        """A topic of its own, whose files are gone afterwards."""
        self._serial += 1
        name = TOPIC_NAME.format(self._serial)
        with Admin(server.port) as admin:
            yield Topic(name, admin.create_topic(name, partitions, configs))
            admin.delete_topic(name)
        ends_at = time.monotonic() + GONE_SECONDS_MAX
        while time.monotonic() < ends_at and _has_files(server.data, name):
            time.sleep(0.05)  # deletion goes on behind the answer, and nobody says when it is done

    def _configs(self, row: HotRow, server: Server) -> dict[str, str]:
        return {**TOPIC_CONFIGS, **(row.kafka_configs if server.name == "kafka" else {})}


def _has_files(data: Path, topic: str) -> bool:
    try:
        return any(data.glob(f"**/{topic}-*/*.log*"))
    except FileNotFoundError:  # one went while it was looked at
        return True


class Row:
    """A row by its name, whatever kind it is."""

    def __init__(self, name: str, lines: Sequence[Line], run: Callable[[Bench], Figures]) -> None:
        self.name, self.lines, self.run = name, lines, run


def all_rows() -> list[Row]:
    hot = [*hot_rows(), *groups.hot_rows()]
    rows = [Row(each.name, each.lines, lambda bench, each=each: bench.hot(each)) for each in hot]
    rows += [
        Row(f"settle-{protocol}", groups.settle_lines(protocol), lambda bench, it=protocol: bench.settle(it))
        for protocol in groups.PROTOCOLS
    ]
    rows.append(Row("rest", still.LINES, Bench.rest))
    rows += [
        Row(f"latency-{rate}", latency.lines(rate), lambda bench, rate=rate: bench.latency(rate))
        for rate in LATENCY_RATES
    ]
    return rows


@contextmanager
def bench(
    names: Sequence[str], directory: Path, scale: float, rounds: int, warm_seconds: float
) -> Iterator[Bench]:
    with ExitStack() as stack:
        servers = [stack.enter_context(start(name, directory / name)) for name in names]
        made = Bench(servers, directory, scale, rounds, warm_seconds)
        stack.callback(made.close)
        yield made


def _keep(found: Figures, server: str, figures: Mapping[str, float]) -> None:
    for key, figure in figures.items():
        found[key].setdefault(server, []).append(figure)
