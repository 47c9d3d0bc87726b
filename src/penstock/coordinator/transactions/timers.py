"""One timer for each transactional id, however often transactions begin.

Most transactions end long before they time out, so a timer is not moved when its transaction ends or the next begins:
it fires at its time, and the coordinator then checks the current state and sets the next one.
"""

from heapq import heappop, heappush

from penstock.base.ids import TimestampMs


class TransactionTimers:
    def __init__(self) -> None:
        self._heap: list[tuple[TimestampMs, str]] = []
        self._at_ms: dict[str, TimestampMs] = {}
        """The timer of each name; other entries of the heap are outdated."""

    def __len__(self) -> int:
        return len(self._at_ms)

    def wake(self, name: str, at_ms: TimestampMs) -> None:
        """Set the timer of this name, unless an earlier one is set."""
        set_ms = self._at_ms.get(name)
        if set_ms is None or at_ms < set_ms:
            self._at_ms[name] = at_ms
            heappush(self._heap, (at_ms, name))

    def due(self, now_ms: TimestampMs) -> list[str]:
        """Remove and return the names whose timers are due."""
        names = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heappop(self._heap)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                names.append(name)
        return names

    def next_ms(self) -> TimestampMs | None:
        """When `due` may return something; None if no timer is set."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()
        self._at_ms.clear()
