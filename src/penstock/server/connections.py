"""All clients of a node, at whichever port: how many there may be, and for how long one may say nothing.

`max.connections` and `max.connections.per.ip` are kept by closing the connection that is one too many; a
limit that is lowered while the node runs closes nobody who is there. A client that has sent nothing for
`connections.max.idle.ms`, and waits for nothing, is closed, as Kafka does; clients expect it. So is one that does not
take its replies, whether it waits for something or not. At the other doors one
that takes for ever to send a request is closed as well (`doors`): anything may speak there, and what is unfinished
holds memory. One timer looks at all of them, so that no request needs its own.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from penstock.base.world import Timer, World
from penstock.server.connection import Connection, Dispatcher
from penstock.server.doors import DoorConnection
from penstock.server.loop_tick import LoopTick

if TYPE_CHECKING:
    from penstock.gateway.shared.wire import ProtocolServer

logger = logging.getLogger(__name__)

IDLE_LOOKS: Final = 4
"""How often within the time that a client may be idle it is looked whether it is; so it may be idle a quarter
longer."""

UNFINISHED_LOOK_MS: Final = 5000
"""How often it is looked whether somebody takes too long to send something."""


SAY_AGAIN_NS: Final = 10_000_000_000
"""How often it is said that there are no descriptors left."""


class Client(Protocol):
    """A connection, whatever is spoken on it."""

    @property
    def door(self) -> str:
        """What the port that it came to is called."""

    @property
    def peer(self) -> str: ...

    @property
    def address(self) -> str:
        """The client's, without its port."""

    def idle_looks(self) -> int:
        """How often it was looked, this time included, since the client last sent something or was answered."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called; it ends when everything is sent."""

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Connections:
    def __init__(
        self,
        world: World,
        tick: LoopTick,
        dispatcher: Dispatcher,
        number: Callable[[str], int],
        of_controllers: Mapping[str, Dispatcher] = MappingProxyType({}),
        connections_max: int = 2**31 - 1,
    ) -> None:
        """`number` gives a setting of the broker, as it is in force now; `of_controllers` has the listeners at which
        another dispatcher answers; `connections_max` is what the process has descriptors for."""
        self._connections_max = connections_max
        self._turned_away = 0
        """Connections for which there was no descriptor, since it was last said."""
        self._said_ns: int | None = None
        """When that was."""
        self._world = world
        self._tick = tick
        self._dispatcher = dispatcher
        self._of_controllers = of_controllers
        self._request_bytes_max = number("socket.request.max.bytes")
        self._idle_ms_max = number("connections.max.idle.ms")
        self._number = number
        self._open: dict[Client, None] = {}
        """In the order in which they came: no run of the simulator may depend on where objects lie."""
        self._by_address: Counter[str] = Counter()
        self._is_over = False
        """All were closed: one that was taken just before, and is made now, is too late."""
        self._timer: Timer | None = None
        self._unfinished_timer: Timer | None = None
        """Runs while there is anybody at a door."""
        metrics = tick.metrics
        self._metrics = metrics
        metrics.door(Connection.door)
        metrics.queues["requests"] = lambda: sum(each.open_requests for each in self._of_kafka())
        metrics.queues["fetches"] = lambda: sum(
            each.session.state.fetch is not None for each in self._of_kafka()
        )

    def __len__(self) -> int:
        return len(self._open)

    def _of_kafka(self) -> Iterator[Connection]:
        return (each for each in self._open if isinstance(each, Connection))

    def accept(self, listener: str) -> Connection:
        dispatcher = self._of_controllers.get(listener, self._dispatcher)
        return Connection(self._tick, dispatcher, self._request_bytes_max, listener, self)

    def accept_at(self, door: "ProtocolServer", name: str) -> DoorConnection:
        return DoorConnection(self._tick, door, self, name)

    # -- what connections tell -------------------------------------------------------------------------

    def made(self, connection: Client) -> str | None:
        """Take a connection in; why not, if it is one too many."""
        if self._is_over:
            connection.abort()
            return None
        if len(self._open) >= self._connections_max:
            self._metrics.door(connection.door).refused += 1
            self._say_no_descriptor(connection)
            connection.abort()
            return None
        address = connection.address
        count_max = self._number("max.connections")
        if len(self._open) >= count_max:
            self._metrics.door(connection.door).refused += 1
            return f"there are {count_max} connections already (max.connections)"
        per_address_max = self._number("max.connections.per.ip")
        if self._by_address[address] >= per_address_max:
            self._metrics.door(connection.door).refused += 1
            return f"{address} has {per_address_max} connections already (max.connections.per.ip)"
        self._open[connection] = None
        self._by_address[address] += 1
        meter = self._metrics.door(connection.door)
        meter.open += 1
        meter.accepted += 1
        if self._unfinished_timer is None and isinstance(connection, DoorConnection):
            self._look_at_unfinished_later()
        return None

    def _say_no_descriptor(self, connection: Client) -> None:
        """In one line for all who come within some seconds."""
        self._turned_away += 1
        now_ns = self._world.clock_ns()
        if self._said_ns is None or now_ns - self._said_ns >= SAY_AGAIN_NS:
            logger.error(
                "%d connections refused, the last from %s: %d are open, and the process may not open more files; "
                "raise its limit (ulimit -n, LimitNOFILE of systemd), or lower max.connections",
                self._turned_away,
                connection.peer,
                len(self._open),
            )
            self._turned_away, self._said_ns = 0, now_ns

    def lost(self, connection: Client) -> None:
        if connection in self._open:
            del self._open[connection]
            self._metrics.door(connection.door).open -= 1
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    # -- idle ones -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._idle_ms_max >= 0:
            self._timer = self._world.call_later(self._idle_ms_max / IDLE_LOOKS, self._look)

    def _look(self) -> None:
        for connection in [each for each in self._open if each.idle_looks() > IDLE_LOOKS]:
            if connection.is_closing:  # since the last look: its client does not take what it was sent
                connection.abort()
            else:
                logger.debug("connection from %s closed: idle", connection.peer)
                connection.close()
        self.start()

    # -- slow ones -------------------------------------------------------------------------------------

    def _look_at_unfinished_later(self) -> None:
        self._unfinished_timer = self._world.call_later(UNFINISHED_LOOK_MS, self._look_at_unfinished)

    def _look_at_unfinished(self) -> None:
        self._unfinished_timer = None
        now_ns = self._world.clock_ns()
        at_doors = [each for each in self._open if isinstance(each, DoorConnection)]
        for connection in at_doors:
            connection.look_at_unfinished(now_ns)
        if at_doors:
            self._look_at_unfinished_later()

    # -- the end ---------------------------------------------------------------------------------------

    def close_clients(self) -> None:
        """Close all but those of other nodes to the controller here, once what is ready for them is sent."""
        self._stop()
        for connection in list(self._open):
            if not isinstance(connection, Connection) or connection.listener not in self._of_controllers:
                connection.close()

    def close(self) -> None:
        """Close all, once what is ready for them is sent."""
        self._is_over = True
        self._stop()
        for connection in list(self._open):
            connection.close()

    def abort(self) -> None:
        self._is_over = True
        self._stop()
        for connection in list(self._open):
            connection.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unfinished_timer is not None:
            self._unfinished_timer.cancel()
            self._unfinished_timer = None
