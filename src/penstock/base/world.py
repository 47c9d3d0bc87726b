"""What a node needs of the world around it: time, chance, timers, threads and child processes.

The real ones live in `server`, on an event loop; the simulator's have virtual time and no threads. Everything that
is called back is called on the node's own loop, one at a time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.base.ids import TimestampMs

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")


class Timer(Protocol):
    """Something that will be called, unless it is cancelled first."""

    def cancel(self) -> None: ...


class World(Protocol):
    rng: "Random"

    def now_ms(self) -> TimestampMs:
        """Milliseconds since 1970, by the wall clock."""

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call when everything that is happening now has happened."""

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer: ...

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run work on another thread, then `done` with its result, or with what it raised, on the loop."""

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """The same in a process of its own, for work that would keep the interpreter busy; it must pickle."""
