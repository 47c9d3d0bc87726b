"""The rows of a run. Each gives rounds of figures by source, every source having its turn in every round.

count, sum, write    a query over a whole topic: `count()`, `sum(length(value))`, all columns to Parquet
sink                 keys and values from Parquet into a fresh topic
micro-batch          a stream that is given a few records at a time: what a batch costs, and where it goes
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.compat.spark.peer import Connector, SparkChild, spark_session

from benchmarks.broker.admin import Admin
from benchmarks.broker.frames import produce_frame
from benchmarks.broker.servers import Server, penstock
from benchmarks.spark.cpu import family_cpu_seconds
from benchmarks.spark.data import NULL as NULL_SOURCE
from benchmarks.spark.data import PARTITIONS, SIZES, TOPIC_CONFIGS, Data, Size, make_data
from benchmarks.spark.goals import ALL, CONNECTOR, NULL, OWN, PARQUET, SOURCES, THEIR_OWN
from penstock.records import build_batch

CORES = 2
CONF = {"spark.master": f"local[{CORES}]", "spark.driver.memory": "1g"}
"""For both sessions: Java's best compiler, and memory that neither feels the want of."""
QUICK_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

WARM_ROUNDS = 4
"""That do not count: Java compiles what it sees often, and the connector takes four until its figures stand still."""
BATCH_RECORDS = 10
BATCHES, BATCHES_WARM = 30, 10

PHASES = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Of `durationMs` in a query's progress; what is not among them is called `other`."""
TOTAL, OTHER = "triggerExecution", "other"

Figures = dict[str, list[float]]
"""By source, a figure for each round."""


class Line(NamedTuple):
    key: str
    work: str
    unit: str
    action: str
    figures: Figures
    row_bytes: float = 0
    """Of a row's value, on average."""
    cpu_us: Mapping[str, Sequence[float]] = {}
    """What a row took of the processors: of the session with all its processes, and of the node."""


class Bench:
    """What the rows of a run share: the node, the sessions, the data."""

    def __init__(
        self,
        server: Server,
        directory: Path,
        own: SparkChild,
        peer: SparkChild | None,
        connector: Connector | None,
        scale: float,
        rounds: int,
    ) -> None:
        self.server = server
        self.directory = directory
        self.own = own
        self.peer = peer
        self.connector = connector
        self.scale = scale
        self.rounds = rounds
        self.rounds_warm = WARM_ROUNDS if scale == 1 else 0
        self._data: dict[str, Data] = {}
        self._serial = 0

    # -- rows ------------------------------------------------------------------------------------------

    def query(self, action: str, size: Size) -> list[Line]:
        data = self._made(size)
        figures: Figures = {}
        cpu_us: Figures = {}
        sources = [each for each in SOURCES if self._session(each) is not None]
        for number in range(-self.rounds_warm, self.rounds):
            for source in sources:
                cpu_before = self._cpu_seconds(source)
                seconds, result = self._query(action, data, source)
                self._check(action, data, source, result)
                if number >= 0:
                    figures.setdefault(source, []).append(data.rows / seconds / 1e6)
                    used = self._cpu_seconds(source) - cpu_before
                    cpu_us.setdefault(source, []).append(used / data.rows * 1e6)
        words = {"count": "count()", "sum": "sum(length(value))", "write": "write to Parquet"}[action]
        each_bytes = data.value_bytes / data.rows
        work = f"{words}, {size.words}"
        return [Line(f"{action}-{size.key}", work, "M rows/s", action, figures, each_bytes, cpu_us)]

    def sink(self, size: Size) -> list[Line]:
        data = self._made(size)
        figures: Figures = {}
        formats = {OWN: "penstock", CONNECTOR: "kafka"}
        for number in range(-min(1, self.rounds_warm), self.rounds):
            for source, name in formats.items():
                session = self._session(source)
                if session is None:
                    continue
                with self._topic() as topic:
                    options = {"kafka.bootstrap.servers": self.address, "topic": topic}
                    done = session.ask(
                        "timed_write", source=data.sources[PARQUET], sink=name, options=options
                    )
                if number >= 0:
                    figures.setdefault(source, []).append(data.rows / done["seconds"] / 1e6)
        each_bytes = data.value_bytes / data.rows
        work = f"Parquet into a topic, {size.words}"
        return [Line(f"sink-{size.key}", work, "M rows/s", "sink", figures, each_bytes)]

    def micro_batch(self) -> list[Line]:
        """In this run's sessions, and in others that write checkpoints with fewer steps."""
        lines = self._micro_batch("default", "default checkpoints", {OWN: self.own, CONNECTOR: self.peer})
        with ExitStack() as stack:
            scratch = self.directory / "quick"
            own = spark_session(scratch / "own", CONF | QUICK_CHECKPOINTS)
            sessions: dict[str, SparkChild | None] = {OWN: stack.enter_context(own)}
            if self.connector is not None:
                peer = spark_session(scratch / "peer", CONF | QUICK_CHECKPOINTS, self.connector)
                sessions[CONNECTOR] = stack.enter_context(peer)
            return lines + self._micro_batch("quick", "FileSystemBased checkpoints", sessions)

    # -- turns -----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def _session(self, source: str) -> SparkChild | None:
        return self.peer if source in THEIR_OWN else self.own

    def _cpu_seconds(self, source: str) -> float:
        session = self._session(source)
        assert session is not None
        return family_cpu_seconds(session.pid) + family_cpu_seconds(self.server.pid)

    def _query(self, action: str, data: Data, source: str) -> tuple[float, Any]:
        session = self._session(source)
        assert session is not None
        does, target = ("parquet", str(self.directory / "written")) if action == "write" else (action, None)
        done = session.ask("timed", source=data.sources[source], action=does, target=target)
        return done["seconds"], done["result"]

    def _check(self, action: str, data: Data, source: str, result: Any) -> None:
        """A fast answer is worth nothing if it is wrong."""
        expected = {"count": data.rows, "sum": data.value_bytes}.get(action)
        if source == NULL and action == "sum":
            expected = None  # its rows are a few of the topic's, again and again
        if expected is not None and result != expected:
            raise RuntimeError(f"{action} of {source} is {result}, expected {expected}")

    def _micro_batch(self, key: str, words: str, sessions: Mapping[str, SparkChild | None]) -> list[Line]:
        found: dict[str, Figures] = {name: {} for name in (TOTAL, *PHASES, OTHER)}
        for source, session in sessions.items():
            if session is None:
                continue
            for batch in self._stream(session, "penstock" if source == OWN else "kafka"):
                told = batch["ms"]
                named = {name: float(told.get(name, 0)) for name in (TOTAL, *PHASES)}
                named[OTHER] = named[TOTAL] - sum(named[name] for name in PHASES)
                for name, ms in named.items():
                    found[name].setdefault(source, []).append(ms)
        return [
            Line(
                f"micro-batch-{key}-{name}",
                f"a small micro-batch, {words}: {_phase(name)}",
                "ms",
                "",
                figures,
            )
            for name, figures in found.items()
        ]

    def _stream(self, session: SparkChild, name: str) -> list[dict[str, Any]]:
        """The progress of each batch of a stream that gets a few records at a time."""
        self._serial += 1
        checkpoint = str(self.directory / f"checkpoint-{self._serial}")
        records = build_batch([(None, b"x" * 100, 1_700_000_000_000)] * BATCH_RECORDS)
        warm, counted = (BATCHES_WARM, BATCHES) if self.scale == 1 else (1, 3)
        with self._topic() as topic, Admin(self.server.port) as admin:
            options = {"kafka.bootstrap.servers": self.address, "subscribe": topic}
            source = {"format": name, "options": {**options, "startingOffsets": "earliest"}}
            session.ask("start", source=source, name="small", checkpoint=checkpoint)
            for _ in range(warm + counted):
                admin.produce(produce_frame(topic, [0], records))
                session.ask("drain", name="small")
            batches: list[dict[str, Any]] = session.ask("stop", name="small")
        return batches[-counted:]

    def _made(self, size: Size) -> Data:
        if size.key not in self._data:
            scaled = size.scaled(self.scale)
            self._data[size.key] = make_data(self.server, scaled, self.directory / size.key, self.own)
        return self._data[size.key]

    @contextmanager
    def _topic(self) -> Iterator[str]:
        self._serial += 1
        name = f"bench-{self._serial:04}"
        with Admin(self.server.port) as admin:
            admin.create_topic(name, PARTITIONS, {**TOPIC_CONFIGS, "file.delete.delay.ms": "0"})
            try:
                yield name
            finally:
                admin.delete_topic(name)


def _phase(name: str) -> str:
    return {TOTAL: "all of it", OTHER: "the rest"}.get(name, name)


class Row(NamedTuple):
    name: str
    run: Callable[[Bench], list[Line]]


def all_rows() -> Sequence[Row]:
    rows = [
        Row(f"{action}-{size.key}", lambda bench, action=action, size=size: bench.query(action, size))
        for size in SIZES
        for action in ALL
    ]
    rows += [Row(f"sink-{size.key}", lambda bench, size=size: bench.sink(size)) for size in SIZES]
    return [*rows, Row("micro-batch", Bench.micro_batch)]


@contextmanager
def bench(directory: Path, connector: Connector | None, scale: float, rounds: int) -> Iterator[Bench]:
    """A node, a session of this Python's Spark, and one of the connector's where it was asked for."""
    with ExitStack() as stack:
        server = stack.enter_context(penstock(directory / "node"))
        own = stack.enter_context(spark_session(directory / "own", CONF, sources=[NULL_SOURCE]))
        peer = None
        if connector is not None:
            peer = stack.enter_context(spark_session(directory / "peer", CONF, connector))
        yield Bench(server, directory, own, peer, connector, scale, rounds)
