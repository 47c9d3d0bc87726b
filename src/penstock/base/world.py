"""What a node needs of its environment: time, randomness, timers, threads, child processes and connections.

`server` implements it on an event loop; the simulator has virtual time and no threads. All callbacks run on the node's
loop, one at a time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from penstock.base.ids import TimestampMs

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")

EXPORTS, BATCHES, LARGE_BATCHES = "exports", "batches", "large-batches"
"""The lanes of helper processes: exports of records to files, validation of batches, validation of large batches."""

SEARCHES: Final = ("search-0", "search-1")
SEARCH_INDEXES: Final = "search-indexes"
"""Further lanes: searches, and the indexes that make them faster."""

SCHEMAS: Final = "schemas"
"""The lane that parses schemas."""


class Timer(Protocol):
    """A call that is due later, unless it is cancelled."""

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
    """A file that can be synced."""

    def sync(self) -> None:
        """Make contents and size durable; returns when they are."""


DIAL_MS_MAX: Final = 2000
"""How long a connection attempt may take. The kernel repeats a lost SYN after 1, 3, 7, 15 and 31 s: a new attempt gets
through sooner once the network is whole again."""


DIAL_TLS_MS_MAX: Final = 5000
"""The same with TLS, whose handshake takes two more round trips and some milliseconds of both sides."""


class DialTls(Protocol):
    """TLS of a connection that is dialled."""

    context: Any
    """An `ssl.SSLContext`."""
    error: OSError | None
    """Set before `failed` is called: why there is no connection."""


class StreamProtocol(Protocol):
    """Callbacks of a dialled connection. `asyncio.BufferedProtocol` has these methods."""

    def connection_made(self, transport: Any) -> None: ...

    def get_buffer(self, sizehint: int) -> Any: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class World(Protocol):
    rng: "Random"

    def now_ms(self) -> TimestampMs:
        """Wall clock: milliseconds since 1970."""

    def clock_ns(self) -> int:
        """Monotonic clock for durations: nanoseconds from an arbitrary start, never 0. Callable from any thread."""

    def process(self) -> "ProcessUsage | None":
        """Resources that the node's process uses; None if the node does not have a process of its own."""

    def boot_id(self) -> str | None:
        """An id that is new each time the machine boots; None if the system has none. While it stays the same, files
        contain all that any process has written, synced or not."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call after the current callback and all that are already scheduled."""

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer: ...

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run work on a thread, then call `done` on the loop with its result or exception."""

    def sync_file(self, file: Syncable, done: Callable[[OSError | None], None]) -> bool:
        """Have the kernel sync a file without a thread, then call `done` with the error, if any. Returns False, and
        never calls `done`, if that is not possible: then sync the file with `beside`."""

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """As `beside`, in a new process, for work that would hold the interpreter lock for long. `work` is pickled."""

    def in_helper(
        self,
        work: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
        lane: str = EXPORTS,
    ) -> None:
        """As `in_child`, in a process that is kept for a while with its imports: for short work that needs large
        modules. Each lane has one process, which runs its work in order."""

    def dial(
        self,
        host: str,
        port: int,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
        tls: DialTls | None = None,
    ) -> None:
        """Open a connection to another node, with TLS or without. Calls `protocol.connection_made`, or `failed` with
        whether the connection was refused. Gives up after `DIAL_MS_MAX`, with TLS after `DIAL_TLS_MS_MAX`."""
