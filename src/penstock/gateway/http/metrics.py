"""GET /metrics, in Prometheus text format and OpenMetrics."""

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Answer, Query, Request, Response, Route
from penstock.gateway.http.protocol.negotiation import preferred
from penstock.gateway.shared.exposition import OPEN_METRICS, TEXT
from penstock.gateway.shared.health import Operated, disk_usage
from penstock.gateway.shared.metrics_page import collect

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
        "Metrics of this node in Prometheus text format or OpenMetrics.",
        query=(
            Query(
                "partitions",
                bool,
                "Include metrics of each partition.",
                default=False,
            ),
        ),
        content_types=_FORMS,
    ),
)
