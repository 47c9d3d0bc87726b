"""All routes: what each module serves, and the description of it."""

import logging
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from penstock.gateway.http import docs_page, openapi
from penstock.gateway.http.messages import Request, Response, Route

MODULES = (
    "produce",
    "consuming",
    "topics",
    "records",
    "tail",
    "configs",
    "groups",
    "cluster",
    "explorer",
    "health",
    "metrics",
)
"""In the order in which they are described. Each has `ROUTES`."""


@cache
def all_routes() -> Sequence[Route]:
    found: list[Route] = []
    for name in MODULES:
        module = f"{__package__}.{name}"
        if find_spec(module) is not None:
            try:
                found += import_module(module).ROUTES
            except Exception:  # TEMPORARY, while the modules are being written
                logging.getLogger(__name__).exception("%s", module)
    return (*found, *ROUTES)


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
