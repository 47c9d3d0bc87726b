"""The active controller's liveness probes: a broker whose process died is fenced at once, not when its session ends.

    heartbeat connection breaks --> connect to the broker's port --> refused: the process is dead, fence it
                                            ^         |
                                            |         v
                                            +-- accepted, or no reply: probe again, until a heartbeat arrives

When a process dies, the system closes its connections and then its port, and refuses new connections. A broker that is
slow or partitioned accepts the connection or does not reply; its session timeout applies. Fencing by mistake costs
little: the next heartbeat unfences the broker. The first probe may hit the moment between the closing of connections
and of the port, so probes are repeated. If the process restarts before any probe is refused, its new registration has
the same effect (`metadata.controller.brokers`).

A new active controller has no heartbeat connections yet: it probes every broker that has not sent it a heartbeat.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from penstock.base.errors import KafkaError
from penstock.base.world import Timer, World
from penstock.controlplane.active_controller import ActiveController
from penstock.handlers.support.context import ConnectionState, Session
from penstock.metadata.controller.requests import FenceBroker
from penstock.metadata.image import Broker, ClusterImage
from penstock.wire.peers import Address

logger = logging.getLogger(__name__)

PROBE_MS_MIN: Final = 20
"""Delay between the first and the second probe; a dying process takes about that long."""

PROBE_MS_MAX: Final = 1000
"""The delay doubles after each probe, up to this."""


class BrokerLiveness:
    """A `BrokerLivenessPort`."""

    def __init__(
        self,
        world: World,
        controller: ActiveController,
        image: Callable[[], ClusterImage],
        *,
        node_id: int,
        listener: str,
    ) -> None:
        """`listener` is the name of the inter-broker listener."""
        self._world = world
        self._controller = controller
        self._image = image
        self._node_id = node_id
        self._listener = listener
        self._connections: dict[int, ConnectionState] = {}
        """By broker id, the connection of its last heartbeat."""
        self._probes: dict[int, _Probes] = {}
        """By broker id, for brokers that may be dead."""

    def begin(self) -> None:
        """The controller became active: probe all brokers but the one in this process."""
        for broker in self._image().brokers.values():
            if broker.id != self._node_id and broker.id not in self._connections:
                self._probe(broker.id, broker.epoch)

    def end(self) -> None:
        """The controller is no longer active."""
        self._connections.clear()
        for probes in list(self._probes.values()):
            probes.end()
        self._probes.clear()

    def heard(self, session: Session, broker_id: int, broker_epoch: int) -> None:
        self._connections[broker_id] = session.state
        session.state.on_close = partial(self._broken, session.state, broker_id, broker_epoch)
        probes = self._probes.pop(broker_id, None)
        if probes is not None:
            probes.end()

    def _broken(self, connection: ConnectionState, broker_id: int, broker_epoch: int) -> None:
        if self._connections.get(broker_id) is connection:
            del self._connections[broker_id]
            self._controller.cut(broker_id, broker_epoch)
            self._probe(broker_id, broker_epoch)

    def _probe(self, broker_id: int, broker_epoch: int) -> None:
        former = self._probes.pop(broker_id, None)
        if former is not None:
            former.end()
        target = partial(self._target, broker_id, broker_epoch)
        probes = _Probes(self._world, target, partial(self._dead, broker_id, broker_epoch))
        self._probes[broker_id] = probes
        probes.probe()

    def _target(self, broker_id: int, broker_epoch: int) -> Address | None:
        """The address to probe; None if the broker's state no longer matters."""
        broker: Broker | None = self._image().brokers.get(broker_id)
        if (
            not self._controller.is_active
            or broker is None
            or broker.fenced
            or broker.epoch != broker_epoch
            or not broker.endpoints
        ):
            self._probes.pop(broker_id, None)
            return None
        found = [each for each in broker.endpoints if each.name == self._listener] or broker.endpoints
        return Address(found[0].host, found[0].port)

    def _dead(self, broker_id: int, broker_epoch: int, address: Address) -> None:
        self._probes.pop(broker_id, None)
        logger.warning("broker %d is dead, %s refuses connections: fencing it", broker_id, address)
        self._controller.submit(FenceBroker(broker_id, broker_epoch)).then(
            _fenced, partial(_not_fenced, broker_id)
        )


def _fenced(_: object) -> None:
    """The metadata log reports the change."""


def _not_fenced(broker_id: int, error: KafkaError) -> None:
    logger.info("broker %d was not fenced: %s", broker_id, error)


class _Probes:
    """Repeated probes of one broker."""

    def __init__(
        self, world: World, target: Callable[[], Address | None], dead: Callable[[Address], None]
    ) -> None:
        self._world = world
        self._target = target
        self._dead = dead
        self._wait_ms = PROBE_MS_MIN
        self._timer: Timer | None = None
        self._is_over = False

    def end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def probe(self) -> None:
        address = None if self._is_over else self._target()
        if address is not None:
            connection = _ProbeConnection(self._again)
            self._world.dial(address.host, address.port, connection, partial(self._not_connected, address))

    def _not_connected(self, address: Address, refused: bool) -> None:
        if self._is_over:
            return
        if refused and self._target() is not None:
            self._is_over = True
            self._dead(address)
        else:
            self._again()

    def _again(self) -> None:
        if not self._is_over:
            self._timer = self._world.call_later(self._wait_ms, self.probe)
            self._wait_ms = min(2 * self._wait_ms, PROBE_MS_MAX)


class _ProbeConnection(asyncio.BufferedProtocol):
    """A connection that is closed as soon as it opens."""

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        self._buffer = memoryview(bytearray(64))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
        self._opened()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        pass
