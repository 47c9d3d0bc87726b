"""All client connections of a node: their limits and idle timeouts.

`max.connections`, `max.connections.per.ip` and `max.connections.per.ip.overrides` are enforced by closing a new
connection above the limit; lowering a limit closes no open connection. Rates of new connections are in
`connection_rates`. As in Kafka, a connection without requests for `connections.max.idle.ms` and without a
pending one is closed; so is one whose client does not take its replies. At the other doors, a client that takes too
long to send a request is closed too (`doors`), because partial requests hold memory. One timer checks all connections.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.base.world import Timer, World
from penstock.handlers.sasl import LoginDispatcher, SaslListener
from penstock.metadata.quotas import IP, Quotas
from penstock.server.addresses import canonical_address, limits_of_addresses
from penstock.server.connection import Connection, Dispatcher
from penstock.server.doors import DoorConnection
from penstock.server.log_limit import LogLimit
from penstock.server.loop_tick import LoopTick

if TYPE_CHECKING:
    from penstock.gateway.shared.wire import ProtocolServer
    from penstock.server.connection_rates import ConnectionRates

logger = logging.getLogger(__name__)

IDLE_LOOKS: Final = 4
"""Checks per idle timeout; so a connection may be idle up to a quarter longer."""

LOGIN_BYTES_MAX: Final = 16 << 20
"""Bytes of partial and held frames of all connections that have not logged in. A frame of a log-in has some hundred
bytes and arrives in one piece, so only hostile clients come near."""

UNLIMITED: Final = 2**31 - 1
"""The value of limits that do not limit."""

UNFINISHED_LOOK_MS: Final = 5000
"""Interval of checks for partial requests."""


LOG_INTERVAL_NS: Final = 10_000_000_000
"""Interval of log lines about missing descriptors."""


Client: TypeAlias = Connection | DoorConnection


class LoginMemory:
    """Bounds the frames that connections keep before they have logged in; they count apart from those of users."""

    __slots__ = ("_held", "total")

    def __init__(self) -> None:
        self._held: dict[Client, int] = {}
        self.total = 0

    def holds(self, connection: "Client", bytes_held: int) -> bool:
        total = self.total + bytes_held - self._held.get(connection, 0)
        if bytes_held and total > LOGIN_BYTES_MAX:
            return False
        self.total = total
        if bytes_held:
            self._held[connection] = bytes_held
        else:
            self._held.pop(connection, None)
        return True


class Connections:
    def __init__(
        self,
        world: World,
        tick: LoopTick,
        dispatcher: Dispatcher,
        number: Callable[[str], int],
        of_controllers: Mapping[str, Dispatcher] = MappingProxyType({}),
        connections_max: int = 2**31 - 1,
        sasl: Mapping[str, SaslListener] = MappingProxyType({}),
        text: Callable[[str], str] = lambda _: "",
        make_rates: "Callable[[], ConnectionRates] | None" = None,
    ) -> None:
        """`number` and `text` return the current value of a broker setting; `of_controllers` has the dispatchers of
        controller listeners; `connections_max` is the number of descriptors for connections; `sasl` has the listeners
        whose clients must log in. `make_rates` is called when there are limits to the rate of new connections."""
        self._text = text
        self._make_rates = make_rates
        self._rates: ConnectionRates | None = None
        self._sasl = sasl
        self.login_memory = LoginMemory()
        self._connections_max = connections_max
        self._turned_away = 0
        """Connections rejected for lack of descriptors since the last log line."""
        self._logged_ns: int | None = None
        """Time of that log line."""
        self._tls_clients = LogLimit(world)
        self._world = world
        self._tick = tick
        self._dispatcher = dispatcher
        self._of_controllers = of_controllers
        self.request_bytes_max = number("socket.request.max.bytes")
        self._idle_ms_max = number("connections.max.idle.ms")
        self._number = number
        self._open: dict[Client, None] = {}
        """In order of arrival, so that simulations do not depend on object addresses."""
        self._by_address: Counter[str] = Counter()
        self._is_over = False
        """All connections were closed; a connection that completes now is closed too."""
        self._timer: Timer | None = None
        self._unfinished_timer: Timer | None = None
        """Runs while a door has connections."""
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
        connection = Connection(self._tick, dispatcher, self.request_bytes_max, listener, self)
        sasl = self._sasl.get(listener)
        if sasl is not None:
            LoginDispatcher(sasl, connection, dispatcher)
        return connection

    def accept_at(self, door: "ProtocolServer", name: str) -> DoorConnection:
        return DoorConnection(self._tick, door, self, name)

    # -- callbacks of connections -------------------------------------------------------------------------

    def made(self, connection: Client) -> str | None:
        """Register a connection; return the reason if it is above a limit."""
        if self._is_over:
            connection.abort()
            return None
        if len(self._open) >= self._connections_max:
            self._metrics.door(connection.door).refused += 1
            self._log_no_descriptor(connection)
            connection.abort()
            return None
        address = connection.address
        count_max = self._number("max.connections")
        if len(self._open) >= count_max:
            self._metrics.door(connection.door).refused += 1
            return f"{count_max} connections are open, the limit of max.connections"
        per_address_max, setting = self._number("max.connections.per.ip"), "max.connections.per.ip"
        if overrides := self._text("max.connections.per.ip.overrides"):
            own = limits_of_addresses(overrides).get(canonical_address(address))
            if own is not None:
                per_address_max, setting = own, "max.connections.per.ip.overrides"
        if self._by_address[address] >= per_address_max:
            self._metrics.door(connection.door).refused += 1
            return f"{address} has {per_address_max} open connections, the limit of {setting}"
        self._open[connection] = None
        self._by_address[address] += 1
        meter = self._metrics.door(connection.door)
        meter.open += 1
        meter.accepted += 1
        if self._unfinished_timer is None and isinstance(connection, DoorConnection):
            self._look_at_unfinished_later()
        self._slow_down(connection, address)
        return None

    def follow_quotas(self, quotas: Quotas) -> None:
        """The quotas of a new image, of which those of addresses apply here."""
        if self._rates is None and any(entity and entity[0][0] == IP for entity in quotas):
            self.start_rates()
        if self._rates is not None:
            self._rates.follow(quotas)

    def start_rates(self) -> None:
        """From now on rates of new connections are limited."""
        if self._make_rates is not None:
            self._rates = self._make_rates()

    def _slow_down(self, connection: Client, address: str) -> None:
        """Let a connection above a rate wait for its turn, or for its end."""
        rate_max = self._number("max.connection.creation.rate")
        if self._rates is None and rate_max < UNLIMITED:
            self.start_rates()
        if self._rates is not None:
            listener = connection.listener if isinstance(connection, Connection) else connection.door
            delay = self._rates.admit(listener, address, rate_max, self._world.clock_ns())
            if delay.closes:
                self._metrics.door(connection.door).refused += 1
            if delay.ms:
                connection.delay(delay.ms, closes=delay.closes)

    def _log_no_descriptor(self, connection: Client) -> None:
        """Log one line for all connections within some seconds."""
        self._turned_away += 1
        now_ns = self._world.clock_ns()
        if self._logged_ns is None or now_ns - self._logged_ns >= LOG_INTERVAL_NS:
            logger.error(
                "rejected %d connections, the last from %s: %d are open, and the process has no more "
                "file descriptors; raise its limit (ulimit -n, LimitNOFILE of systemd), or lower max.connections",
                self._turned_away,
                connection.peer,
                len(self._open),
            )
            self._turned_away, self._logged_ns = 0, now_ns

    def spoke_tls(self, connection: Client) -> None:
        self._tls_clients.warning(
            logger,
            "connection from %s closed: the client uses TLS, but the listener %s has none; the client needs %s",
            connection.peer,
            connection.listener,
            "security.protocol=PLAINTEXT or SASL_PLAINTEXT, or another port"
            if isinstance(connection, Connection)
            else f"another port, or the node {connection.door}.security.protocol=SSL or SASL_SSL",
        )

    def lost(self, connection: Client) -> None:
        if connection in self._open:
            del self._open[connection]
            self._metrics.door(connection.door).open -= 1
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    # -- idle connections -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._idle_ms_max >= 0:
            self._timer = self._world.call_later(self._idle_ms_max / IDLE_LOOKS, self._look)

    def _look(self) -> None:
        for connection in [each for each in self._open if each.idle_looks() > IDLE_LOOKS]:
            if connection.is_closing:  # since the last check: the client does not take its replies
                connection.abort()
            else:
                logger.debug("connection from %s closed: idle", connection.peer)
                connection.close()
        self.start()

    # -- partial requests -------------------------------------------------------------------------------------

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

    # -- closing ---------------------------------------------------------------------------------------

    def close_clients(self) -> None:
        """Close all but connections to controller listeners, after sending ready replies."""
        self._stop()
        for connection in list(self._open):
            if not isinstance(connection, Connection) or connection.listener not in self._of_controllers:
                connection.close()

    def close(self) -> None:
        """Close all, after sending ready replies."""
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
