"""The model of a pipeline file, validated and with defaults.

    sources     origins of rows: topics, files, a row generator
    views       named queries over sources and over views above them
    flows       queries with a sink: each is one streaming query of Spark with its own checkpoint

YAML and Python files give the same model; only a Python file can have functions. Nothing here
imports Spark, so a file can be checked without Spark.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

METADATA: Final = ("key", "topic", "partition", "offset", "timestamp")
"""Default columns of a record that a `json` source adds to those of the value, with the prefix `_`."""

METADATA_ALL: Final = (*METADATA, "timestampType", "headers")

AVAILABLE_NOW: Final = "available now"

MODULE_PREFIX: Final = "penstock_pipeline_"
"""Name of the module as which a Python file runs."""


class Watermark(NamedTuple):
    """Limit for late rows: stateful operators ignore rows more than `delay` behind the newest."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    topics: tuple[str, ...]
    """Empty if there is a pattern."""
    pattern: str | None
    bootstrap: str | None
    """None for the pipeline's."""
    value: str
    """json, string or raw."""
    key: str
    """json, string or raw, for the key."""
    schema: str | None
    """The columns of a json value, as DDL."""
    key_schema: str | None
    bad_records: str
    """fail, keep or drop, for a value that does not match the schema."""
    metadata: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        """Identifies the source in a checkpoint."""
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        return f"{'topic' if len(self.topics) == 1 else 'topics'} {', '.join(sorted(self.topics))}"


@dataclass(frozen=True, slots=True)
class FileSource:
    path: str
    format: str
    schema: str | None
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        return f"{self.format} files in {self.path}"


@dataclass(frozen=True, slots=True)
class RateSource:
    rows_per_second: int
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        return "rate"


@dataclass(frozen=True, slots=True)
class Sql:
    text: str


@dataclass(frozen=True, slots=True)
class Reads:
    """A source or a view, unchanged."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a Python file. Its parameters are names of sources and views, or `spark` for the session."""

    function: Callable[..., Any]
    parameters: tuple[str, ...]


Query = Sql | Reads | Call


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    reads: TopicSource | FileSource | RateSource
    is_static: bool
    """Read once when the pipeline starts, instead of as a stream."""
    watermark: Watermark | None
    deduplicate: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    name: str
    query: Query
    watermark: Watermark | None
    deduplicate: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSink:
    topic: str | None
    """None if each row names its topic."""
    bootstrap: str | None
    value: str
    """json: all columns as one object; string: one column; raw: the query has the columns of a record."""
    key: str | None
    column: str
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        return f"topic {self.topic}" if self.topic else "topics named by the rows"


@dataclass(frozen=True, slots=True)
class ParquetSink:
    path: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        return f"Parquet files in {self.path}"


@dataclass(frozen=True, slots=True)
class DeltaSink:
    path: str
    partition_by: tuple[str, ...]
    upsert: tuple[str, ...]
    """Key columns by which a row replaces an older one; empty to append."""

    @property
    def identity(self) -> str:
        return f"Delta table {self.path}"


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    rows_max: int

    @property
    def identity(self) -> str:
        return "console"


@dataclass(frozen=True, slots=True)
class BatchSink:
    """A function that gets each micro-batch and its number."""

    function: Callable[[Any, int], None]

    @property
    def identity(self) -> str:
        return f"function {self.function.__name__}"


Sink = TopicSink | ParquetSink | DeltaSink | ConsoleSink | BatchSink


@dataclass(frozen=True, slots=True)
class Flow:
    name: str
    query: Query
    sink: Sink
    mode: str
    trigger: str | None
    """`available now`, an interval such as `10 seconds`, or None: a batch as soon as there are rows."""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    name: str
    file: Path
    bootstrap: str | None
    checkpoint: str
    """An absolute directory, or a Spark URI."""
    state: Path
    """Local directory of the runner's lock and status; the checkpoint directory if that is local."""
    conf: Mapping[str, str]
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    flows: tuple[Flow, ...]
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Lines in the file by key path, such as `("views", "big", "sql")`."""
    client_config: str | None = None
    """A file of Kafka's client settings, for sources and sinks without a `bootstrap` of their own."""

    @property
    def names(self) -> tuple[str, ...]:
        """The sources and views that a query can read, in the order of the file."""
        return (*(each.name for each in self.sources), *(each.name for each in self.views))

    def where(self, *path: str) -> str:
        """The file and the line of a key, or of the nearest key around it."""
        for length in range(len(path), 0, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.file}:{line}"
        return str(self.file)

    def checkpoint_of(self, flow: str) -> str:
        return f"{self.checkpoint.rstrip('/')}/{flow}"


def is_uri(path: str) -> bool:
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", path) is not None


_UNIT = r"(?:microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL = re.compile(rf"\d{{1,9}} {_UNIT}(?: \d{{1,9}} {_UNIT})*", re.IGNORECASE)


def is_interval(text: str) -> bool:
    """Whether the text is an interval in Spark's syntax: `10 seconds`, `1 hour 30 minutes`."""
    return _INTERVAL.fullmatch(text.strip()) is not None
