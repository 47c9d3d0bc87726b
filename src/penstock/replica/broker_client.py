"""Sends requests to other brokers by id, over the inter-broker listener.

Also remembers lost connections: a broker whose connection broke a moment ago may be dead, before the controller has
fenced it.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.metadata.image import ClusterImage
from penstock.wire.peers import Address, PeerFailed, Peers
from penstock.wire.request import Request

T = TypeVar("T")

MAY_BE_DEAD_MS: Final = 500
"""How long after a lost connection a broker counts as possibly dead. A dead broker is fenced, and its partitions have
other leaders, in a tenth of this."""

FORGET_MS: Final = 10_000
"""How long a lost connection is remembered."""


class BrokerClient:
    def __init__(self, world: World, peers: Peers, image: Callable[[], ClusterImage], listener: str) -> None:
        self._world = world
        self._peers = peers
        self._image = image
        self._listener = listener
        self._lost_ns: dict[int, int] = {}
        """By broker: when a connection to it was last lost."""

    # -- lost connections ------------------------------------------------------------------------------

    def lost(self, address: Address) -> None:
        """A connection broke or was refused."""
        now_ns = self._world.clock_ns()
        for broker in self._image().brokers.values():
            if self.address(broker.id) == address:
                self._lost_ns[broker.id] = now_ns

    @property
    def has_lost_connections(self) -> bool:
        """Whether any lost connection is remembered."""
        return bool(self._lost_ns)

    def may_be_dead(self, broker_id: int) -> bool:
        return self.was_lost(broker_id, MAY_BE_DEAD_MS)

    def was_lost(self, broker_id: int, within_ms: int) -> bool:
        """Whether a connection to the broker was lost within the last `within_ms`."""
        lost_ns = self._lost_ns.get(broker_id)
        if lost_ns is None:
            return False
        ago_ms = (self._world.clock_ns() - lost_ns) // 1_000_000
        if ago_ms > FORGET_MS:
            del self._lost_ns[broker_id]
        return ago_ms < within_ms

    # -- requests --------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> Address | None:
        """The inter-broker endpoint of a broker; None if it is not registered or has no such listener."""
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            return None
        for each in broker.endpoints:
            if each.name == self._listener:
                return Address(each.host, each.port)
        return None

    def send(
        self, broker_id: int, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T]:
        """As `Peers.ask`."""
        to = self.address(broker_id)
        if to is not None:
            return self._peers.ask(to, request, timeout_ms=timeout_ms, purpose=purpose)
        response: Promise[T] = Promise()
        response.fail(
            PeerFailed(f"broker {broker_id} is not registered, or has no listener {self._listener}")
        )
        return response
