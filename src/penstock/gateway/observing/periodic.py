"""Repeats work at multiples of an interval of the wall clock, so that all brokers do it at about the same time."""

import logging
from collections.abc import Callable

from penstock.base.ids import TimestampMs
from penstock.base.steps import RunningSteps, Steps
from penstock.base.world import Timer, World

logger = logging.getLogger(__name__)


def slot_ms(now_ms: TimestampMs, interval_ms: int) -> TimestampMs:
    """The multiple of the interval that is nearest: timers run a little early or late."""
    return (now_ms + interval_ms // 2) // interval_ms * interval_ms


def until_next_ms(now_ms: TimestampMs, interval_ms: int) -> int:
    """How long to wait after a sample, half an interval at least."""
    wait_ms = interval_ms - now_ms % interval_ms
    return wait_ms if wait_ms >= interval_ms // 2 else wait_ms + interval_ms


class Periodic:
    """Work that is still running when it is due again is not begun again."""

    def __init__(self, world: World, interval_ms: int, work: Callable[[], Steps[None]], what: str) -> None:
        """`what` names the work in the log, if it fails."""
        self._world = world
        self._interval_ms = interval_ms
        self._work = work
        self._what = what
        self._timer: Timer | None = None
        self._running: RunningSteps[None] | None = None

    def run(self) -> None:
        """Work now, and from now on."""
        if self._running is None or self._running.is_over:
            self._running = RunningSteps(self._work(), lambda _: None, self._failed)
        self._timer = self._world.call_later(until_next_ms(self._world.now_ms(), self._interval_ms), self.run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            self._running.cancel()

    def _failed(self, error: Exception) -> None:
        logger.error("%s failed", self._what, exc_info=error)
