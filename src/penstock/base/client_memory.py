"""Bound on the memory that all clients together can make the node keep: requests in part, replies not taken.

Each connection reports the bytes that it keeps once they are more than `UNCOUNTED_BYTES`. Two marks act on the sum:

    0 ........ pressed ................ full (client.buffers.max.bytes)
      1 MB steps  |  64 KB steps           |  one request grows at a time;
                  |                        |  connections that neither send nor take their bytes are closed

A step is how much is received at once, and how much of a response is read from the disk ahead of the client. So one
client that does not read costs a megabyte, and a thousand of them 64 KB each; clients that read are served at every
mark. Closing is what makes the bound hold whatever the number of connections is: a client that is closed connects
again, and a node that is out of memory serves nobody.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from penstock.base.world import Timer, World

logger = logging.getLogger(__name__)

BYTES_MAX_DEFAULT: Final = 128 * 2**20
PRESSED_SHARE: Final = 4
"""Steps are small from this part of the bound on."""
STEP_SHARE: Final = 128
"""The largest step is this part of the bound: 1 MB of 128 MB, beyond which a read costs the same for each byte."""
STEP_SMALL_SHARE: Final = 2048
"""The same for small steps: 64 KB of 128 MB, which is also asyncio's high-water mark for a transport."""
STEP_SMALL_MIN: Final = 512

AHEAD_BYTES_MAX: Final = 4 << 20
"""Of all fetches that come together, read before the first of them is answered: about 2 ms."""

UNCOUNTED_BYTES: Final = 16 * 1024
"""What one connection may keep without reporting it, so that small requests and replies cost no bookkeeping."""

TRIM_MS: Final = 2000
"""How long after the memory was pressed what was freed is given back: it may be needed again at once."""

LOOK_MS: Final = 1000
"""How often it is looked, while the memory is full, which connections move nothing."""
MOVED_BYTES_MIN: Final = 64 * 1024
"""What a connection has to move in that time to stay. Slower than any network that replicas or Spark run on."""


MOVES: Final = 1 << 62
"""Bytes that a connection is said to have moved which the node itself holds up, or which has begun something new."""


class Keeper(Protocol):
    """A connection for which bytes are kept."""

    @property
    def peer(self) -> str: ...

    def moved_bytes(self) -> int:
        """Bytes that came or were taken since this was last asked; many where the node itself holds it up."""

    def may_grow(self) -> None:
        """There is room for the request that `ClientMemory.admits` held up."""

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
        """How much is received or read ahead at once, for one connection."""
        self.is_pressed = False
        self.ahead_left = AHEAD_BYTES_MAX
        """What may still be read from the disk in this turn of the loop, in large steps, before it is sent."""
        self.total = 0
        """Bytes kept for all connections that keep more than a little."""
        self.closed = 0
        """Connections closed since the start because they kept memory and moved nothing."""
        self._kept: dict[Keeper, int] = {}
        self._waiting: dict[Keeper, None] = {}
        """Whose requests may not grow for now, the one that waits longest first."""
        self._favoured: Keeper | None = None
        """Whose request grows although the memory is full: until it is finished, or its connection is closed."""
        self._timer: Timer | None = None
        self.trim: Callable[[], None] | None = None
        """Gives memory that was freed back to the system; called, beside the loop, after much was."""
        self._trim_timer: Timer | None = None

    def keeps(self, keeper: Keeper, bytes_kept: int) -> None:
        """Take note of what a connection keeps from now on; 0 for nothing worth counting."""
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
        """How much of a fetch to read before it is sent. Whoever does takes it off `ahead_left`."""
        return self.step if self.ahead_left > 0 else self._step_small

    def admits(self, keeper: Keeper) -> bool:
        """Whether a request may have more memory; if not, `may_grow` is called when it may. One always may, so that
        requests which together are too large are finished one after the other."""
        if self.total <= self.bytes_max or keeper is self._favoured:
            return True
        if self._favoured is None:
            self._favoured = keeper
            return True
        self._waiting[keeper] = None
        return False

    def _let_grow(self) -> None:
        """Let go of those that wait: all where there is room, else one."""
        waiting, self._waiting = self._waiting, {}
        for keeper in waiting:
            keeper.may_grow()  # which asks again, and waits behind the others if it may not

    def _press(self, is_pressed: bool) -> None:
        self.is_pressed = is_pressed
        self.step = self._step_small if is_pressed else self._step_large
        if not is_pressed and self.trim is not None and self._trim_timer is None:
            self._trim_timer = self._world.call_later(TRIM_MS, self._trim)

    def _trim(self) -> None:
        self._trim_timer = None
        if not self.is_pressed and self.trim is not None:
            self._world.beside(self.trim, lambda _, __: None)

    # -- when it is full -------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if self._timer is None:
            for keeper in self._kept:
                keeper.moved_bytes()
            self._timer = self._world.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        """Close connections that move nothing, the largest first, until there is room."""
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
                "%d connections closed, among them that of %s: their clients neither took their replies nor finished "
                "their requests, and what the node kept for all clients was more than client.buffers.max.bytes, %d",
                closed,
                first,
                self.bytes_max,
            )
        if self.total > self.bytes_max:
            self._look_later()
