"""Base classes of Kafka clients: negotiate versions, route requests to nodes, and reconnect.

A client connects to one of the nodes: its home connection, for requests that any node can answer. Requests for a
particular node use a separate connection to it. When a connection is lost, the client closes all of them, fails open
requests, and reconnects after a pause. It draws versions each time from those that the node serves, so that over
many runs every version of every request meets every situation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from penstock.base.errors import ErrorCode
from penstock.security.sasl.client import ClientLogin
from penstock.sim.checkers import history
from penstock.sim.clients import messages
from penstock.sim.clients.connection import BadReply, RequestConnection
from penstock.sim.clients.messages import R, Request
from penstock.sim.clients.ports import ClientNetwork, Connection, Scheduler
from penstock.sim.world.schedule import Event
from penstock.wire import KAFKA_RANGES, Api
from penstock.wire.peers import Address

__all__ = ["Admin", "BadReply", "Client", "ClientContext", "Recorder", "TopicClient", "code_name"]

REQUEST_TIMEOUT_US = 8_000_000
"""Longer than any request takes that works: a later reply counts as missing."""

METADATA_VERSION_MIN = 10
"""First version with topic ids."""

NOT_THERE = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
})  # fmt: skip
"""Errors of a node that does not lead the partition: another one does, or will."""


class Recorder(Protocol):
    """Records what clients see."""

    def record(self, event: history.Event) -> None: ...

    def trace(self, line: str) -> None: ...


@dataclass(frozen=True)
class ClientContext:
    """Time, network, recorder and addresses that all clients share."""

    schedule: Scheduler
    network: ClientNetwork
    recorder: Recorder
    bootstrap: tuple[Address, ...] = (Address("127.0.0.1", 9092),)
    """Kafka listeners of the brokers."""
    http: tuple[Address, ...] = ()
    line: tuple[Address, ...] = ()
    """Listeners of the line protocol."""
    skew_ms: int = 0
    """Largest difference between the clocks of two nodes: a timeout may expire this much early."""
    login: ClientLogin | None = None
    """With which clients log in, if they have no credentials of their own."""
    request_timeout_us: int = REQUEST_TIMEOUT_US
    patience: int = 1
    """Factor for the pause before a retry, 1 with a single node."""

    @property
    def is_cluster(self) -> bool:
        return len(self.bootstrap) > 1


class Client:
    """Connects once started, and calls `ready` with each new connection."""

    def __init__(self, name: str, context: ClientContext) -> None:
        self.name = name
        self.context = context
        self.rng: Random = context.schedule.rng(f"client {name}")
        self.is_working = True
        """Whether it begins new work."""
        self.versions: dict[Api, int] = {}
        self._home: RequestConnection | None = None
        self._connections: dict[Address, RequestConnection] = {}
        """Open connections, including the home connection."""
        self._last_replied: RequestConnection | None = None
        self._is_over = False

    # -- for subclasses --------------------------------------------------------------------------------

    def ready(self) -> None:
        """The home connection is open, and its versions are known."""
        raise NotImplementedError

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        """Restrict the range of versions that both sides know to those that this client uses."""
        return low, high

    def disconnected(self) -> None:
        """All connections are closed, and their open requests have failed."""

    # -- connecting ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.context.schedule.later(self.rng.randrange(1, 30_000), self._dial)

    def finish(self) -> None:
        """Begin nothing new, and finish what was begun."""
        self.is_working = False

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing left that must be finished."""
        return True

    def end(self) -> None:
        """Disconnect for good."""
        self._is_over = True
        self.disconnect()

    @property
    def link(self) -> Connection | None:
        """The home connection's link, while it is open."""
        home = self._home
        return home.link if home is not None and not home.is_over else None

    @property
    def incarnation(self) -> int:
        """Number of the process that sent the last reply."""
        connection = self._last_replied
        assert connection is not None
        assert connection.link is not None
        return connection.link.incarnation

    def disconnect(self) -> None:
        if self.link is not None:
            self._start_over()

    def _dial(self) -> None:
        if not self._is_over and self._home is None:
            self._home = self._connection_to(self.rng.choice(self.context.bootstrap))

    def _connection_to(self, to: Address) -> RequestConnection:
        connection = self._connections.get(to)
        if connection is None:
            context = self.context
            connection = self._connections[to] = RequestConnection(
                self, context.network, context.schedule, to, context.request_timeout_us, self.login
            )
        return connection

    @property
    def login(self) -> ClientLogin | None:
        """With which its next connection logs in; None if it need not."""
        return self.context.login

    def login_begins(self, connection: RequestConnection) -> None:
        """The log-in of a connection is sent."""

    def login_ended(self, connection: RequestConnection, code: int) -> None:
        if code:
            self.record(history.RequestRefused(self.name, "log-in", code, is_due=False))

    def connection_open(self, connection: RequestConnection) -> None:
        if self._is_over:
            connection.close()
        elif connection is self._home:
            version = self.rng.randint(*KAFKA_RANGES[Api.API_VERSIONS])
            connection.call(messages.API_VERSIONS, version, self._learn_versions, lambda: None)

    def connection_over(self, connection: RequestConnection) -> None:
        if self._connections.get(connection.to) is connection:
            if connection.link is not None:
                self.trace("lost its connection")
            self._start_over()

    def reply_arrived(self, connection: RequestConnection) -> None:
        self._last_replied = connection

    def _start_over(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        self._home = None
        for connection in connections:
            connection.close()
        if any(connection.link is not None for connection in connections):
            self.disconnected()
        if not self._is_over:
            self.later(self.context.patience * self.rng.randrange(5_000, 100_000), self._dial)

    def _learn_versions(self, served: dict[int, tuple[int, int]]) -> None:
        self.versions = {}
        for api, known in KAFKA_RANGES.items():
            low, high = served.get(api, (1, 0))
            low = max(low, known.min, METADATA_VERSION_MIN if api is Api.METADATA else 0)
            high = min(high, known.max)
            low, high = self.narrow(api, low, high)
            if low <= high:
                self.versions[api] = self.rng.randint(low, high)
        self.ready()

    # -- requests --------------------------------------------------------------------------------------

    def call(
        self,
        request: Request[R],
        on_reply: Callable[[R], None],
        on_lost: Callable[[], None] = lambda: None,
        *,
        to: Address | None = None,
    ) -> None:
        """Send a request in the negotiated version; then either `on_reply` or `on_lost` is called, once."""
        self._to(to).call(request, self.versions[request.api], on_reply, on_lost)

    def send_only(self, request: Request[R], *, to: Address | None = None) -> None:
        """Send a request that has no reply."""
        self._to(to).send_only(request, self.versions[request.api])

    def _to(self, to: Address | None) -> RequestConnection:
        assert self._home is not None
        return self._home if to is None else self._connection_to(to)

    # -- small things ----------------------------------------------------------------------------------

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        return self.context.schedule.later(delay_us, call)

    def again_soon(self, call: Callable[[], None]) -> None:
        """Call after a short pause, if the connection is still the same."""
        link = self.link

        def again() -> None:
            if link is self.link and link is not None:
                call()

        self.later(self.context.patience * self.rng.randrange(2_000, 30_000), again)

    def record(self, event: history.Event) -> None:
        self.context.recorder.record(event)

    def trace(self, line: str) -> None:
        self.context.recorder.trace(f"{self.name} {line}")


def code_name(code: int) -> str:
    return ErrorCode(code).name


class TopicClient(Client):
    """A client of one topic, which waits until the topic exists."""

    creates_topic = False
    """Whether a Metadata request may create the topic."""

    def __init__(self, name: str, context: ClientContext, topic: str) -> None:
        super().__init__(name, context)
        self.topic = messages.TopicName(topic, None)
        self.scope = topic
        """Name of the topic in events; of one of its lives, if the topic is created again (`topic_lives`)."""
        self.partitions: list[int] = []
        self.leaders: dict[int, Address] = {}
        """Known leaders by partition."""
        self._is_refreshing = False

    def topic_ready(self) -> None:
        """The home connection is open, and the topic is known."""
        raise NotImplementedError

    def ready(self) -> None:
        self._is_refreshing = False
        self._find_topic()

    def _find_topic(self) -> None:
        self._get_metadata(self._found_topic)

    def _get_metadata(self, on_reply: Callable[[messages.TopicMetadata], None]) -> None:
        if self.link is not None:
            self.call(messages.metadata(self.topic.name, create=self.creates_topic), on_reply)

    def _found_topic(self, seen: messages.TopicMetadata) -> None:
        if seen.code or not seen.partitions or self.is_past(seen.topic):
            self.trace(f"finds {self.topic.name}: {code_name(seen.code)}")
            self.again_soon(self._find_topic)
            return
        self.topic, self.partitions, self.leaders = seen.topic, seen.partitions, seen.leaders
        self.meet(seen)
        self.topic_ready()
        if len(self.leaders) < len(seen.partitions):
            self.refresh_leaders()

    def meet(self, seen: messages.TopicMetadata) -> None:
        """Record the topic's description."""
        self.record(history.TopicDescribed(seen.topic.name, seen.topic.id, len(seen.partitions)))

    def is_past(self, topic: messages.TopicName) -> bool:
        """Return whether a node describes a topic that the client knows to be deleted."""
        return False

    def refresh_leaders(self) -> None:
        """Request metadata after a short pause, and continue meanwhile."""
        if self._is_refreshing:
            return
        self._is_refreshing = True
        link = self.link

        def refresh() -> None:
            if link is self.link:
                self._get_metadata(self._refreshed)

        self.later(self.rng.randrange(20_000, 200_000), refresh)

    def _refreshed(self, seen: messages.TopicMetadata) -> None:
        self._is_refreshing = False
        if not seen.code and seen.partitions:
            self.refreshed(seen)
        if len(self.leaders) < len(seen.partitions):
            self.refresh_leaders()

    def refreshed(self, seen: messages.TopicMetadata) -> None:
        """New metadata has arrived."""
        self.leaders = seen.leaders


class Admin(Client):
    """Creates the topics of a run."""

    def __init__(self, context: ClientContext, topics: list[messages.NewTopic]) -> None:
        super().__init__("admin", context)
        self._topics = topics

    @property
    def is_idle(self) -> bool:
        return not self._topics

    def ready(self) -> None:
        if self._topics and self.link is not None:
            self.call(messages.create_topics(self._topics), self._created)

    def _created(self, created: dict[str, messages.TopicCreated]) -> None:
        for name, (code, _) in created.items():
            self.trace(f"creates {name}: {code_name(code)}")
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._topics = [each for each in self._topics if each.name != name]
            elif code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
                raise ValueError(f"the scenario's topic {name} was rejected: {code_name(code)}")
        if self._topics:
            self.later(20_000, self.ready)
