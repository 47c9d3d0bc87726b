"""/session: who the caller is, and what the console may do here.

The console asks `GET /session` before anything else. It is answered before a log-in too, and then says only whether
one is needed and with what: nothing about the node.
"""

from typing import Any

import msgspec

from penstock import __version__
from penstock.gateway.http.protocol.messages import Request, Response, Routes, json
from penstock.gateway.shared.access import ANYONE
from penstock.gateway.shared.console_mode import console_mode
from penstock.handlers.support.context import ANONYMOUS, Context

ROUTES = Routes("session")

PASSWORD, OIDC, CERTIFICATE = "password", "oidc", "certificate"


class SessionInfo(msgspec.Struct):
    principal: str | None
    """Who the caller is, such as `User:alice`; null before a log-in."""
    mode: str
    """`console.mode`: `full`, `read-only` or `off`."""
    login_required: bool
    """Whether this node asks its clients to log in."""
    schemes: list[str]
    """How the caller can log in at the console: `password`, `oidc`; `certificate` if its certificate has named it."""
    node_id: int | None = None
    cluster_id: str | None = None
    version: str | None = None
    """Of this node; null before a log-in."""


@ROUTES.add(
    "GET",
    "/session",
    "Who the caller is, how to log in, and the console's mode. Answered before a log-in too.",
    answer=SessionInfo,
    rule=ANYONE,
)
def _show(gateway: Any, request: Request) -> Response:
    return json(describe(gateway, request))


def describe(gateway: Any, request: Request) -> SessionInfo:
    """The caller, as it is known at this request."""
    context: Context = gateway.context
    principal: str | None = request.session.principal
    login_required = bool(gateway.http_schemes)
    schemes = [PASSWORD] if "basic" in gateway.http_schemes else []
    if not login_required and principal != ANONYMOUS:
        schemes.append(CERTIFICATE)
    mode = console_mode(context)
    if login_required and principal == ANONYMOUS:
        return SessionInfo(None, mode, login_required, schemes)
    return SessionInfo(
        principal, mode, login_required, schemes, context.node_id, context.cluster_id, __version__
    )
