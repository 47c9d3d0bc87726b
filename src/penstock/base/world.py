"""What a node needs of the world around it: time, chance, timers, threads and child processes.

The real ones live in `server`, on an event loop; the simulator's have virtual time and no threads. Everything that
is called back is called on the node's own loop, one at a time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.base.ids import TimestampMs

if TYPE_CHECKING:
    from asyncio import BufferedProtocol
    from random import Random

T = TypeVar("T")

EXPORTS, BATCHES, LARGE_BATCHES = "exports", "batches", "large-batches"
"""The lanes of helper processes: files made of records; batches that are judged beside the loop, and those of them
that take long."""


class Timer(Protocol):
    """Something that will be called, unless it is cancelled first."""

    def cancel(self) -> None: ...


class ProcessUsage(NamedTuple):
    cpu_seconds: float
    """On all cores, in user space and in the kernel."""
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    started_seconds: float
    """Since 1970."""


class Syncable(Protocol):
    """A file, as far as a sync is concerned."""

    def sync(self) -> None:
        """Make contents and size durable, and wait for it."""


class World(Protocol):
    rng: "Random"

    def now_ms(self) -> TimestampMs:
        """Milliseconds since 1970, by the wall clock."""

    def clock_ns(self) -> int:
        """Nanoseconds from a moment that means nothing, and never 0: for how long something took. Never goes back.
        Called from any thread."""

    def process(self) -> "ProcessUsage | None":
        """What the node's process takes of the machine; None where it has none of its own."""

    def boot_id(self) -> str | None:
        """Another one each time that the machine is started, and on every machine; None where it is not told. While it
        is the same, what any process has written to files is there, synced or not."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call when everything that is happening now has happened."""

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer: ...

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run work on another thread, then `done` with its result, or with what it raised, on the loop."""

    def sync_file(self, file: Syncable, done: Callable[[OSError | None], None]) -> bool:
        """Have a file synced beside the loop, without a thread, then call `done` with what went wrong. False where
        that cannot be, and `done` is never called: then the sync is work to be done `beside`."""

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """The same in a process of its own, for work that would keep the interpreter busy; it must pickle."""

    def in_helper(
        self,
        work: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
        lane: str = EXPORTS,
    ) -> None:
        """The same in a process that stays for a while, with what it imported: for short work that is large to load.
        Each lane has a process of its own, where one piece comes after the other."""

    def dial(
        self, host: str, port: int, protocol: "BufferedProtocol", failed: Callable[[bool], None]
    ) -> None:
        """Open a connection to another node. The protocol is told when it is there, as asyncio does it; `failed` when
        it will not be, and whether that is because nobody listens."""
