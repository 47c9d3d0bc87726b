"""How long the event loop was held, and by what: while it is, no client is served.

Whoever runs something on the loop measures it and tells what took longer than HELD_NS: requests by their API, clients
of other doors by the door, timers and the ends of work beside the loop by the function that was called. Nothing is
noted of what took less, so that this costs a comparison.
"""

import logging
from typing import Final

logger = logging.getLogger(__name__)

HELD_NS: Final = 20_000_000
"""The longest that anything a client sends should hold the loop."""

LOGGED_NS: Final = 1_000_000_000
"""What held the loop for so long gets a line in the log; a busy machine, or a module that is loaded, does for less."""

LINE_NS_MIN: Final = 10_000_000_000
"""Between two lines in the log."""


class Held:
    """What one kind of work has done."""

    __slots__ = ("longest_ns", "sum_ns", "times")

    def __init__(self) -> None:
        self.times = 0
        self.sum_ns = self.longest_ns = 0


class LoopWatch:
    """One for a node."""

    def __init__(self) -> None:
        self.by: dict[str, Held] = {}
        """By what held the loop: as many as there are APIs, doors and functions."""
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
        if took_ns < LOGGED_NS:
            return
        if now_ns - self._said_ns < LINE_NS_MIN:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more times since the last such line" if self._unsaid else ""
        logger.warning(
            "%s held the event loop for %d ms, expected %d ms at most: no client was served meanwhile%s",
            by,
            took_ns // 1_000_000,
            HELD_NS // 1_000_000,
            more,
        )
        self._said_ns, self._unsaid = now_ns, 0
