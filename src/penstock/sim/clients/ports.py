"""What a client needs of its surroundings: time, chance and connections.

The simulator gives clients virtual time and a simulated network (`schedule`, `network`). The same clients also run
against real brokers, on an event loop and real sockets (`penstock.chaos`). They know these protocols alone.
"""

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.sim.world.schedule import Event
from penstock.wire.peers import Address


class Connection(Protocol):
    """One connection of a client, from when it is open."""

    @property
    def number(self) -> int: ...

    @property
    def disturbed_us(self) -> int:
        """When a fault last stood between the client and the process that it is connected to; -1 for never."""

    @property
    def incarnation(self) -> int:
        """Number of the process at the other end. Counted up with every start of any node."""

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
        """What the wall clock shows."""

    def rng(self, name: str) -> Random:
        """A stream of random numbers that only the seed and the name decide."""

    def later(self, delay_us: int, call: Callable[[], None]) -> Event: ...


class ClientNetwork(Protocol):
    is_calm: bool
    """Whether clients are to finish: none hangs up on purpose any more."""

    def connect(self, caller: NetworkClient, to: Address) -> None:
        """Connect a client. It is told how that went, later."""
