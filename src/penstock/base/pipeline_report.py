"""Reports of pipelines: what `penstock pipeline run` writes to a compacted topic, and every node can show.

The key of a record is the name of the pipeline, and its value a `PipelineReport` as JSON: the newest record of a key
is the state of the last run. So the topic needs no more room than there are pipelines, and a node that reads it from
the start knows them all. A run writes a report at its start, after batches, when a flow changes its state, and at
least every `HEARTBEAT_MS`. If the last report of a running pipeline is older than `LOST_MS`, its process ended without
a report, or does not reach the brokers: it is lost.

Reports come from clients. A node shows only what `read_report` accepts, so lengths are limited here.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

PIPELINES_TOPIC: Final = "__penstock_pipelines"

COMMIT_METADATA: Final = "penstock-spark"
"""Metadata of the offsets that a Spark query commits, by which its group is recognised."""

VERSION: Final = 1
HEARTBEAT_MS: Final = 10_000
LOST_MS: Final = 35_000
REPORT_BYTES_MAX: Final = 512 * 1024
"""Half of `max.message.bytes` by default."""

LIVE_STATES: Final = frozenset({"starting", "running", "stopping"})
LOST: Final = "lost"

NAME_CHARS_MAX: Final = 300
TEXT_CHARS_MAX: Final = 2_000
NODES_MAX: Final = 1_000
EDGES_MAX: Final = 10_000
BATCHES_MAX: Final = 120

Name: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]


class ReportedBatch(msgspec.Struct):
    """A micro-batch."""

    time: int
    """When it ended, in milliseconds since 1970."""
    rows: int
    ms: int | None
    """How long it took."""
    rows_per_s: float
    lag: int | None


class ReportedFlow(msgspec.Struct):
    """One streaming query."""

    flow: Name
    state: Name
    """`waiting`, `running`, `finished` (nothing left to read), `stopped` or `failed`."""
    group: Name | None = None
    """The consumer group that shows its position; null if it commits none, or another that its options name."""
    batch: int | None = None
    """Number of the last micro-batch."""
    rows: int = 0
    """Rows read in this run."""
    rows_per_s: float = 0.0
    """Rate of the last batch."""
    batch_ms: int | None = None
    """Duration of the last batch."""
    lag: int | None = None
    """Records between its position and the end, as of the last batch."""
    state_rows: int | None = None
    """Rows in the state of aggregations, joins and deduplication."""
    watermark: Text | None = None
    error: Text | None = None
    batches: Annotated[list[ReportedBatch], Meta(max_length=BATCHES_MAX)] = []
    """The last batches, in order."""


class GraphNode(msgspec.Struct):
    id: Name
    kind: Name
    """`source`, `view`, `flow` or `sink`."""
    name: Name
    what: Text = ""
    """What it is: `topic orders`, `Parquet files in tables/orders`."""
    topics: Annotated[list[Name], Meta(max_length=NODES_MAX)] = []
    """The topics that it reads or writes."""


class GraphEdge(msgspec.Struct):
    source: Name
    """The `id` of a node whose rows the other one reads."""
    target: Name


class PipelineReport(msgspec.Struct):
    pipeline: Name
    run: Name
    """Identifies the run."""
    state: Name
    """`starting`, `running`, `stopping`, `stopped`, `finished`, `failed`; `lost` if reports have ceased."""
    started_ms: int
    updated_ms: int
    """When the report was written, by the broker's clock."""
    host: Name = ""
    pid: int = 0
    spark: Text = ""
    """The Spark master, or the Spark Connect server."""
    release: Name = ""
    """Penstock's version."""
    error: Text | None = None
    """Why the run failed."""
    flows: Annotated[list[ReportedFlow], Meta(max_length=NODES_MAX)] = []
    nodes: Annotated[list[GraphNode], Meta(max_length=NODES_MAX)] = []
    edges: Annotated[list[GraphEdge], Meta(max_length=EDGES_MAX)] = []
    version: int = VERSION
    """Of the report's form."""

    @property
    def lag(self) -> int | None:
        known = [each.lag for each in self.flows if each.lag is not None]
        return sum(known) if known else None

    @property
    def rows_per_s(self) -> float:
        """Of the flows that run."""
        return sum(each.rows_per_s for each in self.flows if each.state == "running")

    @property
    def last_error(self) -> str | None:
        return self.error or next((each.error for each in self.flows if each.error), None)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PipelineReport).decode


def write_report(report: PipelineReport) -> bytes:
    return _encode(report)


def read_report(key: bytes | None, value: bytes, written_ms: int, now_ms: int) -> PipelineReport | None:
    """The report in a record, with its state as of now; None if it is not one, or of a later form."""
    try:
        report = _decode(value) if len(value) <= REPORT_BYTES_MAX else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if report is None or report.version != VERSION or report.pipeline.encode() != key:
        return None
    report.updated_ms = written_ms
    if report.state in LIVE_STATES and now_ms - written_ms > LOST_MS:
        report.state = LOST
        for flow in report.flows:
            if flow.state in ("running", "waiting"):
                flow.state = LOST
    return report
