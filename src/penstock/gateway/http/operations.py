"""/health with its two halves, /health/live for supervisors and /health/ready for load balancers; and /metrics."""

import msgspec

from penstock import __version__
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Answer, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.negotiation import preferred
from penstock.gateway.shared.access import CLUSTER, DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.exposition import OPEN_METRICS, TEXT
from penstock.gateway.shared.health import (
    ObservedNode,
    Problem,
    cluster_problems,
    disk_usage,
    problems,
    warnings,
)
from penstock.gateway.shared.metrics_page import collect
from penstock.handlers.support.context import ANONYMOUS
from penstock.metadata.acls import CLUSTER_NAME, Operation

OK, DEGRADED, UNAVAILABLE = "ok", "degraded", "unavailable"


ROUTES = Routes("operations")

_HEALTH = Rule(shows=(DESCRIBE_CLUSTER,), opened_by="http.health.without.login")
"""Without Describe on the cluster, problems have no names of partitions."""


class Live(msgspec.Struct):
    """Sent whenever the node answers at all."""

    status: str


class Ready(msgspec.Struct):
    status: str
    """`ok` or `unavailable`."""
    problems: list[Problem]
    """What keeps this node from its work."""


class Health(msgspec.Struct):
    """This node, and its cluster as this node sees it."""

    status: str
    """`ok`; `unavailable` if this node has `problems`; `degraded` if only its cluster has problems."""
    cluster_id: str
    node_id: int
    version: str
    uptime_ms: int
    problems: list[Problem]
    """Of this node: it is not ready, and the status code is 503."""
    cluster_problems: list[Problem]
    """Of other brokers, and of partitions wherever they are. The status code stays 200."""
    warnings: list[Problem]
    """What an operator should know. Warnings do not change `status`."""


@ROUTES.add(
    "GET",
    "/health",
    "Health of this node and of its cluster. 503 if this node is not ready; 200 with status `degraded` if another "
    "broker is down or partitions lack replicas.",
    answer=Health,
    errors=(503,),
    rule=_HEALTH,
)
def health(node: ObservedNode, request: Request) -> Steps[Answer]:
    context = node.context
    here = _shown(node, request, (yield from problems(node)))
    around = _shown(node, request, (yield from cluster_problems(context)))
    uptime_ns = context.world.clock_ns() - context.metrics.started_ns
    answer = Health(
        UNAVAILABLE if here else DEGRADED if around else OK,
        context.cluster_id,
        context.node_id,
        __version__,
        uptime_ns // 1_000_000,
        here,
        around,
        _shown(node, request, warnings(node)),
    )
    return _answer(answer, here)


@ROUTES.add("GET", "/health/live", "Liveness: 200 whenever the node answers.", answer=Live, rule=_HEALTH)
def live(_node: ObservedNode, _: Request) -> Answer:
    return json(Live(OK))


@ROUTES.add(
    "GET",
    "/health/ready",
    "Readiness: 200 if this node can do all of its work, otherwise 503 with the reasons.",
    answer=Ready,
    errors=(503,),
    rule=_HEALTH,
)
def ready(node: ObservedNode, request: Request) -> Steps[Answer]:
    found = _shown(node, request, (yield from problems(node)))
    return _answer(Ready(UNAVAILABLE if found else OK, found), found)


def _shown(node: ObservedNode, request: Request, found: list[Problem]) -> list[Problem]:
    """Messages may name partitions and directories."""
    is_guest = bool(node.http_schemes) and request.session.principal == ANONYMOUS
    is_permitted = node.context.permits(request.session, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    if not found or (is_permitted and not is_guest):
        return found
    return [msgspec.structs.replace(each, message=_HIDDEN) for each in found]


def _answer(answer: Health | Ready, found: list[Problem]) -> Answer:
    """The answer; with a problem of this node also an `error`, as every other error response has it."""
    if not found:
        return json(answer)
    error = {"code": UNAVAILABLE, "message": "; ".join(each.message for each in found)}
    return json({"error": error, **msgspec.structs.asdict(answer)}, 503)


_HIDDEN = "log in with Describe on the cluster to see more"

_METRICS_FORMATS = (TEXT, OPEN_METRICS)


@ROUTES.add(
    "GET",
    "/metrics",
    "Metrics of this node in Prometheus text format or OpenMetrics.",
    query=(Query("partitions", bool, "Include metrics of each partition.", default=False),),
    content_types=_METRICS_FORMATS,
    rule=Rule((DESCRIBE_CLUSTER,), opened_by="http.metrics.without.login"),
)
def metrics(node: ObservedNode, request: Request) -> Steps[Answer]:
    wanted = preferred(request.headers.get("accept", ""), _METRICS_FORMATS)
    page = yield from collect(
        node.context,
        disk_usage(node.directory),
        is_open=wanted == OPEN_METRICS,
        by_partition=request.query["partitions"],
    )
    return Response(200, page.encoded(), page.content_type)
