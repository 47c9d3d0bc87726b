"""GET /health and its two halves, for people, load balancers, and whoever restarts what does not live."""

import msgspec

from penstock import __version__
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Answer, Request, Route, json
from penstock.gateway.shared.health import Operated, Problem, problems, warnings

OK, UNAVAILABLE = "ok", "unavailable"


class Live(msgspec.Struct):
    status: str


class Ready(msgspec.Struct):
    status: str
    """`ok` or `unavailable`."""
    problems: list[Problem]


class Health(msgspec.Struct):
    status: str
    """`ok` or `unavailable`."""
    cluster_id: str
    node_id: int
    version: str
    uptime_ms: int
    problems: list[Problem]
    warnings: list[Problem]
    """What does not count against `status`."""


def health(node: Operated, _: Request) -> Steps[Answer]:
    context = node.context
    found = yield from problems(node)
    up_ns = context.world.clock_ns() - context.metrics.started_ns
    answer = Health(
        UNAVAILABLE if found else OK,
        context.cluster_id,
        context.node_id,
        __version__,
        up_ns // 1_000_000,
        found,
        warnings(node),
    )
    return _answer(answer, found)


def live(_node: Operated, _: Request) -> Answer:
    return json(Live(OK))


def ready(node: Operated, _: Request) -> Steps[Answer]:
    found = yield from problems(node)
    return _answer(Ready(UNAVAILABLE if found else OK, found), found)


def _answer(answer: Health | Ready, found: list[Problem]) -> Answer:
    """The same whatever is found; and where something is, an error as all others are, too."""
    if not found:
        return json(answer)
    error = {"code": UNAVAILABLE, "message": "; ".join(each.message for each in found)}
    return json({"error": error, **msgspec.structs.asdict(answer)}, 503)


ROUTES = (
    Route(
        "GET",
        "/health",
        health,
        "operations",
        "Who this node is, and what is wrong with it; 503 if anything is.",
        answer=Health,
        errors=(503,),
    ),
    Route("GET", "/health/live", live, "operations", "Whether the node lives.", answer=Live),
    Route(
        "GET",
        "/health/ready",
        ready,
        "operations",
        "Whether the node can do all of its work; 503 with the reasons if not.",
        answer=Ready,
        errors=(503,),
    ),
)
