"""How long a node's event loop is held: the CPU time of each piece of work that runs on it without a break.

A `MeasuredWorld` is a `StillWorld` whose pieces are timed: each call that is due, and each arrival of bytes. CPU time
of the one thread is counted, not time on the wall: other programs on the machine make no difference. The node's own
clock moves by the same CPU time, so that work which watches the clock stops when it would.

    holds = Holds()
    node = StillNode(world=MeasuredWorld(holds))
    with holds.measuring("Metadata"):
        ...                               # ask, and wait for the reply
    holds.longest_ms["Metadata"]
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.nodes import StillClient
from tests.worlds import StillWorld


class Holds:
    def __init__(self) -> None:
        self.longest_ms: dict[str, float] = {}
        """By what was measured: the longest piece."""
        self.pieces: dict[str, int] = {}
        """And how many there were."""
        self.total_ms: dict[str, float] = {}
        self.where: dict[str, str] = {}
        """What the longest piece was."""
        self._name: str | None = None

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        self.longest_ms[name] = self.total_ms[name] = 0.0
        self.pieces[name] = 0
        self._name = name
        try:
            yield
        finally:
            self._name = None

    def piece(self, call: Callable[[], None], what: str = "") -> None:
        began_ns = time.thread_time_ns()
        call()
        took_ms = (time.thread_time_ns() - began_ns) / 1e6
        name = self._name
        if name is not None:
            self.pieces[name] += 1
            self.total_ms[name] += took_ms
            if took_ms > self.longest_ms[name]:
                self.longest_ms[name] = took_ms
                self.where[name] = what or getattr(call, "__qualname__", repr(call))


class MeasuredWorld(StillWorld):
    def __init__(self, holds: Holds, seed: int = 0) -> None:
        super().__init__(seed)
        self.holds = holds

    def clock_ns(self) -> int:
        return super().clock_ns() + time.thread_time_ns()

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
