"""Logs final errors: the operator of a client that gave up finds the reason in the broker's log.

A client that gets one of these errors for a whole request does not retry, and often shows only the error's name. Each
API and error is logged at most once in ten seconds, with the number of errors since the last line.
"""

import logging
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.world import World
from penstock.handlers.support.context import Call
from penstock.wire import Api

logger = logging.getLogger(__name__)

SAY_AGAIN_NS: Final = 10_000_000_000

FINAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors that clients neither retry nor expect in normal operation."""


class Refusals:
    """Rate-limits the log lines by API and error."""

    __slots__ = ("_said", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._said: dict[tuple[Api, int], tuple[int, int]] = {}
        """The time of the last line, and the number of errors since."""

    def look_at(self, api: Api, call: Call, response: Any) -> None:
        """Log a response with a final error for the whole request."""
        code = getattr(response, "error_code", 0)
        if not code or code not in FINAL:
            return
        now_ns = self._world.clock_ns()
        said_ns, count = self._said.get((api, int(code)), (None, 0))
        if said_ns is not None and now_ns - said_ns < SAY_AGAIN_NS:
            self._said[api, int(code)] = said_ns, count + 1
            return
        self._said[api, int(code)] = now_ns, 0
        logger.warning(
            "%s %d from %s (client id %r) is refused with %s%s%s",
            api.label,
            call.version,
            call.session.peer,
            (call.client_id or "")[:100],
            ErrorCode(int(code)).name,
            f": {message}" if (message := getattr(response, "error_message", None)) else "",
            f"; {count} more like it since the last line" if count else "",
        )
