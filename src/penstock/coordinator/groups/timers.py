"""Named timers for a coordinator without a clock: `due(now_ms)` returns the next callback.

Heartbeats move deadlines some thousand times a second, so moving is cheap: only the new deadline is stored, and the
entry in the heap is put back when it comes up too early. Each name has one entry.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

Name = tuple[str, ...]
T = TypeVar("T")


class GroupTimers(Generic[T]):
    __slots__ = ("_heap", "_queued", "_sequence", "_set")

    def __init__(self) -> None:
        self._set: dict[Name, tuple[int, Callable[[], T]]] = {}
        self._queued: dict[Name, int] = {}
        """The earliest deadline in the heap of each name that has one there. Never after the deadline in force."""
        self._heap: list[tuple[int, int, Name]] = []
        self._sequence = 0
        """Orders timers of the same deadline by when they were set."""

    def __contains__(self, name: Any) -> bool:
        return name in self._set

    def schedule(self, name: Name, at_ms: int, call: Callable[[], T]) -> None:
        """Call this at a time. Replaces the timer of the same name."""
        self._set[name] = (at_ms, call)
        queued = self._queued.get(name)
        if queued is None or at_ms < queued:
            self._push(name, at_ms)

    def hasten(self, name: Name, at_ms: int) -> None:
        """Move a timer to an earlier time, if it exists."""
        if name in self._set:
            self.schedule(name, at_ms, self._set[name][1])

    def cancel(self, name: Name) -> None:
        self._set.pop(name, None)

    def clear(self) -> None:
        self._set.clear()
        self._queued.clear()
        self._heap.clear()

    def next_deadline_ms(self) -> int | None:
        self._tidy()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Callable[[], T] | None:
        """Remove and return the earliest callback that is due."""
        self._tidy()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        name = heappop(self._heap)[2]
        del self._queued[name]
        return self._set.pop(name)[1]

    def _push(self, name: Name, at_ms: int) -> None:
        self._sequence += 1
        self._queued[name] = at_ms
        heappush(self._heap, (at_ms, self._sequence, name))

    def _tidy(self) -> None:
        """Drop or move outdated entries until the first one is in force."""
        while self._heap:
            at_ms, _, name = self._heap[0]
            if self._queued.get(name) != at_ms:
                heappop(self._heap)  # an earlier entry of the same name has been handled
                continue
            timer = self._set.get(name)
            if timer is not None and timer[0] == at_ms:
                return
            heappop(self._heap)
            del self._queued[name]
            if timer is not None:
                self._push(name, timer[0])
