"""All clients of a node: how many there may be, and for how long one may say nothing.

`max.connections` and `max.connections.per.ip` are kept by closing the connection that is one too many; a
limit that is lowered while the node runs closes nobody who is there. A client that has sent nothing for
`connections.max.idle.ms`, and waits for nothing, is closed, as Kafka does; clients expect it.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.base.world import Timer, World
from penstock.server.connection import Connection, Dispatcher
from penstock.server.turn import Turn

logger = logging.getLogger(__name__)

IDLE_LOOKS: Final = 4
"""How often within the time that a client may be idle it is looked whether it is; so it may be idle a quarter
longer."""


class Connections:
    def __init__(
        self, world: World, turn: Turn, dispatcher: Dispatcher, number: Callable[[str], int]
    ) -> None:
        """`number` gives a setting of the broker, as it is in force now."""
        self._world = world
        self._turn = turn
        self._dispatcher = dispatcher
        self._request_bytes_max = number("socket.request.max.bytes")
        self._idle_ms_max = number("connections.max.idle.ms")
        self._number = number
        self._open: dict[Connection, None] = {}
        """In the order in which they came: no run of the simulator may depend on where objects lie."""
        self._by_address: Counter[str] = Counter()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._open)

    def accept(self, listener: str) -> Connection:
        return Connection(self._turn, self._dispatcher, self._request_bytes_max, listener, self)

    # -- what connections tell -------------------------------------------------------------------------

    def made(self, connection: Connection) -> str | None:
        """Take a connection in; why not, if it is one too many."""
        address = connection.address
        count_max = self._number("max.connections")
        if len(self._open) >= count_max:
            return f"there are {count_max} connections already (max.connections)"
        per_address_max = self._number("max.connections.per.ip")
        if self._by_address[address] >= per_address_max:
            return f"{address} has {per_address_max} connections already (max.connections.per.ip)"
        self._open[connection] = None
        self._by_address[address] += 1
        return None

    def lost(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    # -- idle ones -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._idle_ms_max >= 0:
            self._timer = self._world.call_later(self._idle_ms_max / IDLE_LOOKS, self._look)

    def _look(self) -> None:
        for connection in [each for each in self._open if each.idle_looks() > IDLE_LOOKS]:
            logger.debug("connection from %s closed: idle", connection.session.peer)
            connection.close()
        self.start()

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all, once what is ready for them is sent."""
        self._stop()
        for connection in list(self._open):
            connection.close()

    def abort(self) -> None:
        self._stop()
        for connection in list(self._open):
            connection.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
