"""Log lines that clients and other nodes can cause: at most one in ten seconds, with the number of those left out."""

import logging
from typing import Final

from penstock.base.world import World

LOG_INTERVAL_NS: Final = 10_000_000_000


class LogLimit:
    """One kind of line."""

    __slots__ = ("_logged_ns", "_omitted", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._logged_ns: int | None = None
        """Time of the last line."""
        self._omitted = 0

    def warning(self, logger: logging.Logger, message: str, *values: object) -> None:
        self._log(logger, logging.WARNING, message, values)

    def error(self, logger: logging.Logger, message: str, *values: object) -> None:
        self._log(logger, logging.ERROR, message, values)

    def _log(self, logger: logging.Logger, level: int, message: str, values: tuple[object, ...]) -> None:
        now_ns = self._world.clock_ns()
        if self._logged_ns is not None and now_ns - self._logged_ns < LOG_INTERVAL_NS:
            self._omitted += 1
            return
        more = f"; {self._omitted} more since the last line" if self._omitted else ""
        self._logged_ns, self._omitted = now_ns, 0
        logger.log(level, f"{message}%s", *values, more)
