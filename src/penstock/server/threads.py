"""A small thread pool for blocking disk calls.

Each thread has its own queue. A shared `SimpleQueue` would wake two threads per item, one of which finds nothing, and
there are hundreds of syncs a second. Work goes to the thread that was busy last, whose data is still in the CPU cache.
The standard library's `ThreadPoolExecutor` costs half as much again per item.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
_Inbox = SimpleQueue[Work | None]


class Threads:
    """Starts threads on demand. All methods but `_serve` are called from one thread."""

    def __init__(self, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._threads: list[threading.Thread] = []
        self._inboxes: list[_Inbox] = []
        self._lock = threading.Lock()
        """Guards `_idle` and `_waiting`. Invariant: one of them is empty."""
        self._idle: list[_Inbox] = []
        self._waiting: deque[Work] = deque()
        self._is_closed = False

    def run(self, work: Work) -> None:
        """Run `work` on an idle thread, or as soon as one is free. `work` must not raise."""
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._threads) == self._count_max:
                self._waiting.append(work)
                return
            else:
                inbox = self._start_thread()
        inbox.put(work)

    def close(self) -> None:
        """Wait for running work; queued work is dropped."""
        self._is_closed = True
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> _Inbox:
        inbox: _Inbox = SimpleQueue()
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True)
        self._threads.append(thread)
        self._inboxes.append(inbox)
        thread.start()
        return inbox

    def _serve(self, inbox: _Inbox) -> None:
        """Run work until the pool is closed; the body of each thread."""
        work = inbox.get()
        while work is not None and not self._is_closed:
            work()
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                if work is None:
                    self._idle.append(inbox)
            if work is None:
                work = inbox.get()
