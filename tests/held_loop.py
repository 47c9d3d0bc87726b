"""How much work a node does on its event loop without a break, counted in function calls.

A `MeasuredWorld` is a `StillWorld` that counts the calls of each piece of work: each timer that is due, and each
arrival of bytes. Calls, unlike milliseconds, are the same on a slow or busy machine. The node's own clock moves by
`CALL_NS` for each call, so that work which watches the clock stops when it would. What one call does in C (a sync, a
decompression) is not counted.

    holds = Holds()
    node = StillNode(world=MeasuredWorld(holds))
    with holds.measuring("Metadata"):
        ...                               # ask, and wait for the reply
    holds.longest["Metadata"]
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from tests.nodes import StillClient
from tests.worlds import StillWorld

CALL_NS: Final = 150
"""What a call takes on an ordinary machine, with the lines around it."""


class Holds:
    def __init__(self) -> None:
        self.longest: dict[str, int] = {}
        """The calls of the longest piece, by what was measured."""
        self.total: dict[str, int] = {}
        """The calls of all pieces."""
        self.where: dict[str, str] = {}
        """Which piece was the longest."""
        self.calls = 0
        """Made in all pieces so far."""
        self._name: str | None = None

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        self.longest[name] = self.total[name] = 0
        self._name = name
        try:
            yield
        finally:
            self._name = None

    def piece(self, call: Callable[[], None], what: str = "") -> None:
        before = self.calls
        sys.setprofile(self._count)
        try:
            call()
        finally:
            sys.setprofile(None)
        name, made = self._name, self.calls - before
        if name is not None:
            self.total[name] += made
            if made > self.longest[name]:
                self.longest[name] = made
                self.where[name] = what or getattr(call, "__qualname__", repr(call))

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


class MeasuredWorld(StillWorld):
    def __init__(self, holds: Holds, seed: int = 0) -> None:
        super().__init__(seed)
        self.holds = holds

    def clock_ns(self) -> int:
        return super().clock_ns() + self.holds.calls * CALL_NS

    def step(self) -> bool:
        due_ms = self.next_due_ms
        if due_ms is None:
            return False
        timer = self._heap[0]
        call = timer.call
        assert call is not None
        if not timer.is_work:
            timer.call = lambda: self.holds.piece(call)
        return super().step()


class MeasuredClient(StillClient):
    """What arrives in one go is a piece."""

    def feed(self, data: bytes) -> None:
        world = self.node.world
        assert isinstance(world, MeasuredWorld)
        world.holds.piece(lambda: super(MeasuredClient, self).feed(data), "arrival")
