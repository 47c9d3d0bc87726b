"""When to look at which transactional id: at most one moment for each, however often transactions begin.

Most transactions end long before they time out. An alarm is therefore not moved when its transaction ends or the next
begins: it rings when it was set to, and whoever hears it looks at what is true then, and sets it anew.
"""

from heapq import heappop, heappush

from penstock.base.ids import TimestampMs


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[TimestampMs, str]] = []
        self._at_ms: dict[str, TimestampMs] = {}
        """The one alarm of each name; what else the heap has for it is passed over."""

    def __len__(self) -> int:
        return len(self._at_ms)

    def wake(self, name: str, at_ms: TimestampMs) -> None:
        """Look at this name then, or earlier."""
        set_ms = self._at_ms.get(name)
        if set_ms is None or at_ms < set_ms:
            self._at_ms[name] = at_ms
            heappush(self._heap, (at_ms, name))

    def due(self, now_ms: TimestampMs) -> list[str]:
        """Whose moment has come; each has no alarm any more."""
        names = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heappop(self._heap)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                names.append(name)
        return names

    def next_ms(self) -> TimestampMs | None:
        """When `due` may have something; None where it never will."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()
        self._at_ms.clear()
