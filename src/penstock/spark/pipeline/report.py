"""Reports a run to the brokers of its pipeline, so that every node can show it (`base/pipeline_report.py`).

    runner --> update --> the newest report --> thread --> compacted topic

The thread writes a report when a state changes, at most every `REPORT_S` after batches, and at least every
`HEARTBEAT_MS`. Only the newest report counts, so none waits for another. A failure to report never disturbs the
pipeline: the first is told, and the thread tries again after `RETRY_S`.
"""

import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

from penstock import __version__
from penstock.base.pipeline_report import (
    BATCHES_MAX,
    HEARTBEAT_MS,
    NAME_CHARS_MAX,
    PIPELINES_TOPIC,
    REPORT_BYTES_MAX,
    TEXT_CHARS_MAX,
    GraphEdge,
    GraphNode,
    PipelineReport,
    ReportedBatch,
    ReportedFlow,
    write_report,
)
from penstock.client.pipeline_reports import ReportWriter

from .build import group_of
from .graph import direct, needed
from .lag import PATIENCE
from .options import Brokers
from .progress import FlowProgress
from .secrets import redactor
from .spec import Flow, PipelineSpec, Source, TopicSink, TopicSource

REPORT_S: Final = 2.0
RETRY_S: Final = 30.0
CLOSE_S_MAX: Final = 10.0
"""How long the end of a run waits for its last report."""

BATCHES_IN_ALL: Final = 1_200
"""Batches of all flows that a report has, if there are many flows."""


class Reporter:
    def __init__(self, spec: PipelineSpec, brokers: Brokers, where: str, warn: Callable[[str], None]) -> None:
        self._brokers = brokers
        self._warn = warn
        self._redacted = redactor(spec, brokers)
        nodes, edges = graph_of(spec)
        for node in nodes:
            node.id, node.name, node.what = map(self._text, (node.id, node.name, node.what))
        for edge in edges:
            edge.source, edge.target = self._text(edge.source), self._text(edge.target)
        self._head = PipelineReport(
            pipeline=spec.name,
            run=uuid.uuid4().hex,
            state="starting",
            started_ms=_now_ms(),
            updated_ms=_now_ms(),
            host=socket.gethostname()[:NAME_CHARS_MAX],
            pid=os.getpid(),
            spark=self._text(where),
            release=__version__,
            nodes=nodes,
            edges=edges,
        )
        self._groups = {flow.name: reported_group(spec, flow) for flow in spec.flows}
        kept = min(BATCHES_MAX, max(5, BATCHES_IN_ALL // max(len(spec.flows), 1)))
        self._batches = {flow.name: deque[ReportedBatch](maxlen=kept) for flow in spec.flows}
        self._last_batch: dict[str, tuple[int | None, int]] = {}
        """Number of the last batch of each flow, and its rows so far."""
        self._states: tuple[str, ...] = ()
        self._changed = threading.Condition()
        self._next: PipelineReport | None = None
        self._is_urgent = False
        self._is_closing = False
        self._writer: ReportWriter | None = None
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, name="pipeline-report", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S_MAX)

    def update(self, state: str, flows: Sequence[FlowProgress], error: str | None = None) -> None:
        """Called by the runner for each batch and each change of a state."""
        states = (state, error or "", *(each.state for each in flows))
        report = self.report(state, flows, error)
        with self._changed:
            self._next = report
            self._is_urgent = self._is_urgent or states != self._states
            self._states = states
            self._changed.notify()

    def report(self, state: str, flows: Iterable[FlowProgress], error: str | None) -> PipelineReport:
        now_ms = _now_ms()
        reported = []
        for each in flows:
            batches = self._batches[each.flow]
            mark = (each.batch, each.rows)
            if each.batch is not None and self._last_batch.get(each.flow) != mark:
                self._last_batch[each.flow] = mark
                batches.append(
                    ReportedBatch(now_ms, each.rows_last, each.batch_ms, round(each.rows_per_s, 1), each.lag)
                )
            reported.append(
                ReportedFlow(
                    flow=each.flow,
                    state=each.state,
                    group=self._groups[each.flow],
                    batch=each.batch,
                    rows=each.rows,
                    rows_per_s=round(each.rows_per_s, 1),
                    batch_ms=each.batch_ms,
                    lag=each.lag,
                    state_rows=each.state_rows,
                    watermark=each.watermark,
                    error=None if each.error is None else self._text(each.error),
                    batches=list(batches),
                )
            )
        head = self._head
        return PipelineReport(
            pipeline=head.pipeline,
            run=head.run,
            state=state,
            started_ms=head.started_ms,
            updated_ms=now_ms,
            host=head.host,
            pid=head.pid,
            spark=head.spark,
            release=head.release,
            error=None if error is None else self._text(error),
            flows=reported,
            nodes=head.nodes,
            edges=head.edges,
        )

    def _text(self, text: str) -> str:
        return self._redacted(text)[:TEXT_CHARS_MAX]

    # -- the thread ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        last: PipelineReport | None = None
        sent_at, retry_at = 0.0, 0.0
        is_closing = False
        while not is_closing:
            with self._changed:
                while not self._is_closing:
                    pause_s = 0.0 if self._is_urgent else REPORT_S if self._next else HEARTBEAT_MS / 1000
                    left_s = max(sent_at + pause_s, retry_at) - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
                is_closing = self._is_closing
                last = self._next or (None if is_closing else last)
                self._next, self._is_urgent = None, False
            sent_at = time.monotonic()
            if last is not None and not self._has_sent(last):
                retry_at = time.monotonic() + RETRY_S
        if self._writer is not None:
            self._writer.close()

    def _has_sent(self, report: PipelineReport) -> bool:
        try:
            if self._writer is None:
                self._writer = ReportWriter(self._brokers.connect(PATIENCE))
            self._writer.write(fit(report))
        except Exception as error:  # a pipeline does not end for a report
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
            if not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"`penstock pipeline list` and the console do not show this run, since it cannot be reported to "
                    f"topic {PIPELINES_TOPIC}: {self._redacted(str(error))}"
                )
            return False
        return True


def fit(report: PipelineReport) -> PipelineReport:
    """The report, without batches and graph if it would be too large."""
    if len(write_report(report)) > REPORT_BYTES_MAX:
        for flow in report.flows:
            flow.batches = []
    if len(write_report(report)) > REPORT_BYTES_MAX:
        report.nodes, report.edges = [], []
    return report


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def reported_group(spec: PipelineSpec, flow: Flow) -> str | None:
    """The consumer group that shows a flow's position; None if there is none, or several."""
    groups = set()
    for each in needed(spec, flow.query):
        if isinstance(each, Source) and isinstance(each.reads, TopicSource) and not each.is_static:
            own = [
                value
                for name, value in each.reads.options.items()
                if name.lower() in ("group", "kafka.group.id")
            ]
            groups.add(own[-1] if own else group_of(spec, flow))
    return (groups.pop() or None) if len(groups) == 1 else None


def graph_of(spec: PipelineSpec) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Sources, views, flows and sinks, and what reads what."""
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    ids: dict[str, str] = {}
    for source in spec.sources:
        ids[source.name] = f"source:{source.name}"
        topics = list(source.reads.topics) if isinstance(source.reads, TopicSource) else []
        nodes.append(GraphNode(ids[source.name], "source", source.name, source.reads.identity, topics))
    for view in spec.views:
        read = direct(view.query, list(ids))
        ids[view.name] = f"view:{view.name}"
        nodes.append(GraphNode(ids[view.name], "view", view.name))
        edges += [GraphEdge(ids[name], ids[view.name]) for name in read]
    sinks: dict[str, GraphNode] = {}
    for flow in spec.flows:
        flow_id = f"flow:{flow.name}"
        nodes.append(GraphNode(flow_id, "flow", flow.name))
        edges += [GraphEdge(ids[name], flow_id) for name in direct(flow.query, list(ids))]
        sink = flow.sink
        topics = [sink.topic] if isinstance(sink, TopicSink) and sink.topic is not None else []
        what = sink.identity
        sink_id = f"sink:{what}"[:NAME_CHARS_MAX]
        if sink_id not in sinks:
            name = topics[0] if topics else what.rstrip("/").rpartition("/")[2]
            sinks[sink_id] = GraphNode(sink_id, "sink", name[:NAME_CHARS_MAX], what, topics)
        edges.append(GraphEdge(flow_id, sink_id))
    return [*nodes, *sinks.values()], edges
