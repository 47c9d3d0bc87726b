"""Pipelines that report to this cluster: `penstock pipeline run` writes reports to a topic, which any node shows."""

from typing import Any

import msgspec

from penstock.base.pipeline_report import NAME_CHARS_MAX, PIPELINES_TOPIC, PipelineReport
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.metadata.acls import Operation

LISTED = 100
LISTED_MAX = 500

_READ_REPORTS = Rule((Need(Operation.READ, TOPIC, name=PIPELINES_TOPIC),))

ROUTES = Routes("pipelines")


class PipelineListing(msgspec.Struct):
    pipeline: str
    state: str
    """`starting`, `running`, `stopping`, `stopped`, `finished`, `failed`; `lost` if reports have ceased."""
    run: str
    """Identifies the run."""
    host: str
    started_ms: int
    updated_ms: int
    """When it reported last."""
    rows_per_s: float
    """Sum over the flows that run."""
    lag: int | None
    """Sum over all flows, as of their last batches; null if none is known."""
    error: str | None
    """The last error."""
    flows: list[str]
    """Names of its flows."""
    groups: list[str]
    """Consumer groups that show the positions of its flows."""


class PipelineList(msgspec.Struct):
    pipelines: list[PipelineListing]
    """In order of name."""
    next: str | None
    """The `after` of the next page; null on the last page."""


@ROUTES.add(
    "GET",
    "/pipelines",
    "List the Spark pipelines that report to this cluster, in order of name.",
    query=(
        Query("after", str, "Only names after this one, in order.", max=NAME_CHARS_MAX),
        Query("limit", int, "Maximum number of pipelines.", default=LISTED, min=1, max=LISTED_MAX),
    ),
    answer=PipelineList,
    rule=_READ_REPORTS,
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    reports: list[PipelineReport] = yield from gateway.pipelines.reports()
    after, limit = request.query["after"], request.query["limit"]
    shown = [each for each in reports if after is None or each.pipeline > after]
    rows = [_listed(each) for each in shown[:limit]]
    return json(PipelineList(rows, rows[-1].pipeline if len(shown) > limit else None))


def _listed(report: PipelineReport) -> PipelineListing:
    return PipelineListing(
        report.pipeline,
        report.state,
        report.run,
        report.host,
        report.started_ms,
        report.updated_ms,
        report.rows_per_s,
        report.lag,
        report.last_error,
        [each.flow for each in report.flows],
        [each.group for each in report.flows if each.group is not None],
    )


@ROUTES.add(
    "GET",
    "/pipelines/{pipeline}",
    "The last report of a pipeline: its graph, and the state, rates, batches, lag and errors of its flows.",
    answer=PipelineReport,
    errors=(404,),
    rule=_READ_REPORTS,
)
def _describe(gateway: Any, request: Request) -> Steps[Response]:
    return json((yield from gateway.pipelines.find(request.path["pipeline"])))
