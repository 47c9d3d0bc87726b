"""What the rows of a run read: a topic, its files, the same rows as Parquet, and one Arrow batch of them.

Batches are of 16 KB, as producers send them by default, neither compressed nor keyed; values differ in size by an
eighth either way. A few megabytes of them are made and sent over and over, to every partition.
"""

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.compat.spark.peer import SparkChild

from benchmarks.broker.admin import Admin
from benchmarks.broker.frames import produce_frame
from benchmarks.broker.servers import Server
from benchmarks.spark.decode import KB, MB, Case, batches
from penstock.arrow.decode import Decoder
from penstock.records import iter_batches
from penstock.spark.schema import default_schema

PARTITIONS = 2
"""As many as tasks run at a time."""
BATCH_BYTES = 16 * KB
DISTINCT_BYTES = 8 * MB
TOPIC_CONFIGS = {"segment.bytes": str(64 * MB), "retention.ms": "-1"}
"""As the broker's rows have them: most of the topic lies in closed segments, as it does where topics are large."""

NULL = "benchmarks.spark.null_source:NullSource"


class Size(NamedTuple):
    """How large values are, and how many rows a query reads."""

    key: str
    words: str
    value_bytes: int
    rows: int

    def scaled(self, scale: float) -> "Size":
        return self._replace(rows=max(2_000, int(self.rows * scale)))


SIZES = (Size("100b", "100-byte values", 100, 3_000_000), Size("1k", "1 KB values", KB, 500_000))


class Data(NamedTuple):
    """One topic, and all the ways to read it: each is `{"format": ..., "options": ...}` for a session."""

    size: Size
    topic: str
    rows: int
    value_bytes: int
    """Of all values."""
    sources: dict[str, dict[str, Any]]


def make_data(server: Server, size: Size, directory: Path, spark: SparkChild) -> Data:
    """Fill a topic, and write what its rows are to be compared with."""
    topic = f"rows-{size.key}"
    directory.mkdir(parents=True, exist_ok=True)
    case = Case(size.words, size.value_bytes, BATCH_BYTES)
    made, count, _ = batches(case, min(DISTINCT_BYTES, size.rows * size.value_bytes // PARTITIONS + 1))
    # Producers count from 0 in each batch, and the base offset is its first field.
    distinct = [(bytes(8) + bytes(each.view[8:]), each.count) for each in iter_batches(made)]
    per_partition = math.ceil(size.rows / PARTITIONS)
    rows = 0
    with Admin(server.port) as admin:
        admin.create_topic(topic, PARTITIONS, TOPIC_CONFIGS)
        for data, held in itertools.cycle(distinct):
            if rows >= per_partition:
                break
            admin.produce(produce_frame(topic, range(PARTITIONS), data))
            rows += held
    decoder = Decoder(topic, 0, default_schema(with_headers=False).names, start=0, stop=count)
    arrow = [*decoder.feed(made), *decoder.finish()]
    _write_batch(directory / "batch.arrow", arrow[0])
    kafka = {"kafka.bootstrap.servers": f"127.0.0.1:{server.port}", "subscribe": topic}
    sources: dict[str, dict[str, Any]] = {
        "penstock": {"format": "penstock", "options": kafka},
        "scan": {"format": "penstock", "options": {"path": str(server.data), "subscribe": topic}},
        "connector": {"format": "kafka", "options": kafka},
        "parquet": {"format": "parquet", "options": {"path": str(directory / "parquet")}},
        "null": {
            "format": "null",
            "options": {
                "batch": str(directory / "batch.arrow"),
                "rows": str(rows * PARTITIONS),
                "tasks": str(PARTITIONS),
            },
        },
    }
    spark.ask("timed", source=sources["penstock"], action="parquet", target=str(directory / "parquet"))
    read = spark.ask("timed", source=sources["parquet"], action="sum")
    return Data(size, topic, rows * PARTITIONS, int(read["result"]), sources)


def _write_batch(path: Path, batch: pa.RecordBatch) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
