"""All routes of the HTTP API, and the two that describe it."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from penstock.base.steps import Steps
from penstock.gateway.http import (
    acls,
    cluster,
    configs,
    console,
    consuming,
    copying,
    docs_page,
    events,
    explorer,
    group_offsets,
    groups,
    history,
    labs,
    one_record,
    operations,
    overview,
    pipelines,
    produce,
    quotas,
    reassignments,
    records,
    search,
    security,
    session,
    session_oidc,
    tail,
    tokens,
    topic_list,
    topics,
    transactions,
    users,
)
from penstock.gateway.http.protocol import openapi
from penstock.gateway.http.protocol.messages import JSON, Request, Response, Route, Routes
from penstock.gateway.shared.access import ANY_USER, ANYONE


def all_routes() -> Sequence[Route]:
    """All routes, in the order of the description."""
    return (
        *produce.ROUTES,
        *consuming.ROUTES,
        *topic_list.ROUTES,
        *topics.ROUTES,
        *records.ROUTES,
        *one_record.ROUTES,
        *copying.ROUTES,
        *search.ROUTES,
        *tail.ROUTES,
        *configs.ROUTES,
        *groups.ROUTES,
        *group_offsets.ROUTES,
        *pipelines.ROUTES,
        *transactions.ROUTES,
        *cluster.ROUTES,
        *reassignments.ROUTES,
        *users.ROUTES,
        *acls.ROUTES,
        *quotas.ROUTES,
        *tokens.ROUTES,
        *security.ROUTES,
        *overview.ROUTES,
        *history.ROUTES,
        *events.ROUTES,
        *explorer.ROUTES,
        *operations.ROUTES,
        *labs.ROUTES,
        *session.ROUTES,
        *session_oidc.ROUTES,
        *ROUTES,
    )


@cache
def _description(schemes: Sequence[str]) -> bytes:
    return openapi.describe(all_routes(), schemes)


_page: list[bytes] = []
"""The page at /docs, after its first request."""


ROUTES = Routes("about")
FRONT = Routes("about")
"""`/` redirects a browser to the console. It and the console's files are not part of the described API."""
FRONT += console.ROUTES


@ROUTES.add("GET", "/openapi.json", "The API as an OpenAPI 3.1 document.", answer=dict, rule=ANY_USER)
def _openapi(gateway: Any, _request: Request) -> Response:
    return Response(200, _description(gateway.http_schemes))


@ROUTES.add("GET", "/docs", "This page.", content_types=(docs_page.HTML,), rule=ANY_USER)
def _docs(gateway: Any, _request: Request) -> Steps[Response]:
    if not _page:
        meanings = yield from docs_page.field_meanings(all_routes(), gateway.context.world)
        _page.append(docs_page.page(all_routes(), meanings))
    return Response(200, _page[0], docs_page.HTML, (("Content-Security-Policy", docs_page.POLICY),))


@FRONT.add(
    "GET",
    "/",
    "Redirects browsers to /console/, or to /docs if there is no console.",
    status=307,
    content_types=(docs_page.HTML, JSON),
    rule=ANYONE,
)
def _to_page(gateway: Any, _request: Request) -> Response:
    place = "/console/" if console.is_on(gateway.context) else "/docs"
    return Response(307, b"", docs_page.HTML, headers=(("Location", place),))
