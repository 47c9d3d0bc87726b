"""The active controller's watch over brokers: one that is dead is fenced now, not when its session ends.

    heartbeats' connection breaks --> knock at the broker's port --> refused: dead, fence it
                                            ^         |
                                            |         v
                                            +-- opened, or no answer: knock again, until a heartbeat comes

A process that dies takes its connections along, and then its port: the system says so to whoever knocks. A broker that
is merely slow, or cut off, opens the door or does not answer, and has the time of its session. To be fenced by mistake
costs little: the next heartbeat brings it back. The first knock may come between the end of the connections and the
end of the port, so it is not the last. Where the process is back before anybody has knocked in vain, its registration
tells the same (`metadata.controller.brokers`).

A new controller has no connections to lose: it knocks at every broker from which it has not heard.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from penstock.base.errors import KafkaError
from penstock.base.world import Timer, World
from penstock.controlplane.active_controller import ActiveController
from penstock.handlers.support.context import Session
from penstock.metadata import Broker, ClusterImage
from penstock.metadata.controller.requests import FenceBroker
from penstock.wire.peers import Address

logger = logging.getLogger(__name__)

KNOCK_MS_MIN: Final = 20
"""How soon after the first the second knock comes; a process takes about that long to be gone."""

KNOCK_MS_MAX: Final = 1000
"""Between two knocks each wait is twice the one before, up to this."""


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
        """`listener` is the one that brokers use among themselves."""
        self._world = world
        self._controller = controller
        self._image = image
        self._node_id = node_id
        self._listener = listener
        self._sessions: dict[int, Session] = {}
        """By broker, the connection of its last heartbeat."""
        self._knocks: dict[int, _Knocks] = {}
        """By broker, for those that may be dead."""

    def begin(self) -> None:
        """The controller here is active, and has heard from nobody; its own broker needs no watch."""
        for broker in self._image().brokers.values():
            if broker.id != self._node_id and broker.id not in self._sessions:
                self._knock(broker.id, broker.epoch)

    def end(self) -> None:
        """Another controller watches."""
        self._sessions.clear()
        for knocks in list(self._knocks.values()):
            knocks.end()
        self._knocks.clear()

    def heard(self, session: Session, broker_id: int, broker_epoch: int) -> None:
        self._sessions[broker_id] = session
        session.gone = partial(self._broken, session, broker_id, broker_epoch)
        knocks = self._knocks.pop(broker_id, None)
        if knocks is not None:
            knocks.end()

    def _broken(self, session: Session, broker_id: int, broker_epoch: int) -> None:
        if self._sessions.get(broker_id) is session:
            del self._sessions[broker_id]
            self._controller.cut(broker_id, broker_epoch)
            self._knock(broker_id, broker_epoch)

    def _knock(self, broker_id: int, broker_epoch: int) -> None:
        former = self._knocks.pop(broker_id, None)
        if former is not None:
            former.end()
        suspect = partial(self._suspect, broker_id, broker_epoch)
        knocks = _Knocks(self._world, suspect, partial(self._dead, broker_id, broker_epoch))
        self._knocks[broker_id] = knocks
        knocks.knock()

    def _suspect(self, broker_id: int, broker_epoch: int) -> Address | None:
        """Where to knock; None where nothing is left to be found out."""
        broker: Broker | None = self._image().brokers.get(broker_id)
        if (
            not self._controller.is_active
            or broker is None
            or broker.fenced
            or broker.epoch != broker_epoch
            or not broker.endpoints
        ):
            self._knocks.pop(broker_id, None)
            return None
        found = [each for each in broker.endpoints if each.name == self._listener] or broker.endpoints
        return Address(found[0].host, found[0].port)

    def _dead(self, broker_id: int, broker_epoch: int, address: Address) -> None:
        self._knocks.pop(broker_id, None)
        logger.warning("broker %d is gone, nobody listens at %s any more: it is fenced", broker_id, address)
        self._controller.submit(FenceBroker(broker_id, broker_epoch)).then(partial(_fenced, broker_id))


def _fenced(broker_id: int, answer: object) -> None:
    if isinstance(answer, KafkaError):
        logger.info("broker %d was not fenced: %s", broker_id, answer)


class _Knocks:
    """At one broker's door, until somebody knows enough."""

    def __init__(
        self, world: World, suspect: Callable[[], Address | None], dead: Callable[[Address], None]
    ) -> None:
        self._world = world
        self._suspect = suspect
        self._dead = dead
        self._wait_ms = KNOCK_MS_MIN
        self._timer: Timer | None = None
        self._is_over = False

    def end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def knock(self) -> None:
        address = None if self._is_over else self._suspect()
        if address is not None:
            door = _Door(self._again)
            self._world.dial(address.host, address.port, door, partial(self._not_opened, address))

    def _not_opened(self, address: Address, refused: bool) -> None:
        if self._is_over:
            return
        if refused and self._suspect() is not None:
            self._is_over = True
            self._dead(address)
        else:
            self._again()

    def _again(self) -> None:
        if not self._is_over:
            self._timer = self._world.call_later(self._wait_ms, self.knock)
            self._wait_ms = min(2 * self._wait_ms, KNOCK_MS_MAX)


class _Door(asyncio.BufferedProtocol):
    """A connection that is closed as soon as it is there: that it opened is all there is to know."""

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
