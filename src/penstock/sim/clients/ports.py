"""Interfaces that clients use: time, random numbers and connections.

The simulator implements them with virtual time and a simulated network (`schedule`, `network`), and `penstock.chaos`
with an event loop and real sockets.
"""

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.sim.world.schedule import Event
from penstock.wire.peers import Address


class Connection(Protocol):
    """An open connection of a client."""

    @property
    def number(self) -> int: ...

    @property
    def disturbed_us(self) -> int:
        """When a fault last disturbed the connection or the process at its other end; -1 for never."""

    @property
    def incarnation(self) -> int:
        """Number of the process at the other end, counted up with every start of any node."""

    @property
    def is_node_there(self) -> bool:
        """Whether the process at the other end is alive."""

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class NetworkClient(Protocol):
    """A client, as the network sees it."""

    def connected(self, link: Connection) -> None: ...

    def refused(self) -> None: ...

    def received(self, link: Connection, data: bytes) -> None: ...

    def closed(self, link: Connection) -> None: ...


class Scheduler(Protocol):
    @property
    def now_us(self) -> int: ...

    @property
    def now_ms(self) -> int:
        """Wall clock time."""

    def rng(self, name: str) -> Random:
        """Return a random stream that depends only on the seed and the name."""

    def later(self, delay_us: int, call: Callable[[], None]) -> Event: ...


class ClientNetwork(Protocol):
    is_calm: bool
    """Set when clients have to finish: none disconnects on purpose any more."""

    def connect(self, caller: NetworkClient, to: Address) -> None:
        """Connect a client; it is notified of the result later."""
