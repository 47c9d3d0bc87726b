"""GET /metrics: for Prometheus, and for whoever reads its format."""

from penstock.gateway.collecting import collect
from penstock.gateway.exposition import OPEN_METRICS, TEXT
from penstock.gateway.health import Operated, disk_usage
from penstock.gateway.http.messages import Answer, Query, Request, Response, Route
from penstock.gateway.http.negotiation import preferred
from penstock.gateway.steps import Steps

_FORMS = (TEXT, OPEN_METRICS)


def metrics(node: Operated, request: Request) -> Steps[Answer]:
    wanted = preferred(request.headers.get("accept", ""), _FORMS)
    page = yield from collect(
        node.context,
        disk_usage(node.directory),
        is_open=wanted == OPEN_METRICS,
        by_partition=request.query["partitions"],
    )
    return Response(200, page.encoded(), page.content_type)


ROUTES = (
    Route(
        "GET",
        "/metrics",
        metrics,
        "operations",
        "Metrics of this node in Prometheus's text format, or in OpenMetrics.",
        query=(
            Query(
                "partitions",
                bool,
                "Show each partition as well: many lines on a large node.",
                default=False,
            ),
        ),
        content_types=_FORMS,
    ),
)
