"""Decides whether a client may send a request, by the rule of its route; and again while the request takes long.

A read ends when the client's ACL, user or token is taken away, and when its token expires. A write is finished.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.base.errors import KafkaError
from penstock.base.world import Timer
from penstock.gateway.http.protocol.messages import HttpError, Request, Route
from penstock.gateway.shared.access import check, is_still_allowed
from penstock.gateway.shared.login import Login, LoginRefused

if TYPE_CHECKING:
    from penstock.gateway.http.server import HttpServer

logger = logging.getLogger(__name__)


class RequestGuard:
    """Of one connection, which has one request in progress."""

    __slots__ = ("_asked", "_expiry", "_give_up", "_server")

    def __init__(self, server: "HttpServer", give_up: Callable[[], None]) -> None:
        """`give_up` is called when the request in progress must end."""
        self._server = server
        self._give_up = give_up
        self._asked: tuple[Route, Request, Login | None] | None = None
        """What is decided about again, and by whom it was asked."""
        self._expiry: Timer | None = None
        """Runs until the log-in expires."""

    def begin(self, route: Route, request: Request, login: Login | None, *, is_reading: bool) -> None:
        """Raise if the client is not authorized; `login` is None if it did not log in."""
        server, rule = self._server, route.rule
        if rule is None:
            raise HttpError(
                403, "no_rule", f"{route.method} {route.path} has no rule that allows it to anyone"
            )
        if server.is_open(rule):
            return
        check(server.context, request.session, rule.needs, request.names)
        if is_reading:
            self._asked = route, request, login
            server.rechecks.add(self._check_again)
            if login is not None and login.expires_ms is not None:
                left_ms = max(login.expires_ms - server.context.world.now_ms(), 0)
                self._expiry = server.context.world.call_later(left_ms + 1, self._check_again)

    def end(self) -> None:
        """The request has ended."""
        if self._asked is not None:
            self._asked = None
            self._server.rechecks.remove(self._check_again)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _check_again(self) -> None:
        if self._asked is None:
            return
        route, request, login = self._asked
        context = self._server.context
        assert route.rule is not None
        try:
            if login is not None and not login.is_current(context.world.now_ms()):
                raise LoginRefused("the user was changed or removed, or the token has expired")
            if not is_still_allowed(context, request.session, route.rule.needs, request.names):
                check(context, request.session, route.rule.needs, request.names)
        except KafkaError as error:
            logger.info("a request of %s ends: %s", request.session.principal, error)
            self._give_up()
