"""All routes: what each module serves, and the description of it."""

from collections.abc import Sequence
from functools import cache

from penstock.gateway.http import (
    cluster,
    configs,
    consuming,
    docs_page,
    explorer,
    groups,
    health,
    metrics,
    produce,
    records,
    tail,
    topics,
)
from penstock.gateway.http.protocol import openapi
from penstock.gateway.http.protocol.messages import Request, Response, Route


def all_routes() -> Sequence[Route]:
    """In the order in which they are described."""
    return (
        *produce.ROUTES,
        *consuming.ROUTES,
        *topics.ROUTES,
        *records.ROUTES,
        *tail.ROUTES,
        *configs.ROUTES,
        *groups.ROUTES,
        *cluster.ROUTES,
        *explorer.ROUTES,
        *health.ROUTES,
        *metrics.ROUTES,
        *ROUTES,
    )


@cache
def _description() -> bytes:
    return openapi.describe(all_routes())


@cache
def _page() -> bytes:
    return docs_page.page(all_routes())


def _openapi(_gateway: object, _request: Request) -> Response:
    return Response(200, _description())


def _docs(_gateway: object, _request: Request) -> Response:
    return Response(200, _page(), docs_page.HTML)


ROUTES = (
    Route(
        "GET",
        "/openapi.json",
        _openapi,
        "about",
        "This API, described in OpenAPI 3.1.",
        answer=dict,
    ),
    Route(
        "GET",
        "/docs",
        _docs,
        "about",
        "This API, described for people.",
        content_types=(docs_page.HTML,),
    ),
)
