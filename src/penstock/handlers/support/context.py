"""What a handler is given: the call it answers, who called, and the node it acts on.

A handler is a plain function of a `Context` and a `Call`. It returns the response, or a `Promise` where something
must happen first: records committed, a disk synced, bytes arrived. What it raises as a `KafkaError` is for the
response's own error field where it has one; see `dispatch`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.base.client_memory import ClientMemory
from penstock.base.metrics import Metrics
from penstock.base.ordered_set import OrderedSet
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.handlers.support.response_builder import ResponseBuilder
from penstock.metadata import Broker, BrokerSettings, ClusterImage
from penstock.metadata.controller.port import ControllerPort
from penstock.wire import ProducePrefix

if TYPE_CHECKING:
    from penstock.coordinator.runtime import (
        GroupCoordinatorService,
        MarkerWriter,
        TransactionCoordinatorService,
    )
    from penstock.handlers.fetch import DelayedFetch
    from penstock.handlers.producer_ids import ProducerIds
    from penstock.handlers.support.commit_fast_path import CommitFastPath
    from penstock.handlers.support.fetch_sessions import FetchSessions
    from penstock.handlers.support.follower_fetch import DelayedFollowerFetch
    from penstock.handlers.support.produce_fast_path import ProduceFastPath
    from penstock.raft.describe import QuorumDescription
    from penstock.raft.messages import Reply, Request
    from penstock.raft.voters import VoterSet
    from penstock.replica import Replicas
    from penstock.replica.broker_client import BrokerClient
    from penstock.wire.peers import Address, Peers


class Operation(IntEnum):
    """The protocol's numbers for what may be allowed."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclResourceType(IntEnum):
    """The protocol's numbers for what it is allowed on."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who they are."""

CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""


class Session:
    """One client's connection, as handlers see it."""

    __slots__ = (
        "commits",
        "end",
        "fetch",
        "gone",
        "host",
        "listener",
        "metadata_ns",
        "peer",
        "port",
        "prefix",
        "principal",
        "route",
    )

    def __init__(
        self,
        host: str,
        port: int,
        peer: str,
        listener: str = "PLAINTEXT",
        end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.host, self.port = host, port
        """The address that the client dialled."""
        self.peer = peer
        self.listener = listener
        self.principal = ANONYMOUS
        self.end = end
        """Close the connection, for a reason."""
        self.gone: Callable[[], None] | None = None
        """Called when the connection is over; of a broker's heartbeats, whose end tells something."""
        self.fetch: DelayedFetch | DelayedFollowerFetch | None = None
        """The fetch that waits for records; there is one at most."""
        self.metadata_ns = -(1 << 62)
        """When it last asked for metadata, or was answered."""
        self.prefix: ProducePrefix | None = None
        """What this client's Produce requests have in common; made with the first of them."""
        self.route: ProduceFastPath | None = None
        """Where the last of them went, and the next ones go faster."""
        self.commits: CommitFastPath | None = None
        """The same for what it commits."""


class Call(NamedTuple):
    session: Session
    version: int
    message: Any
    """The request, as kio has it."""
    make: ResponseBuilder
    """The classes of the response, in the call's version."""
    client_id: str | None


class PeerGateway(Protocol):
    """Requests between the gateways of brokers, sent in Envelope requests."""

    def answer(self, session: Session, request: bytes) -> Promise[bytes]:
        """Handle a request of another broker's gateway. Fails with INVALID_REQUEST if it is not one."""

    def send(
        self,
        broker_id: int,
        request: Any,
        *,
        session: Session | None = None,
        about: int = 0,
        wait_ms: int = 0,
        timeout_ms: int = 35_000,
    ) -> Promise[Any]:
        """Send a request to another broker's gateway. Requests `about` the same number are answered in order; with
        `wait_ms` the other broker may wait that long for something to happen."""

    @property
    def watcher(self) -> "RemoteWatch": ...


class RemoteWatch(Protocol):
    """Watches partitions that other brokers lead, by topic id and number."""

    def watch(self, key: tuple[bytes, int], watcher: Any, known_end: int) -> None: ...

    def unwatch(self, key: tuple[bytes, int], watcher: Any) -> None: ...

    def recent(self, key: tuple[bytes, int], offset: int) -> Any:
        """What was fetched last of a partition, if it starts at that offset."""


class BrokerLivenessPort(Protocol):
    def heard(self, session: Session, broker_id: int, broker_epoch: int) -> None:
        """A broker's heartbeat was taken, on this connection."""


class QuorumPort(Protocol):
    def describe(self) -> "QuorumDescription": ...

    def receive(self, request: "Request") -> Promise["Reply"]:
        """A request of another replica or of an operator, which names this cluster and the metadata log."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_address(self) -> "Address | None":
        """Where the active controller listens; None where that is not known, or is here."""

    @property
    def epoch(self) -> int: ...

    @property
    def role(self) -> str:
        """One of Raft's, or `observer` for a follower without a vote."""

    @property
    def elections(self) -> int:
        """In which this node stood."""

    @property
    def is_recovering(self) -> bool:
        """Whether it stands in no election, because its log lost records that were synced."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def voters(self) -> "VoterSet": ...

    @property
    def cluster_id_in_log(self) -> str:
        """The id that the beginning of the metadata log names, committed or not; empty if it names none."""

    @property
    def request_timeout_ms(self) -> int:
        """`controller.quorum.request.timeout.ms`"""


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class Context:
    """The node, as handlers see it. One for all calls."""

    world: World
    node_id: int
    cluster_id: str
    """Empty where the node's directory is new, until the metadata log has told it."""
    settings: BrokerSettings
    replicas: "Replicas"
    controller: ControllerPort
    quorum: QuorumPort
    fetch_sessions: "FetchSessions"
    producer_ids: "ProducerIds"
    groups: "GroupCoordinatorService"
    transactions: "TransactionCoordinatorService"
    markers: "MarkerWriter"
    broker_client: "BrokerClient"
    image: ClusterImage
    """As far as it is committed and acted on. Replaced whole when the metadata log moves."""
    image_watchers: OrderedSet[Callable[[], None]] = field(default_factory=OrderedSet)
    """Called when it was. They take themselves out."""
    fetch_bytes_max: int = 55 * 2**20
    """`fetch.max.bytes`: the most that one fetch is answered with."""
    client_memory: ClientMemory | None = None
    """Says how much of a fetch is read ahead of its client; None for all of it."""
    advertised: dict[str, Endpoint] = field(default_factory=dict)
    """By listener, what `advertised.listeners` says; where it says nothing, clients are told what they dialled."""
    metrics: Metrics = field(default_factory=Metrics)
    peer_gateway: Callable[[], PeerGateway] | None = None
    """Created at the first call, whether or not this node serves HTTP or the line protocol."""
    peers: "Peers | None" = None
    """How other nodes are asked; None for a node alone."""
    liveness: BrokerLivenessPort | None = None
    """Of the controllers' listener: who watches over the brokers that heartbeat there."""

    def authorize(self, session: Session, operation: Operation, on: AclResourceType, name: str) -> bool:
        """Whether this client may. Everybody may, until there are ACLs."""
        return True

    def endpoint(self, broker: Broker, session: Session) -> Endpoint | None:
        """Where this client reaches a broker; None if not through its listener."""
        if broker.id == self.node_id:
            return self.advertised.get(session.listener) or Endpoint(session.host, session.port)
        for each in broker.endpoints:
            if each.name == session.listener:
                return Endpoint(each.host, each.port)
        return None
