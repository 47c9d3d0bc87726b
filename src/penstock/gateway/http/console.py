"""Serves the files of the console: `/console/` and everything below it.

Every path below `/console/` that is not below `/console/assets/` is a page, and gets the same document: the page
finds out from its address what to show. The files need no log-in, since they say nothing about the cluster; the calls
that the page makes do.
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps, beside
from penstock.console.assets import Asset, Assets, load
from penstock.gateway.http.protocol.messages import HttpError, Request, Response, Routes
from penstock.gateway.shared.access import ANYONE
from penstock.gateway.shared.console_mode import OFF, console_mode
from penstock.handlers.support.context import Context

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: nothing but files of this server, no inline script or style, no frame around the page."""

_ALWAYS: Final = (
    ("Referrer-Policy", "no-referrer"),
    ("Vary", "Accept-Encoding"),
)
_OF_DOCUMENT: Final = (
    ("Cache-Control", "no-cache"),
    ("Content-Security-Policy", POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    *_ALWAYS,
)
_OF_RELEASE: Final = (("Cache-Control", "public, max-age=31536000, immutable"), *_ALWAYS)

_HTML: Final = "text/html; charset=utf-8"
_ANY_TYPE: Final = (_HTML, "text/javascript", "text/css", "image/svg+xml", "image/png", "application/json")

ROUTES = Routes("console")
"""Not part of the described API."""

_loaded: list[Assets] = []
"""The files, after the first request."""


@ROUTES.add(
    "GET",
    "/console",
    "Redirects to /console/.",
    status=308,
    content_types=(_HTML,),
    ignores_query=True,
    rule=ANYONE,
)
def _slash(gateway: Any, _request: Request) -> Response:
    _check_is_on(gateway.context)
    return Response(308, b"", _HTML, headers=(("Location", "/console/"),))


@ROUTES.add(
    "GET",
    "/console/{path...}",
    "The console.",
    errors=(404,),
    content_types=_ANY_TYPE,
    ignores_query=True,
    rule=ANYONE,
)
def _file(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    _check_is_on(context)
    if not _loaded:
        assets = yield beside(context.world, load, _unreadable)
        _loaded[:] = [assets]
    [assets] = _loaded
    folder, _, rest = request.path["path"].partition("/")
    if folder != "assets":
        return _response(assets.document, request, _OF_DOCUMENT)
    release, _, name = rest.partition("/")
    asset = assets.by_name.get(name)
    if asset is None or release != assets.release:
        raise HttpError(
            404,
            "no_such_file",
            "this node has another release of the console. Reload the page."
            if asset is not None
            else "the console has no such file",
        )
    return _response(asset, request, _OF_RELEASE)


def is_on(context: Context) -> bool:
    return console_mode(context) != OFF


def _check_is_on(context: Context) -> None:
    if not is_on(context):
        raise HttpError(
            404, "console_is_off", "the console is off on this node (console.mode=off); see /docs"
        )


def _unreadable(error: Exception) -> KafkaError:
    return KafkaError(f"the files of the console cannot be read: {error}", ErrorCode.UNKNOWN_SERVER_ERROR)


def _response(asset: Asset, request: Request, headers: tuple[tuple[str, str], ...]) -> Response:
    is_gzipped = bool(asset.gzipped) and _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{asset.tag}{"-gzip" if is_gzipped else ""}"'
    headers = (("ETag", tag), *headers)
    known = request.headers.get("if-none-match", "")
    if known == "*" or tag in (each.strip().removeprefix("W/") for each in known.split(",", 16)):
        return Response(304, headers=headers)
    if is_gzipped:
        return Response(200, asset.gzipped, asset.content_type, (("Content-Encoding", "gzip"), *headers))
    return Response(200, asset.body, asset.content_type, headers)


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` names gzip, and not with quality 0."""
    for each in accepted.split(",", 16):
        name, *parameters = (word.strip().lower().replace(" ", "") for word in each.split(";"))
        if name == "gzip":
            return not any(word.startswith("q=0") and not word.strip("q=0.") for word in parameters)
    return False
