"""A Spark driver in a process of its own, with a streaming query that shuffles: to be killed.

    python -m tests.spark.drivers '{"bootstrap": ..., "topic": ..., "tasks": 3, ...}'

At a chosen request of a chosen batch's commit the commit stops for ever, and says so through a pipe; then whoever
waits for that kills the driver and all that it started, the way a machine fails.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.processes import is_readable
from tests.spark.conftest import CHECKPOINTS
from tests.spark.queries import Fault, FaultyNetwork

from penstock.client.cluster import Cluster
from penstock.spark.session import QUICK_START, light_session
from penstock.spark.source import DefaultSource
from penstock.spark.writing.sink import StreamWriter
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options
from penstock.wire import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROOT = Path(__file__).parents[2]
WAIT_S_MAX = 120.0


@dataclass(frozen=True)
class Stop:
    """Where a commit stops: before one of its requests."""

    batch: int
    api: str
    number: int
    """Which of the requests of that kind."""
    pipe: str


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    directory: str
    """`in` has the input, a file a batch; the checkpoint is beside it."""
    tasks: int
    stop: Stop | None = None


def start_query(spark: "SparkSession", job: Job, source: str = "penstock") -> "StreamingQuery":
    lines = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1).json(f"{job.directory}/in")
    writer = (
        lines.repartition(job.tasks)
        .selectExpr("cast(n % 10 as string) key", "cast(n as string) value")
        .writeStream.format(source)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.topic)
        .option("checkpointLocation", f"{job.directory}/checkpoint")
        .trigger(availableNow=True)
    )
    if job.stop is not None:
        writer = writer.option("stop", json.dumps(asdict(job.stop)))
    return writer.start()


class StoppingSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        told = {name: value for name, value in self.options.items() if name != "stop"}
        return StoppingWriter(read_sink_options(told), Stop(**json.loads(self.options["stop"])))


class StoppingWriter(StreamWriter):
    def __init__(self, options: SinkOptions, stop: Stop) -> None:
        super().__init__(options)
        self._stop = stop
        self._is_time = False

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._is_time = batchId == self._stop.batch
        super().commit(messages, batchId)

    def connect(self) -> Cluster:
        if not self._is_time:
            return super().connect()
        fault = Fault(self._stop.number, action=self._wait_for_the_end, only=Api[self._stop.api])
        client = self._options.client
        return Cluster(self._options.servers, client, network=FaultyNetwork(client, fault))

    def _wait_for_the_end(self) -> None:
        Path(self._stop.pipe).write_text("here\n")
        while True:
            signal.pause()


class Driver:
    """The process, from the test's side."""

    def __init__(self, job: Job, log: Path) -> None:
        self._log = log.open("ab")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.drivers", json.dumps(asdict(job))],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()
        self._log.close()

    def wait(self, timeout_s: float = WAIT_S_MAX) -> int:
        return self._child.wait(timeout_s)

    def kill(self) -> None:
        """The driver, its Java process and every Python worker at once, none of which can do anything about it."""
        for pid in [*_descendants(self._child.pid), self._child.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._child.wait()


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _descendants(int(child))
                yield int(child)


def wait_for(pipe: int) -> None:
    """Until a commit says that it has stopped."""
    assert is_readable(pipe, WAIT_S_MAX), "no commit got there"
    os.read(pipe, 100)


def main(text: str) -> None:
    told = json.loads(text)
    stop = told.pop("stop")
    job = Job(**told, stop=None if stop is None else Stop(**stop))
    spark = light_session("driver", "local[2]", QUICK_START | CHECKPOINTS)
    spark.dataSource.register(StoppingSource)
    start_query(spark, job, "penstock" if job.stop is None else "stopping").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    # Under the name that workers know it by.
    from tests.spark.drivers import main as named_main

    named_main(sys.argv[1])
