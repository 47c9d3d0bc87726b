"""What a pipeline's file says, checked and with its defaults filled in.

    sources     where rows come from: topics, files, a generator of rows
    views       names for queries over sources and over views above them
    flows       queries whose results go somewhere: each is one streaming query of Spark with its own checkpoint

A YAML file and a Python file give the same model; only a Python file can have functions in it. Nothing here
imports Spark: a file can be checked where Spark is not installed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

METADATA: Final = ("key", "topic", "partition", "offset", "timestamp")
"""What a `json` source shows of a record beside its value, unless it says otherwise; each with `_` before it."""

METADATA_ALL: Final = (*METADATA, "timestampType", "headers")

AVAILABLE_NOW: Final = "available now"

MODULE_PREFIX: Final = "penstock_pipeline_"
"""Of the module that a Python file is run as."""


class Watermark(NamedTuple):
    """How late a row may be: those that are later than `delay` behind the newest are left out of what keeps state."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicSource:
    topics: tuple[str, ...]
    """Empty where there is a pattern."""
    pattern: str | None
    bootstrap: str | None
    """None: that of the pipeline."""
    value: str
    """json, string or raw."""
    key: str
    """The same."""
    schema: str | None
    """The columns in a json value, as DDL."""
    key_schema: str | None
    bad_records: str
    """fail, keep or drop: what a value that is no JSON of this schema does."""
    metadata: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def identity(self) -> str:
        """What a checkpoint has positions of."""
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
    """A source or a view as it is."""

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
    """Read as it is when the pipeline starts, instead of followed as it grows."""
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
    """None where each row of a raw value names its own."""
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
    """Columns by which a row replaces an older one; none: rows are added."""

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
    """A function that is given each micro-batch and its number."""

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
    """A directory, absolute, or a URI that Spark's file systems understand."""
    state: Path
    """Where the runner keeps its lock and its status: a local directory, the checkpoint's where that is one."""
    conf: Mapping[str, str]
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    flows: tuple[Flow, ...]
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Where things are in the file: the line of `("views", "big", "sql")`."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a query can read, in the order of the file."""
        return (*(each.name for each in self.sources), *(each.name for each in self.views))

    def where(self, *path: str) -> str:
        """The file and the line of a key, or of the nearest thing around it."""
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
    """Whether this is an interval as Spark writes them: `10 seconds`, `1 hour 30 minutes`."""
    return _INTERVAL.fullmatch(text.strip()) is not None
