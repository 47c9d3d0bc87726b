"""Builds the model from the data of a file; reports all problems at once.

`file_keys` checks single values. This module checks rules about several: combinations of keys, names that a
query can read, options of the source and the sink. If a value of a part is invalid, the
rest of that part is not checked here, so that one mistake gives one problem. Paths are relative to the file.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import BadPipeline, Problems, one_of, shown
from .file_keys import (
    ConsoleSinkKeys,
    DeltaSinkKeys,
    FileSourceKeys,
    FlowKeys,
    ParquetSinkKeys,
    PipelineKeys,
    QueryKeys,
    RateSourceKeys,
    SourceKeys,
    TopicSinkKeys,
    TopicSourceKeys,
    ViewKeys,
    WatermarkKeys,
    validated,
)
from .graph import names_read
from .options import wrong_in_sink, wrong_in_source
from .spec import (
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
    Watermark,
    is_uri,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
SESSION = "spark"
"""The session parameter of functions; no source or view can have this name."""

_SET_BY_SOURCE_KEYS = {
    "kafka.bootstrap.servers": "bootstrap",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "assign": "topic",
    "path": "files",
}
_SET_BY_RATE_KEYS = {"rowspersecond": "rate"}
_SET_BY_SINK_KEYS = {
    "kafka.bootstrap.servers": "bootstrap",
    "topic": "topic",
    "checkpointlocation": "checkpoint",
}

KeyPath = tuple[str, ...]


def parse(data: object, file: Path, lines: Mapping[KeyPath, int]) -> PipelineSpec:
    """The model of a file's data; raises BadPipeline with all problems."""
    problems = Problems(file, lines)
    spec = None
    if not isinstance(data, Mapping) or not data:
        problems.add((), f"{shown(data)} is not a pipeline, expected the keys pipeline, sources and flows")
    else:
        spec = _Parser(problems, file, lines).pipeline(data)
    if spec is None or problems.found:
        raise BadPipeline(problems.found)
    return spec


class _Parser:
    def __init__(self, problems: Problems, file: Path, lines: Mapping[KeyPath, int]) -> None:
        self._problems = problems
        self._add = problems.add
        self._file = file
        self._lines = lines
        self._names: dict[str, str] = {}
        """Sources and views so far, by lower-case name: names are case-insensitive in Spark."""
        self._declared: frozenset[str] = frozenset()

    def pipeline(self, data: Mapping[Any, Any]) -> PipelineSpec | None:
        keys = validated(PipelineKeys, self._problems, (), data)
        raw_sources, raw_views, raw_flows = (
            self._named(part, data.get(part)) for part in ("sources", "views", "flows")
        )
        self._declared = frozenset(each.lower() for each, _ in (*raw_sources, *raw_views))
        sources = [self._source(each, value) for each, value in raw_sources]
        views = [self._view(each, value) for each, value in raw_views]
        trigger = None if keys is None else keys.trigger
        flows = [self._flow(each, value, trigger) for each, value in raw_flows]
        if not raw_flows and not self._problems.found:
            self._add(("flows",), "is missing, expected at least one flow")
        self._check_flow_names(name for name, _ in raw_flows)
        self._check_parquet_writers(each for each in flows if each is not None)
        if keys is None or self._problems.found:
            return None
        name = keys.pipeline
        checkpoint = self._path(keys.checkpoint or f"checkpoints/{name}")
        state = keys.state or (f".{name}.state" if is_uri(checkpoint) else checkpoint)
        return PipelineSpec(
            name,
            self._file,
            keys.bootstrap,
            checkpoint,
            Path(self._path(state)),
            keys.conf,
            tuple(each for each in sources if each is not None),
            tuple(each for each in views if each is not None),
            tuple(each for each in flows if each is not None),
            self._lines,
            None if keys.client_config is None else self._path(keys.client_config),
        )

    def _named(self, part: str, value: object) -> list[tuple[str, Any]]:
        """The named entries of a part; each name must be valid in SQL."""
        if value is None:
            return []
        if not isinstance(value, Mapping):
            self._add((part,), f"{shown(value)} is not a mapping, expected names with their keys")
            return []
        named = []
        for name, item in value.items():
            if isinstance(name, str) and NAME.fullmatch(name) is not None:
                named.append((name, item))
            else:
                self._add(
                    (part,),
                    f"{shown(name)} is not a valid name, expected letters, digits and _, no digit first, at most 100",
                )
        return named

    def _check_flow_names(self, names: Iterable[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                self._add(
                    ("flows",), f"{name} is declared twice, expected names that differ in more than case"
                )
            seen.add(name.lower())

    def _check_parquet_writers(self, flows: Iterable[Flow]) -> None:
        """Spark identifies a batch of a Parquet table only by its number, so two flows cannot share a table."""
        writers: dict[str, str] = {}
        for flow in flows:
            if isinstance(flow.sink, ParquetSink):
                other = writers.setdefault(flow.sink.path, flow.name)
                if other != flow.name:
                    self._add(
                        ("flows", flow.name, "to", "parquet"),
                        f"flow {other} already writes to {flow.sink.path}, expected another directory",
                    )

    def _new_name(self, path: KeyPath) -> None:
        name = path[-1]
        if name.lower() == SESSION:
            self._add(path, f"{name} is reserved for the session, expected another name")
        if name.lower() in self._names:
            self._add(
                path, f"{name} is already declared as {self._names[name.lower()]}; expected another name"
            )
        self._names[name.lower()] = name

    def _only_one(self, path: KeyPath, value: object, kinds: tuple[str, ...], what: str) -> str | None:
        """Which of these keys is there; exactly one must be."""
        if not isinstance(value, Mapping):
            self._add(path, f"{shown(value)} is not a mapping, expected keys with values")
            return None
        present = [key for key in kinds if value.get(key) is not None]
        if len(present) == 1:
            return present[0]
        found = "found none" if not present else f"found {' and '.join(present)}"
        self._add(path, f"{what} has exactly one of {one_of(kinds)}; {found}")
        return None

    def _path(self, path: str) -> str:
        return path if is_uri(path) else str((self._file.parent / Path(path).expanduser()).resolve())

    def _check_options(
        self,
        path: KeyPath,
        options: Mapping[str, str],
        set_by: Mapping[str, str],
        refused: Iterable[tuple[str | None, str]] = (),
    ) -> None:
        """Reject options that are set by keys; if there are none, check the others with the source or sink."""
        taken = [(name, set_by[name.lower()]) for name in options if name.lower() in set_by]
        for name, key in taken:
            self._add((*path, "options", name), f"is set by the key {key}; use that key")
        if not taken:
            for option, sentence in refused:
                self._add((*path, "options", *([option] if option else [])), sentence)

    # Sources.

    def _source(self, name: str, value: object) -> Source | None:
        path = ("sources", name)
        self._new_name(path)
        kind = self._only_one(path, value, ("topic", "pattern", "files", "rate"), "a source")
        if kind is None:
            return None
        models: dict[str, type[SourceKeys]] = {"files": FileSourceKeys, "rate": RateSourceKeys}
        keys = validated(models.get(kind, TopicSourceKeys), self._problems, path, value)
        if keys is None:
            return None
        if keys.static and kind == "rate":
            self._add(
                (*path, "static"), "a rate source never ends, expected static only with topics or files"
            )
        if keys.static and (keys.watermark or keys.deduplicate):
            self._add((*path, "static"), "static rows are read once, expected no watermark or deduplicate")
        reads: TopicSource | FileSource | RateSource
        if isinstance(keys, TopicSourceKeys):
            reads = self._topic_source(path, keys)
        elif isinstance(keys, FileSourceKeys):
            reads = self._file_source(path, keys)
        else:
            assert isinstance(keys, RateSourceKeys)
            reads = RateSource(keys.rate, keys.options)
            self._check_options(path, keys.options, _SET_BY_RATE_KEYS)
        return Source(name, reads, keys.static, _watermark(keys.watermark), keys.deduplicate)

    def _topic_source(self, path: KeyPath, keys: TopicSourceKeys) -> TopicSource:
        value = keys.value
        key = keys.key or ("raw" if value == "raw" else "string")
        for name, schema, coding in (("schema", keys.columns, value), ("key_schema", keys.key_schema, key)):
            if coding == "json" and schema is None:
                self._add(
                    (*path, name),
                    "is missing, expected the columns of the JSON with types, such as `id BIGINT, name STRING`",
                )
            if coding != "json" and schema is not None:
                self._add((*path, name), f"is only valid with json, found {coding}")
        if keys.bad_records is not None and value != "json":
            self._add((*path, "bad_records"), f"is only valid with value: json, found {value}")
        metadata = METADATA if value == "json" else METADATA_ALL[:-1]
        reads = TopicSource(
            keys.topic,
            keys.pattern,
            keys.bootstrap,
            value,
            key,
            keys.columns,
            keys.key_schema,
            keys.bad_records or "fail",
            metadata if keys.metadata is None else keys.metadata,
            keys.options,
        )
        refused = wrong_in_source(reads, is_static=keys.static)
        self._check_options(path, keys.options, _SET_BY_SOURCE_KEYS, refused)
        return reads

    def _file_source(self, path: KeyPath, keys: FileSourceKeys) -> FileSource:
        if keys.columns is None and keys.format != "text":
            self._add(
                (*path, "schema"),
                f"is missing, expected the columns of the {keys.format} files, such as `id BIGINT, name STRING`",
            )
        if keys.columns is not None and keys.format == "text":
            self._add((*path, "schema"), "text files have only the column value, expected no schema")
        self._check_options(path, keys.options, _SET_BY_SOURCE_KEYS)
        return FileSource(self._path(keys.files), keys.format, keys.columns, keys.options)

    # Queries.

    def _query(self, path: KeyPath, keys: QueryKeys | None, kind: str | None) -> Query | None:
        if keys is None or kind is None:
            return None
        if keys.sql is not None:
            for name in names_read(keys.sql, self._declared - self._names.keys()):
                self._add((*path, "sql"), f"reads {name}, which is declared below it; expected it above")
            return Sql(keys.sql)
        if keys.reads is not None:
            self._check_known((*path, "reads"), keys.reads)
            return Reads(self._names.get(keys.reads.lower(), keys.reads))
        assert keys.function is not None
        parameters = tuple(inspect.signature(keys.function).parameters)
        for parameter in parameters:
            if parameter != SESSION:
                self._check_known((*path, "function"), parameter)
        return Call(keys.function, tuple(self._names.get(each.lower(), each) for each in parameters))

    def _query_kind(self, path: KeyPath, value: object, what: str) -> str | None:
        is_python = isinstance(value, Mapping) and callable(value.get("function"))
        return self._only_one(
            path, value, ("sql", "reads", "function") if is_python else ("sql", "reads"), what
        )

    def _check_known(self, path: KeyPath, name: str) -> None:
        if name.lower() in self._names:
            return
        there = one_of(self._names.values()) if self._names else "a source or a view, but there are none"
        why = "is declared below it" if name.lower() in self._declared else "is not a source or view above it"
        self._add(path, f"{shown(name)} {why}, expected {there}")

    def _view(self, name: str, value: object) -> View | None:
        path = ("views", name)
        value = {"sql": value} if isinstance(value, str) else value
        kind = self._query_kind(path, value, "a view")
        keys = validated(ViewKeys, self._problems, path, value) if isinstance(value, Mapping) else None
        query = self._query(path, keys, kind)
        self._new_name(path)
        if keys is None or query is None:
            return None
        return View(name, query, _watermark(keys.watermark), keys.deduplicate)

    def _flow(self, name: str, value: object, trigger: str | None) -> Flow | None:
        path = ("flows", name)
        kind = self._query_kind(path, value, "a flow")
        if not isinstance(value, Mapping):
            return None
        keys = validated(FlowKeys, self._problems, path, value)
        query = self._query(path, keys, kind)
        to = value.get("to")
        sink: Sink | None = None
        if callable(to):
            sink = BatchSink(to)
        elif to is not None:
            sink = self._sink(path, to, None if keys is None else keys.mode)
        if keys is None or query is None or sink is None:
            return None
        return Flow(name, query, sink, keys.mode, keys.trigger or trigger)

    # Sinks.

    def _sink(self, flow: KeyPath, value: object, mode: str | None) -> Sink | None:
        """`mode` is None if it is invalid."""
        path = (*flow, "to")
        kind = self._only_one(path, value, ("topic", "topics", "parquet", "delta", "console"), "a sink")
        if kind is None:
            return None
        if kind == "console":
            console = validated(ConsoleSinkKeys, self._problems, path, value)
            return None if console is None else ConsoleSink(console.rows)
        if kind == "parquet":
            parquet = validated(ParquetSinkKeys, self._problems, path, value)
            return None if parquet is None else self._parquet(flow, parquet, mode)
        if kind == "delta":
            delta = validated(DeltaSinkKeys, self._problems, path, value)
            return None if delta is None else self._delta(flow, delta, mode)
        topic = validated(TopicSinkKeys, self._problems, path, value)
        return None if topic is None else self._topic_sink(path, topic)

    def _topic_sink(self, path: KeyPath, keys: TopicSinkKeys) -> TopicSink:
        if keys.topics is not None and keys.value != "raw":
            self._add((*path, "topics"), f"is only valid with value: raw, found {keys.value}")
        if keys.column is not None and keys.value != "string":
            self._add((*path, "column"), f"is only valid with value: string, found {keys.value}")
        if keys.key is not None and keys.value == "raw":
            self._add(
                (*path, "key"), "is only valid with json and string; with raw the query has a column key"
            )
        sink = TopicSink(
            keys.topic, keys.bootstrap, keys.value, keys.key, keys.column or "value", keys.options
        )
        self._check_options(path, keys.options, _SET_BY_SINK_KEYS, wrong_in_sink(sink))
        return sink

    def _parquet(self, flow: KeyPath, keys: ParquetSinkKeys, mode: str | None) -> ParquetSink:
        if mode not in ("append", None):
            self._add((*flow, "mode"), f"{mode} cannot be written to Parquet files, expected append")
        self._check_options((*flow, "to"), keys.options, _SET_BY_SINK_KEYS)
        return ParquetSink(self._path(keys.parquet), keys.partition_by, keys.options)

    def _delta(self, flow: KeyPath, keys: DeltaSinkKeys, mode: str | None) -> DeltaSink:
        path = self._path(keys.delta)
        if is_uri(path):
            self._add(
                (*flow, "to", "delta"),
                f"{shown(path)} is not a directory, expected one that driver and executors share",
            )
        if mode == "update" and not keys.upsert:
            self._add(
                (*flow, "mode"),
                "update writes a row again when it changes, expected `upsert` in `to`",
            )
        if mode == "complete" and keys.upsert:
            self._add(
                (*flow, "to", "upsert"), "complete replaces the whole table, expected mode update or append"
            )
        return DeltaSink(path, keys.partition_by, keys.upsert)


def _watermark(keys: WatermarkKeys | None) -> Watermark | None:
    return None if keys is None else Watermark(keys.column, keys.delay)
