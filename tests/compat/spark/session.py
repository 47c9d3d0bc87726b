"""A Spark session in a process of its own, which does what it is told over its standard streams.

    python session.py '{"spark.master": "local[2]"}' [MODULE:CLASS ...]

It needs PySpark and nothing else, so that Spark's own Kafka connector, in a Python of its own, and Penstock's source
are asked the same things by the same code. A line of JSON comes in, `{"do": NAME, ...}`, and a line goes out:
`{"answer": ...}` or `{"error": ...}`. The first line says that the session is there. Classes that are named are
registered as data sources. Whatever Spark or Java print goes to standard error.
"""

import importlib
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

TIMESTAMP = "timestamp"
ERROR_CHARACTERS_MAX = 2000
"""The rest is Java's stack."""
ACTIONS = {
    "count": lambda data, _: data.count(),
    "sum": lambda data, _: data.selectExpr("sum(length(value))").first()[0],
    "parquet": lambda data, target: data.write.mode("overwrite").parquet(target),
}


class Session:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, StreamingQuery] = {}

    # -- whole results ---------------------------------------------------------------------------------

    def rows(self, source: dict[str, Any]) -> list[Any]:
        """The rows of a batch, sorted: bytes as hex, times in microseconds."""
        return plain_rows(self._load(source))

    def stream_to_memory(self, source: dict[str, Any], checkpoint: str) -> list[Any]:
        """What a stream has to give now, from a table in memory."""
        writer = self._stream(source).writeStream.format("memory").queryName("streamed")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return plain_rows(self._spark.table("streamed"))

    def stream_to_parquet(self, source: dict[str, Any], checkpoint: str, target: str) -> list[Any]:
        """What a stream has to give now, beside what is there already."""
        writer = self._stream(source).writeStream.format("parquet").option("path", target)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return plain_rows(self._spark.read.parquet(target))

    # -- times -----------------------------------------------------------------------------------------

    def timed(self, source: dict[str, Any], action: str, target: str | None = None) -> dict[str, Any]:
        """How long a query takes, from its `load()` to its result."""
        started = time.perf_counter()
        result = ACTIONS[action](self._load(source), target)
        return {"seconds": time.perf_counter() - started, "result": result}

    def timed_write(self, source: dict[str, Any], sink: str, options: dict[str, str]) -> dict[str, Any]:
        """How long it takes to write keys and values to a topic."""
        started = time.perf_counter()
        data = self._load(source).select("key", "value")
        data.write.format(sink).options(**options).mode("append").save()
        return {"seconds": time.perf_counter() - started}

    def start(self, source: dict[str, Any], name: str, checkpoint: str) -> None:
        """A stream that runs on, into nothing."""
        writer = self._stream(source).writeStream.format("noop").queryName(name)
        self._queries[name] = writer.option("checkpointLocation", checkpoint).start()

    def drain(self, name: str) -> None:
        """Return when the stream has seen all that there is."""
        self._queries[name].processAllAvailable()

    def stop(self, name: str) -> list[dict[str, Any]]:
        """End a stream, and have what Spark says of those of its last batches that had rows."""
        query = self._queries.pop(name)
        found = [json.loads(each.json) for each in query.recentProgress]
        query.stop()
        return [
            {"rows": each["numInputRows"], "ms": each["durationMs"]} for each in found if each["numInputRows"]
        ]

    # -- sources ---------------------------------------------------------------------------------------

    def _load(self, source: dict[str, Any]) -> DataFrame:
        reader = self._spark.read.format(source["format"]).options(**source["options"])
        return (reader.schema(source["schema"]) if source.get("schema") else reader).load()

    def _stream(self, source: dict[str, Any]) -> DataFrame:
        return self._spark.readStream.format(source["format"]).options(**source["options"]).load()


def plain_rows(data: DataFrame) -> list[Any]:
    if TIMESTAMP in data.columns:
        data = data.withColumn(TIMESTAMP, functions.unix_micros(TIMESTAMP))
    return sorted((list(row) for row in data.collect()), key=lambda row: json.dumps(row, default=in_hex))


def in_hex(value: Any) -> str:
    return bytes(value).hex()


def serve(session: Session, commands: TextIO, answers: TextIO) -> None:
    for line in commands:
        command = json.loads(line)
        try:
            answer = {"answer": getattr(session, command.pop("do"))(**command)}
        except Exception as error:  # whatever it is, who asked is to know
            answer = {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]}
        print(json.dumps(answer, default=in_hex), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what Java prints
    builder = SparkSession.builder
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for name in sys.argv[2:]:
        module, _, source = name.partition(":")
        spark.dataSource.register(getattr(importlib.import_module(module), source))
    print(json.dumps({"answer": spark.version}), file=answers, flush=True)
    with suppress(KeyboardInterrupt):
        serve(Session(spark), sys.stdin, answers)
    spark.stop()


if __name__ == "__main__":
    main()
