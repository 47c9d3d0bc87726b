"""Bound on the memory that all clients together can make the node keep: partial requests and unread replies.

Each connection reports its bytes once they exceed `UNCOUNTED_BYTES`. Two thresholds apply to the sum:

    0 ........ pressed ................ full (client.buffers.max.bytes)
      1 MB steps  |  64 KB steps           |  one request grows at a time;
                  |                        |  connections that move no bytes are closed

A step is the size of one receive, and of one read-ahead of a reply from disk. So one client that does not read costs a
megabyte, and a thousand of them 64 KB each; clients that read are served in any state. Closing connections enforces
the bound for any number of connections: a closed client reconnects, but a node without memory serves no client.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from penstock.base.world import Timer, World

logger = logging.getLogger(__name__)

BYTES_MAX_DEFAULT: Final = 128 * 2**20
PRESSED_SHARE: Final = 4
"""Steps are small above this fraction of the bound."""
STEP_SHARE: Final = 128
"""The largest step as a fraction of the bound: 1 MB of 128 MB. Larger reads cost the same per byte."""
STEP_SMALL_SHARE: Final = 2048
"""The small step as a fraction of the bound: 64 KB of 128 MB, as asyncio's high-water mark of a transport."""
STEP_SMALL_MIN: Final = 512

AHEAD_BYTES_MAX: Final = 4 << 20
"""Read-ahead for all fetches of one tick; about 2 ms."""

UNCOUNTED_BYTES: Final = 16 * 1024
"""Bytes that a connection may keep without reporting, so that small requests cost no bookkeeping."""

TRIM_MS: Final = 2000
"""Delay before freed memory is returned to the system, because it may be needed again soon."""

LOOK_MS: Final = 1000
"""Interval of checks for idle connections while the memory is full."""
MOVED_BYTES_MIN: Final = 64 * 1024
"""Bytes that a connection must move per interval to stay open."""


MOVES: Final = 1 << 62
"""Reported by a connection that the node itself delays, or that has started a new request."""


class Keeper(Protocol):
    """A connection that reports its memory."""

    @property
    def peer(self) -> str: ...

    def moved_bytes(self) -> int:
        """Bytes received or taken since the last call; `MOVES` while the node itself delays the client."""

    def may_grow(self) -> None:
        """There may be room for the request that `ClientMemory.admits` delayed."""

    def abort(self) -> None: ...


class ClientMemory:
    """The sum over all connections of a node."""

    __slots__ = (
        "_favoured",
        "_kept",
        "_pressed_bytes",
        "_step_large",
        "_step_small",
        "_timer",
        "_trim_timer",
        "_waiting",
        "_world",
        "ahead_left",
        "bytes_max",
        "closed",
        "is_pressed",
        "step",
        "total",
        "trim",
    )

    def __init__(self, world: World, bytes_max: int = BYTES_MAX_DEFAULT) -> None:
        self._world = world
        self.bytes_max = bytes_max
        self._pressed_bytes = bytes_max // PRESSED_SHARE
        self._step_small = max(bytes_max // STEP_SMALL_SHARE, STEP_SMALL_MIN)
        self._step_large = max(bytes_max // STEP_SHARE, self._step_small)
        self.step = self._step_large
        """Bytes per receive or read-ahead of one connection."""
        self.is_pressed = False
        self.ahead_left = AHEAD_BYTES_MAX
        """Bytes that this tick may still read ahead in large steps."""
        self.total = 0
        """Sum of the reported bytes."""
        self.closed = 0
        """Connections closed because they held memory and moved no bytes."""
        self._kept: dict[Keeper, int] = {}
        self._waiting: dict[Keeper, None] = {}
        """Connections whose request waits for memory, in the order of waiting."""
        self._favoured: Keeper | None = None
        """The connection whose request may grow although the memory is full, until the request is complete."""
        self._timer: Timer | None = None
        self.trim: Callable[[], None] | None = None
        """Returns freed memory to the system; called on a thread after the memory was pressed."""
        self._trim_timer: Timer | None = None

    def keeps(self, keeper: Keeper, bytes_kept: int) -> None:
        """Set the bytes that a connection keeps; 0 for a negligible number."""
        before = self._kept.get(keeper, 0)
        if bytes_kept == before:
            return
        if bytes_kept:
            self._kept[keeper] = bytes_kept
        else:
            del self._kept[keeper]
            self._waiting.pop(keeper, None)
        self.total += bytes_kept - before
        if (self.total > self._pressed_bytes) is not self.is_pressed:
            self._press(not self.is_pressed)
        if self.total > self.bytes_max:
            self._look_later()
        if bytes_kept < before:
            if keeper is self._favoured:
                self._favoured = None
            if self._waiting and (self._favoured is None or self.total <= self.bytes_max):
                self._let_grow()

    def read_ahead(self) -> int:
        """Bytes of a fetch to read ahead. The caller subtracts them from `ahead_left`."""
        return self.step if self.ahead_left > 0 else self._step_small

    def admits(self, keeper: Keeper) -> bool:
        """Whether a request may take more memory; if not, `may_grow` is called later. One request always may, so that
        requests that are too large together are completed one after the other."""
        if self.total <= self.bytes_max or keeper is self._favoured:
            return True
        if self._favoured is None:
            self._favoured = keeper
            return True
        self._waiting[keeper] = None
        return False

    def _let_grow(self) -> None:
        """Let waiting requests try again, in order."""
        waiting, self._waiting = self._waiting, {}
        for keeper in waiting:
            keeper.may_grow()  # calls `admits` again

    def _press(self, is_pressed: bool) -> None:
        self.is_pressed = is_pressed
        self.step = self._step_small if is_pressed else self._step_large
        if not is_pressed and self.trim is not None and self._trim_timer is None:
            self._trim_timer = self._world.call_later(TRIM_MS, self._trim)

    def _trim(self) -> None:
        self._trim_timer = None
        if not self.is_pressed and self.trim is not None:
            self._world.beside(self.trim, lambda _, __: None)

    # -- full -------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._timer is None:
            for keeper in self._kept:
                keeper.moved_bytes()
            self._timer = self._world.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        """Close connections that move no bytes, largest first, until there is room."""
        self._timer = None
        if self.total <= self.bytes_max:
            return
        idle = [each for each in self._kept if each.moved_bytes() < MOVED_BYTES_MIN]
        idle.sort(key=self._kept.__getitem__, reverse=True)
        closed = 0
        first = idle[0].peer if idle else ""
        for keeper in idle:
            if self.total <= self.bytes_max:
                break
            self.keeps(keeper, 0)
            keeper.abort()
            closed += 1
        if closed:
            self.closed += closed
            logger.warning(
                "closed %d connections, including that of %s: their clients neither took replies nor completed "
                "requests, and the memory for all clients exceeded client.buffers.max.bytes, %d",
                closed,
                first,
                self.bytes_max,
            )
        if self.total > self.bytes_max:
            self._look_later()
