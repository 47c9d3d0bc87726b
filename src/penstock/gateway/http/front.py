"""`/`: for whoever opens the server in a browser, the way to what there is. It is no part of the API, and is not
described with it."""

from penstock.gateway.http.docs_page import HTML
from penstock.gateway.http.protocol.messages import JSON, Request, Response, Route


def _to_docs(_gateway: object, _request: Request) -> Response:
    return Response(307, b"", HTML, headers=(("Location", "/docs"),))


ROUTES = (
    Route(
        "GET",
        "/",
        _to_docs,
        "about",
        "Where this API is described for people.",
        status=307,
        content_types=(HTML, JSON),
    ),
)
