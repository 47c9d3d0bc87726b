"""Builds Spark queries from the model: sources and views become temporary views, a flow becomes a streaming query.

Each flow is built separately with its own sources, so each has its own position and its own consumer group.
Spark's errors about a query get its line in the file.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from .codec import Unfit, columns_of, decode, encode, wanted_schema
from .errors import BadPipeline, Problem, one_sentence
from .graph import needed
from .options import Brokers, sink_options, source_options
from .spec import (
    AVAILABLE_NOW,
    MODULE_PREFIX,
    BatchSink,
    Call,
    ConsoleSink,
    DeltaSink,
    FileSource,
    Flow,
    ParquetSink,
    PipelineSpec,
    Query,
    RateSource,
    Reads,
    Source,
    Sql,
    TopicSink,
    TopicSource,
    View,
    Watermark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BatchFunction = Callable[[Any, int], None]
Gate = Callable[[BatchFunction], BatchFunction]


class Builder:
    def __init__(self, spec: PipelineSpec, spark: "SparkSession", brokers: Brokers | None = None) -> None:
        """`brokers` are those of sources and sinks without a `bootstrap` of their own; None for the file's."""
        self._spec = spec
        self._spark = spark
        self._brokers = brokers or Brokers.of(spec, None, {})
        _carry_along(spec)

    def rows(self, flow: Flow) -> "DataFrame":
        """The rows that a flow writes; raises BadPipeline if Spark rejects the query."""
        for thing in needed(self._spec, flow.query):
            if isinstance(thing, Source):
                with self._at_line_of("sources", thing.name):
                    self._named(thing, self._source(thing, flow))
            else:
                with self._at_line_of("views", thing.name):
                    self._named(thing, self._query(thing.query))
        with self._at_line_of("flows", flow.name):
            rows = self._query(flow.query)
            if not rows.isStreaming:
                raise Unfit("", "reads only static sources, expected at least one that is not static")
        with self._at_line_of("flows", flow.name, "to"):
            return self._fitted(flow, rows)

    def check(self, flow: Flow, rows: "DataFrame") -> None:
        """Check that Spark supports the flow's mode, as far as Spark can tell before the start."""
        jdf = getattr(rows, "_jdf", None)
        if jdf is None:
            return
        jvm: Any = self._spark._jvm
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, flow.mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        with self._at_line_of("flows", flow.name):
            checker.checkForStreaming(jdf.queryExecution().analyzed(), mode)

    def writer(
        self,
        flow: Flow,
        rows: "DataFrame",
        flow_id: str,
        *,
        once: bool,
        gate: Gate = lambda function: function,
    ) -> "DataStreamWriter":
        """The query, ready to start. `flow_id` identifies the flow's checkpoint.

        `gate` wraps functions that get batches.
        """
        from .tables import appended, console, merge  # noqa: PLC0415

        writer = (
            rows.writeStream.queryName(self.query_name(flow))
            .outputMode(flow.mode)
            .option("checkpointLocation", self._spec.checkpoint_of(flow.name))
        )
        if once or flow.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif flow.trigger is not None:
            writer = writer.trigger(processingTime=flow.trigger)
        sink = flow.sink
        if isinstance(sink, BatchSink):
            return writer.foreachBatch(gate(sink.function))
        if isinstance(sink, ConsoleSink):
            return writer.foreachBatch(gate(console(flow.name, sink.rows_max)))
        if isinstance(sink, DeltaSink):
            if sink.upsert:
                return writer.foreachBatch(gate(partial(merge, sink, flow_id)))
            return appended(writer, self._spark, sink, flow_id)
        if isinstance(sink, ParquetSink):
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            return writer.format("parquet").options(**sink.options).option("path", sink.path)
        return self._to_topic(writer, flow, sink, gate)

    def query_name(self, flow: Flow) -> str:
        """Name of the query in Spark, and of its consumer group."""
        return group_of(self._spec, flow)

    # Sources.

    def _source(self, source: Source, flow: Flow) -> "DataFrame":
        read = self._spark.read if source.is_static else self._spark.readStream
        reads = source.reads
        if isinstance(reads, RateSource):
            reader = read.format("rate").option("rowsPerSecond", reads.rows_per_second)
            rows = reader.options(**reads.options).load()
        elif isinstance(reads, FileSource):
            reader = read.format(reads.format).options(**reads.options)
            if reads.schema:
                reader = reader.schema(columns_of(reads.schema, "schema"))
            rows = reader.load(reads.path)
        else:
            rows = decode(self._topics(read, reads, flow, is_static=source.is_static), reads)
        return _timed(rows, source.watermark, source.deduplicate)

    def _topics(self, read: Any, reads: TopicSource, flow: Flow, *, is_static: bool) -> "DataFrame":
        options = source_options(reads, self._brokers, None if is_static else self.query_name(flow))
        rows: DataFrame = read.format("penstock").schema(wanted_schema(reads)).options(**options).load()
        return rows

    # Queries.

    def _named(self, thing: Source | View, rows: "DataFrame") -> None:
        if isinstance(thing, View):
            rows = _timed(rows, thing.watermark, thing.deduplicate)
        rows.createOrReplaceTempView(thing.name)

    def _query(self, query: Query) -> "DataFrame":
        if isinstance(query, Sql):
            try:
                return self._spark.sql(query.text)
            except Exception as error:
                raise Unfit("sql", one_sentence(error)) from error
        if isinstance(query, Reads):
            return self._spark.table(query.name)
        assert isinstance(query, Call)
        given: list[Any] = [
            self._spark if each == "spark" else self._spark.table(each) for each in query.parameters
        ]
        rows = query.function(*given)
        if not hasattr(rows, "isStreaming"):
            raise Unfit("", f"{query.function.__name__} returned {type(rows).__name__}, expected a DataFrame")
        result: DataFrame = rows
        return result

    def _fitted(self, flow: Flow, rows: "DataFrame") -> "DataFrame":
        sink = flow.sink
        if isinstance(sink, TopicSink):
            return encode(rows, sink)
        if isinstance(sink, ParquetSink | DeltaSink):
            used = {"partition_by": sink.partition_by}
            if isinstance(sink, DeltaSink):
                used["upsert"] = sink.upsert
            for key, columns in used.items():
                for column in columns:
                    if column not in rows.columns:
                        raise Unfit(
                            key,
                            f"{column!r} is not a column of the query, expected some of {', '.join(rows.columns)}",
                        )
        _ = rows.schema  # makes Spark Connect analyse the query
        return rows

    def _to_topic(
        self, writer: "DataStreamWriter", flow: Flow, sink: TopicSink, gate: Gate
    ) -> "DataStreamWriter":
        options = sink_options(sink, self._brokers)
        if flow.mode == "update":
            from penstock.spark.writing.changed_rows import changed_rows  # noqa: PLC0415

            return writer.foreachBatch(gate(changed_rows(self._spark, options)))
        return writer.format("penstock").options(**options)

    @contextmanager
    def _at_line_of(self, *path: str) -> Iterator[None]:
        """Add the line of this key to errors inside."""
        try:
            yield
        except BadPipeline:
            raise
        except Unfit as unfit:
            whole = (*path, unfit.key) if unfit.key else path
            raise BadPipeline([Problem(self._spec.where(*whole), ".".join(whole), str(unfit))]) from unfit
        except Exception as error:
            raise BadPipeline(
                [Problem(self._spec.where(*path), ".".join(path), one_sentence(error))]
            ) from error


def _carry_along(spec: PipelineSpec) -> None:
    """Pickle functions of the pipeline's file by value: executors cannot import the file."""
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415

    queries = [*(each.query for each in spec.views), *(each.query for each in spec.flows)]
    functions = [each.function for each in queries if isinstance(each, Call)]
    functions += [each.sink.function for each in spec.flows if isinstance(each.sink, BatchSink)]
    for name in {each.__module__ for each in functions}:
        if name in sys.modules and name.startswith(MODULE_PREFIX):
            register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def is_function(flow: Flow) -> bool:
    """Whether batches are passed to a function in this process."""
    if isinstance(flow.sink, DeltaSink):
        return bool(flow.sink.upsert)
    return isinstance(flow.sink, BatchSink | ConsoleSink) or (
        isinstance(flow.sink, TopicSink) and flow.mode == "update"
    )


def group_of(spec: PipelineSpec, flow: Flow) -> str:
    """The consumer group that shows a flow's position at the brokers."""
    return f"{spec.name}.{flow.name}"


def _timed(rows: "DataFrame", watermark: Watermark | None, deduplicate: tuple[str, ...]) -> "DataFrame":
    if watermark is not None:
        if watermark.column not in rows.columns:
            raise Unfit(
                "watermark",
                f"{watermark.column!r} is not one of its columns, expected one of {', '.join(rows.columns)}",
            )
        rows = rows.withWatermark(watermark.column, watermark.delay)
    if deduplicate:
        for column in deduplicate:
            if column not in rows.columns:
                raise Unfit(
                    "deduplicate",
                    f"{column!r} is not one of its columns, expected some of {', '.join(rows.columns)}",
                )
        if any("spark.watermarkDelayMs" in field.metadata for field in rows.schema.fields):
            return rows.dropDuplicatesWithinWatermark(list(deduplicate))
        return rows.dropDuplicates(list(deduplicate))
    return rows
