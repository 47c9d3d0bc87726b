"""Records what holds the event loop: while it is held, no client is served.

Callers measure their work and report what took longer than HELD_NS: requests by API, clients of other doors by door,
timers and callbacks by function. Shorter work is not recorded and costs one comparison.
"""

import logging
from typing import Final

logger = logging.getLogger(__name__)

HELD_NS: Final = 20_000_000
"""The longest that a client's request should hold the loop."""

LOGGED_NS: Final = 1_000_000_000
"""Longer work is logged. A busy machine or the import of a module can cause shorter delays."""

LINE_NS_MIN: Final = 10_000_000_000
"""Minimum time between two log lines."""


class Held:
    """Totals of one kind of work."""

    __slots__ = ("longest_ns", "sum_ns", "times")

    def __init__(self) -> None:
        self.times = 0
        self.sum_ns = self.longest_ns = 0


class LoopWatch:
    """One for a node."""

    def __init__(self) -> None:
        self.by: dict[str, Held] = {}
        """By API, door or function."""
        self._recent_ns = 0
        self._said_ns = -LINE_NS_MIN
        self._unsaid = 0

    def held(self, by: str, took_ns: int, now_ns: int) -> None:
        """Something took longer than HELD_NS."""
        found = self.by.get(by)
        if found is None:
            found = self.by[by] = Held()
        found.times += 1
        found.sum_ns += took_ns
        found.longest_ns = max(found.longest_ns, took_ns)
        self._recent_ns = max(self._recent_ns, took_ns)
        if took_ns < LOGGED_NS:
            return
        if now_ns - self._said_ns < LINE_NS_MIN:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more times since the last such log line" if self._unsaid else ""
        logger.warning(
            "%s held the event loop for %d ms, expected %d ms at most: no client was served meanwhile%s",
            by,
            took_ns // 1_000_000,
            HELD_NS // 1_000_000,
            more,
        )
        self._said_ns, self._unsaid = now_ns, 0

    def take_recent_ns(self) -> int:
        """The longest time that the loop was held since the last call; 0 if it was not."""
        recent_ns, self._recent_ns = self._recent_ns, 0
        return recent_ns
