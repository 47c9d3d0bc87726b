"""Threads that wait for the disk: whoever has nothing to do is handed the next piece of work.

Each has a queue of its own. With one for all, a piece of work wakes two of them, the one that gets it and the one that
finds nothing left (`SimpleQueue` passes its lock on), and there are hundreds of syncs a second. Who was busy last is
given work first: it is what the core remembers. A pool of the standard library's costs half as much again for each
piece.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
_Inbox = SimpleQueue[Work | None]


class Threads:
    """They come into being when they are first needed; all but `_serve` is called from one thread."""

    def __init__(self, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._threads: list[threading.Thread] = []
        self._inboxes: list[_Inbox] = []
        self._lock = threading.Lock()
        """Held to look at the next two: a thread is idle only when nothing waits."""
        self._idle: list[_Inbox] = []
        self._waiting: deque[Work] = deque()
        self._is_closed = False

    def run(self, work: Work) -> None:
        """Have work done, now or when a thread is free; it must not raise."""
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._threads) == self._count_max:
                self._waiting.append(work)
                return
            else:
                inbox = self._begin()
        inbox.put(work)

    def close(self) -> None:
        """Wait for what is being done; what waits for a thread is never done."""
        self._is_closed = True
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self) -> _Inbox:
        inbox: _Inbox = SimpleQueue()
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True)
        self._threads.append(thread)
        self._inboxes.append(inbox)
        thread.start()
        return inbox

    def _serve(self, inbox: _Inbox) -> None:
        """The life of a thread."""
        work = inbox.get()
        while work is not None and not self._is_closed:
            work()
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                if work is None:
                    self._idle.append(inbox)
            if work is None:
                work = inbox.get()
