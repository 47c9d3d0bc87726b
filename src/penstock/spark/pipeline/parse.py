"""From the plain data of a file to its model, with everything that is wrong noted on the way.

Paths are taken from where the file is, so that a pipeline does the same wherever it is started from.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from .checker import Notes, Table, one_of, shown
from .errors import BadPipeline
from .graph import names_read
from .options import wrong_in_sink, wrong_in_source
from .spec import (
    FILE_FORMATS,
    METADATA,
    METADATA_ALL,
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
    Sink,
    Source,
    Sql,
    TopicSink,
    TopicSource,
    View,
    is_uri,
)
from .values import Values

CODINGS = ("json", "string", "raw")
MODES = ("append", "update", "complete")
BAD_RECORDS = ("fail", "keep", "drop")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
SESSION = "spark"
"""The parameter of a function that is the session, so no source or view can have this name."""

_OURS_WHEN_READING = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "assign": "topic",
    "path": "files",
}
_OURS_WHEN_WRITING = {
    "kafka.bootstrap.servers": "bootstrap",
    "topic": "topic",
    "checkpointlocation": "checkpoint",
}


def parse(data: object, file: Path, lines: Mapping[tuple[str, ...], int]) -> PipelineSpec:
    """The model of a file's data; raises BadPipeline with everything that is wrong."""
    notes = Notes(file, lines)
    if not isinstance(data, Mapping) or not data:
        notes.add((), f"{shown(data)} is no pipeline, expected the keys pipeline, sources and flows")
        raise BadPipeline(notes.problems)
    spec = _Parser(notes, file, lines).pipeline(Table(notes, (), data))
    if notes.problems:
        raise BadPipeline(notes.problems)
    return spec


class _Parser(Values):
    def __init__(self, notes: Notes, file: Path, lines: Mapping[tuple[str, ...], int]) -> None:
        super().__init__(notes, file.parent)
        self._file = file
        self._lines = lines
        self._names: dict[str, str] = {}
        """Sources and views so far, by their names in lower case: for Spark, `Orders` is `orders`."""
        self._declared: frozenset[str] = frozenset()

    def pipeline(self, table: Table) -> PipelineSpec:
        name = table.required("pipeline", "the pipeline's name")
        if name and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
            table.bad(
                "pipeline",
                f"{shown(name)} is no name, expected letters, digits, '.', '_' and '-', at most 100",
            )
        bootstrap = self._servers(table)
        checkpoint = table.text("checkpoint", "a directory") or f"checkpoints/{name}"
        checkpoint = self._path(checkpoint)
        own = table.text("state", "a local directory")
        if own is not None and is_uri(own):
            table.bad("state", f"{shown(own)} is not on this machine, expected a local directory")
        if own is not None:
            state = Path(self._path(own))
        else:
            state = Path(self._path(f".{name}.state")) if is_uri(checkpoint) else Path(checkpoint)
        conf = table.settings("conf", "Spark's settings")
        trigger = self._trigger(table)
        raw_sources, raw_views, raw_flows = (
            table.tables("sources"),
            table.tables("views"),
            table.tables("flows"),
        )
        self._declared = frozenset(each.lower() for each, _ in (*raw_sources, *raw_views))
        sources = tuple(self._source(each, value) for each, value in raw_sources)
        views = tuple(self._view(each, value) for each, value in raw_views)
        flows = tuple(self._flow(each, value, trigger) for each, value in raw_flows)
        if not raw_flows and not self._notes.problems:
            table.bad("flows", "is missing, expected at least one flow")
        seen: set[str] = set()
        for flow in flows:
            if flow.name.lower() in seen:
                table.bad(
                    "flows", f"{flow.name} is there twice, expected names that differ by more than their case"
                )
            seen.add(flow.name.lower())
        self._apart(flows)
        table.end()
        return PipelineSpec(
            name, self._file, bootstrap, checkpoint, state, conf, sources, views, flows, self._lines
        )

    def _apart(self, flows: Iterable[Flow]) -> None:
        """Spark knows a batch of a Parquet table by its number alone: of two flows it would take one for the other."""
        writers: dict[str, str] = {}
        for flow in flows:
            if isinstance(flow.sink, ParquetSink):
                other = writers.setdefault(flow.sink.path, flow.name)
                if other != flow.name:
                    self._notes.add(
                        ("flows", flow.name, "to", "parquet"),
                        f"{flow.sink.path} is written by flow {other} already, expected a directory of its own",
                    )

    def _new_name(self, path: tuple[str, ...]) -> None:
        name = path[-1]
        if name.lower() == SESSION:
            self._notes.add(path, f"{name} is the session's name in functions, expected another")
        if name.lower() in self._names:
            self._notes.add(
                path, f"{name} is there already, as {self._names[name.lower()]}; expected another name"
            )
        self._names[name.lower()] = name

    # Sources.

    def _source(self, name: str, value: object) -> Source:
        path = ("sources", name)
        self._new_name(path)
        table = Table(self._notes, path, value)
        kind = table.only_one(("topic", "pattern", "files", "rate"), "a source")
        reads: TopicSource | FileSource | RateSource
        if kind == "files":
            reads = self._file_source(table)
        elif kind == "rate":
            rows = table.number("rate", 1, 1, 10_000_000)
            reads = RateSource(rows, self._options(table, {"rowspersecond": "rate"}))
        else:
            reads = self._topic_source(table)
        static = table.flag("static")
        watermark = self._watermark(table)
        deduplicate = table.texts("deduplicate", "a column or a list of columns")
        if static and kind == "rate":
            table.bad("static", "a rate has no end, expected static with topics or files")
        if static and (watermark or deduplicate):
            table.bad("static", "rows that do not come in time need neither watermark nor deduplicate")
        if isinstance(reads, TopicSource) and kind is not None:
            self._refused_options(table, wrong_in_source(reads, is_static=static))
        if kind is not None:
            table.end()
        return Source(name, reads, static, watermark, deduplicate)

    def _topic_source(self, table: Table) -> TopicSource:
        topics = table.texts("topic", "a topic or a list of topics")
        for topic in topics:
            if TOPIC.fullmatch(topic) is None:
                table.bad(
                    "topic",
                    f"{shown(topic)} is no topic, expected letters, digits, '.', '_' and '-', at most 249",
                )
        pattern = table.text("pattern", "a regular expression that topics match")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                table.bad("pattern", f"{shown(pattern)} is no regular expression: {error}")
        value = table.choice("value", CODINGS, "raw")
        key = table.choice("key", CODINGS, "raw" if value == "raw" else "string")
        schema, key_schema = self._schema(table, "schema"), self._schema(table, "key_schema")
        for wanted, coding, name in ((schema, value, "schema"), (key_schema, key, "key_schema")):
            if table.is_bad("value" if name == "schema" else "key"):
                continue
            if coding == "json" and wanted is None and not (name == "schema" and table.has("schema")):
                table.bad(
                    name,
                    "is missing, expected the columns of the JSON with types, such as `id BIGINT, name STRING`",
                )
            if coding != "json" and wanted is not None:
                table.bad(name, f"goes with json, found {coding}")
        if table.has("bad_records") and value != "json" and not table.is_bad("value"):
            table.bad("bad_records", f"goes with value: json, found {value}")
        bad_records = table.choice("bad_records", BAD_RECORDS, "fail")
        options = self._options(table, _OURS_WHEN_READING)
        metadata = self._metadata(table, METADATA if value == "json" else METADATA_ALL[:-1])
        return TopicSource(
            topics,
            pattern,
            self._servers(table),
            value,
            key,
            schema,
            key_schema,
            bad_records,
            metadata,
            options,
        )

    def _metadata(self, table: Table, default: tuple[str, ...]) -> tuple[str, ...]:
        if table.any("metadata") is None:
            return default
        if table.any("metadata") == []:
            return ()
        metadata = table.texts("metadata", f"a list of {one_of(METADATA_ALL)}")
        for column in metadata:
            if column not in METADATA_ALL:
                table.bad(
                    "metadata",
                    f"{shown(column)} is no column of a record, expected {one_of(METADATA_ALL)}",
                )
        return metadata

    def _file_source(self, table: Table) -> FileSource:
        path = self._path(table.required("files", "a directory"))
        kind = table.choice("format", FILE_FORMATS, "json")
        schema = self._schema(table, "schema")
        if schema is None and kind != "text" and not table.has("schema"):
            table.bad(
                "schema",
                f"is missing, expected the columns of the {kind} files, such as `id BIGINT, name STRING`",
            )
        if schema is not None and kind == "text":
            table.bad("schema", "text files have the one column value, expected no schema")
        return FileSource(path, kind, schema, self._options(table, _OURS_WHEN_READING))

    # Queries.

    def _query(self, table: Table, what: str) -> Query:
        kinds = ("sql", "reads", "function") if callable(table.any("function")) else ("sql", "reads")
        kind = table.only_one(kinds, what)
        if kind == "sql":
            text = table.required("sql", "a query")
            for name in names_read(text, self._declared - self._names.keys()):
                table.bad("sql", f"reads {name}, which is declared below it; expected it above")
            return Sql(text)
        if kind == "reads":
            name = table.required("reads", "a source or a view")
            self._known(table, "reads", name)
            return Reads(self._names.get(name.lower(), name))
        function = table.any("function")
        if not callable(function):
            return Sql("")
        parameters = tuple(inspect.signature(function).parameters)
        for parameter in parameters:
            if parameter != SESSION:
                self._known(table, "function", parameter)
        return Call(function, tuple(self._names.get(each.lower(), each) for each in parameters))

    def _known(self, table: Table, key: str, name: str) -> None:
        if not name or name.lower() in self._names:
            return
        there = one_of(self._names.values()) if self._names else "a source or a view, of which there is none"
        why = "is declared below it" if name.lower() in self._declared else "is no source or view above it"
        table.bad(key, f"{shown(name)} {why}, expected {there}")

    def _view(self, name: str, value: object) -> View:
        path = ("views", name)
        table = Table(self._notes, path, {"sql": value} if isinstance(value, str) else value)
        query = self._query(table, "a view")
        self._new_name(path)
        view = View(
            name, query, self._watermark(table), table.texts("deduplicate", "a column or a list of columns")
        )
        table.end()
        return view

    def _flow(self, name: str, value: object, trigger: str | None) -> Flow:
        table = Table(self._notes, ("flows", name), value)
        query = self._query(table, "a flow")
        mode = table.choice("mode", MODES, "append")
        trigger = self._trigger(table) or trigger
        if not table.has("to"):
            table.bad("to", "is missing, expected where the rows go: topic, parquet, delta or console")
            table.any("to")
            sink: Sink = ConsoleSink(1)
        elif callable(table.any("to")):
            sink = BatchSink(table.any("to"))
        else:
            sink = self._sink(Table(self._notes, ("flows", name, "to"), table.any("to")), mode)
        table.end()
        return Flow(name, query, sink, mode, trigger)

    # Sinks.

    def _sink(self, table: Table, mode: str) -> Sink:
        kind = table.only_one(("topic", "topics", "parquet", "delta", "console"), "a sink")
        sink: Sink
        if kind == "parquet":
            sink = self._parquet(table, mode)
        elif kind == "delta":
            sink = self._delta(table, mode)
        elif kind == "console":
            if not table.flag("console"):
                table.bad("console", "false is no sink, expected true")
            sink = ConsoleSink(table.number("rows", 20, 1, 10_000))
        elif kind is None:
            return ConsoleSink(1)
        else:
            sink = self._topic_sink(table)
        table.end()
        return sink

    def _topic_sink(self, table: Table) -> TopicSink:
        topic = table.text("topic", "a topic")
        if topic is not None and TOPIC.fullmatch(topic) is None:
            table.bad(
                "topic",
                f"{shown(topic)} is no topic, expected letters, digits, '.', '_' and '-', at most 249",
            )
        by_row = table.text("topics", "`by row`")
        value = table.choice("value", CODINGS, "json")
        if by_row is not None and by_row != "by row":
            table.bad(
                "topics",
                f"{shown(by_row)} is not known, expected `by row`: the query's column topic names it",
            )
        is_known = not table.is_bad("value")
        if by_row is not None and value != "raw" and is_known:
            table.bad("topics", f"goes with value: raw, found {value}")
        key = table.text("key", "the column that becomes the key")
        column = table.text("column", "the column that becomes the value")
        if column is not None and value != "string" and is_known:
            table.bad("column", f"goes with value: string, found {value}")
        if key is not None and value == "raw":
            table.bad("key", "goes with json and string; with raw the query has a column key")
        options = self._options(table, _OURS_WHEN_WRITING)
        sink = TopicSink(topic, self._servers(table), value, key, column or "value", options)
        self._refused_options(table, wrong_in_sink(sink))
        return sink

    def _parquet(self, table: Table, mode: str) -> ParquetSink:
        path = self._path(table.required("parquet", "a directory"))
        if mode != "append":
            self._notes.add(
                (*table.path[:-1], "mode"), f"{mode} cannot be written to Parquet files, expected append"
            )
        partition_by = table.texts("partition_by", "a column or a list of columns")
        return ParquetSink(path, partition_by, self._options(table, _OURS_WHEN_WRITING))

    def _delta(self, table: Table, mode: str) -> DeltaSink:
        path = self._path(table.required("delta", "a directory"))
        if is_uri(path):
            table.bad("delta", f"{shown(path)} is no directory, expected one that driver and executors share")
        upsert = table.texts("upsert", "a column or a list of columns by which a row replaces an older one")
        if mode == "update" and not upsert:
            self._notes.add(
                (*table.path[:-1], "mode"),
                "update brings a row again when it changes, expected `upsert` in `to` with it",
            )
        if mode == "complete" and upsert:
            table.bad("upsert", "complete replaces the whole table, expected mode update or append")
        return DeltaSink(path, table.texts("partition_by", "a column or a list of columns"), upsert)
