"""A streaming query as the sink sees one, without Spark: batches dealt to tasks, commits, crashes and replays.

Spark's side of the bargain is small. A batch has a number and always the same rows, dealt to tasks in any way. Every
task writes; when all have, the driver commits; when that has returned, the batch is logged and the next begins. After
a crash the batch that is not logged runs again, as another run of the same query.

A crash is a request: a process ends just before one leaves, or when the broker has acted on it and nobody has heard of
it yet. What happens in between can also be that another run does all its work, and this one then goes on: a
driver that was asleep.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa
from tests.spark.sinks import Server, committed, values

from penstock.client.cluster import Cluster
from penstock.client.connection import Call
from penstock.client.network import SocketLink, SocketNetwork
from penstock.client.settings import Address, SystemClock
from penstock.spark.writing import ledger
from penstock.spark.writing.micro_batch import TaskId, TaskResult, commit_batch, write_rows
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options
from penstock.wire import Api
from penstock.wire.request import Request

T = TypeVar("T")

Commit = Callable[[Cluster, SinkOptions, list[TaskResult], int], None]

_numbers = count()

_UNCOUNTED = (Api.METADATA, Api.API_VERSIONS, Api.FIND_COORDINATOR)
"""Requests that change nothing, and that come more or less often."""


class Crash(BaseException):
    """kill -9: nothing catches it, and nothing is sent after it."""


@dataclass
class Fault:
    """What happens at one request of a life."""

    at: int = -1
    """Which request, from 0; -1: none."""
    is_after: bool = False
    """When the broker has acted on it; else before it leaves."""
    action: Callable[[], None] | None = None
    """None: the process ends."""
    only: Api | None = None
    """Which requests count; None: all."""
    seen: list[Api] = field(default_factory=list)
    is_dead: bool = False

    def strike(self) -> None:
        if self.action is not None:
            self.action()
            return
        self.is_dead = True
        raise Crash


class FaultyLink(SocketLink):
    fault: Fault

    def start(self, request: Request[T]) -> Call[T]:
        fault = self.fault
        if fault.is_dead:
            raise Crash
        if request.api in _UNCOUNTED:
            return super().start(request)
        number = len(fault.seen)
        if fault.only is not None:
            number = fault.seen.count(fault.only) if request.api is fault.only else -2
        fault.seen.append(request.api)
        if number == fault.at and not fault.is_after:
            fault.strike()
        call = super().start(request)
        if number == fault.at and fault.is_after:
            while not call.is_done:
                self.read()
            fault.strike()
        return call


class FaultyNetwork(SocketNetwork):
    def __init__(self, settings: Any, fault: Fault) -> None:
        super().__init__(settings, SystemClock())
        self._fault = fault

    def connect(self, address: Address) -> SocketLink:
        if self._fault.is_dead:
            raise Crash
        link = FaultyLink(address, self._settings, self._clock)
        link.fault = self._fault
        return link


@dataclass
class Query:
    broker: Server
    topic: str
    query_id: str
    batch_rows: list[int]
    """How many rows each batch has."""
    commit: Commit = commit_batch
    settings: dict[str, str] = field(default_factory=dict)
    logged: int = 0
    """Batches that Spark's checkpoint has as committed."""
    runs: int = 0

    @property
    def options(self) -> SinkOptions:
        named = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": self.topic}
        return read_sink_options(named | self.settings)

    def rows(self, batch: int) -> list[int]:
        start = sum(self.batch_rows[:batch])
        return list(range(start, start + self.batch_rows[batch]))

    def live(
        self, tasks: int, seed: int = 0, fault: Fault | None = None, batches: int | None = None
    ) -> Fault:
        """One run of the query, to its end or to its crash."""
        fault = fault or Fault()
        ledger._positions.clear()  # what a process remembers does not outlive it
        self.runs += 1
        run = f"run-{self.runs}"
        stop = len(self.batch_rows) if batches is None else min(len(self.batch_rows), self.logged + batches)
        try:
            while self.logged < stop:
                batch = self.logged
                self.finish(batch, self.write(run, batch, tasks, seed + batch, fault), fault)
                self.logged = max(self.logged, batch + 1)
        except Crash:
            pass
        return fault

    def write(self, run: str, batch: int, tasks: int, seed: int, fault: Fault) -> list[TaskResult]:
        """The tasks of a batch, whose rows are dealt to them as the seed says."""
        rows = self.rows(batch)
        random.Random(seed).shuffle(rows)
        return [
            self.write_task(TaskId(self.query_id, run, batch, task), rows[task::tasks], fault)
            for task in range(tasks)
        ]

    def write_task(self, task_id: TaskId, rows: list[int], fault: Fault) -> TaskResult:
        with self.cluster(fault) as cluster:
            return write_rows(cluster, self.options, task_id, [batch_of(rows)])

    def finish(self, batch: int, results: list[TaskResult], fault: Fault) -> None:
        with self.cluster(fault) as cluster:
            self.commit(cluster, self.options, results, batch)

    def cluster(self, fault: Fault) -> Cluster:
        options = self.options
        return Cluster(options.servers, options.client, network=FaultyNetwork(options.client, fault))

    def check(self) -> None:
        """Every row is there once, for who reads committed records, and nothing is left open."""
        found = sorted(map(int, values(committed(self.broker, self.topic))))
        assert found == list(range(sum(self.batch_rows)))


def new_query(broker: Server, batch_rows: list[int], **settings: str) -> Query:
    """With an id and a topic that no other has."""
    name = f"out-{next(_numbers)}"
    broker.create_topic(name, 2)
    return Query(broker, name, f"q-{name}", batch_rows, settings=settings)


def commit_requests(broker: Server, tasks: int) -> list[Api]:
    """What a driver asks to commit a first batch, in order."""
    query, fault = new_query(broker, [6]), Fault()
    query.finish(0, query.write("run-1", 0, tasks, 1, Fault()), fault)
    return fault.seen


def batch_of(rows: Iterable[int]) -> pa.RecordBatch:
    texts = [str(each) for each in rows]
    return pa.record_batch({"key": pa.array(texts, pa.string()), "value": pa.array(texts, pa.string())})
