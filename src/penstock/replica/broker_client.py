"""The other brokers of the cluster, as this one reaches them: by id, through the listener that brokers use.

One to which a connection was lost a moment ago is in doubt: it may be dead, and the controller about to say so.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.metadata import ClusterImage
from penstock.wire.peers import Address, PeerFailed, Peers
from penstock.wire.request import Request

T = TypeVar("T")

DOUBT_MS: Final = 500
"""For so long a broker is in doubt; a dead one is fenced, and its partitions have other leaders, in a tenth of it."""


FORGET_MS: Final = 10_000
"""After so long it means nothing any more that a connection was lost."""


class Neighbours:
    def __init__(self, world: World, peers: Peers, image: Callable[[], ClusterImage], listener: str) -> None:
        self._world = world
        self._peers = peers
        self._image = image
        self._listener = listener
        self._lost_ns: dict[int, int] = {}
        """By broker, when a connection to it was last lost."""

    # -- doubts ----------------------------------------------------------------------------------------

    def lost(self, address: Address) -> None:
        """A connection broke, or was refused."""
        now_ns = self._world.clock_ns()
        for broker in self._image().brokers.values():
            if self.address(broker.id) == address:
                self._lost_ns[broker.id] = now_ns

    @property
    def has_doubts(self) -> bool:
        """Whether any broker may be in doubt."""
        return bool(self._lost_ns)

    def is_doubtful(self, broker_id: int) -> bool:
        return self.was_lost(broker_id, DOUBT_MS)

    def was_lost(self, broker_id: int, lately_ms: int) -> bool:
        """Whether a connection to it was lost within a time."""
        lost_ns = self._lost_ns.get(broker_id)
        if lost_ns is None:
            return False
        ago_ms = (self._world.clock_ns() - lost_ns) // 1_000_000
        if ago_ms > FORGET_MS:
            del self._lost_ns[broker_id]
        return ago_ms < lately_ms

    # -- asking ----------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> Address | None:
        """Where a broker is reached; None for one that is not registered, or that has no such listener."""
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        for each in broker.endpoints:
            if each.name == self._listener:
                return Address(each.host, each.port)
        return None

    def ask(
        self, broker_id: int, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T | PeerFailed]:
        """As `Peers.ask`."""
        to = self.address(broker_id)
        if to is not None:
            return self._peers.ask(to, request, timeout_ms=timeout_ms, purpose=purpose)
        answer: Promise[T | PeerFailed] = Promise()
        answer.resolve(PeerFailed(f"broker {broker_id} is not known here"))
        return answer
