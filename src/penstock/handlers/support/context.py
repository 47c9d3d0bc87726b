"""The arguments of a handler: the call, its session, and the node.

A handler is a function of a `Context` and a `Call`. It returns the response, or a `Promise` of it where something must
happen first: records committed, a disk synced, bytes arrived. Errors go into the response's error fields; a
`KafkaError` that a handler raises closes the connection.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from penstock.base.client_memory import ClientMemory
from penstock.base.metrics import Metrics
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.image import Broker, ClusterImage
from penstock.wire.messages import MessageBuilder

if TYPE_CHECKING:
    from penstock.controlplane.quorum import MetadataQuorum
    from penstock.coordinator.runtime.group_service import GroupCoordinatorService
    from penstock.coordinator.runtime.transaction_markers import MarkerWriter
    from penstock.coordinator.runtime.transaction_service import TransactionCoordinatorService
    from penstock.handlers.producer_ids import ProducerIds
    from penstock.handlers.sasl import LoginDispatcher
    from penstock.handlers.support.commit_fast_path import CommitFastPath
    from penstock.handlers.support.fetch_sessions import FetchSessions
    from penstock.handlers.support.produce_fast_path import ProduceFastPath
    from penstock.metadata.delegation_tokens import TokenKeys
    from penstock.replica import Replicas
    from penstock.replica.broker_client import BrokerClient
    from penstock.security.audit import AuditLog
    from penstock.security.authorizer import Authorizer
    from penstock.security.client_quotas import ClientQuotas, ClientShare
    from penstock.wire.peers import Peers


ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that is not authenticated."""


class Delayed(Protocol):
    """A request that waits."""

    def cancel(self) -> None:
        """Stop waiting, without a reply."""


class ConnectionState:
    """What handlers keep for one connection between its requests."""

    __slots__ = ("commit", "fetch", "is_exempt", "metadata_ns", "on_close", "produce", "share", "took_ns")

    def __init__(self) -> None:
        self.produce: ProduceFastPath | None = None
        """Set by the first Produce request."""
        self.commit: CommitFastPath | None = None
        """Set by the first OffsetCommit."""
        self.fetch: Delayed | None = None
        """The fetch that waits for records; a connection has one at most."""
        self.metadata_ns = -(1 << 62)
        """When Metadata was last requested or answered (`metadata_delay`)."""
        self.on_close: Callable[[], None] | None = None
        """Called when the connection is closed; set on connections that carry a broker's heartbeats."""
        self.share: ClientShare | None = None
        """The quotas of the client; set while the cluster has some."""
        self.is_exempt = False
        """The last request is one of a broker, to which no quota applies."""
        self.took_ns = 0
        """How long the last request took the loop, if the client has quotas."""


class Session:
    """One client's connection."""

    __slots__ = (
        "_client_address",
        "client_id",
        "end",
        "host",
        "is_by_token",
        "is_forwarded",
        "listener",
        "login",
        "mute",
        "peer",
        "port",
        "principal",
        "request",
        "state",
    )

    def __init__(
        self,
        host: str,
        port: int,
        peer: str,
        listener: str = "PLAINTEXT",
        end: Callable[[str], None] = lambda _: None,
        mute: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.host, self.port = host, port
        """The address that the client connected to."""
        self.peer = peer
        self.listener = listener
        self.principal = ANONYMOUS
        self.is_by_token = False
        """The client logged in with a delegation token."""
        self.is_forwarded = False
        """Set at a controller for requests that a broker forwards in an Envelope."""
        self.login: LoginDispatcher | None = None
        """Set on connections to SASL listeners."""
        self.end = end
        """Close the connection, and log the reason."""
        self.mute = mute
        """Handle no request for some milliseconds; 0 ends it."""
        self.state = ConnectionState()
        self.request: str | None = None
        """For the audit: the API, route or command that the session is for; None on the session of a connection."""
        self.client_id: str | None = None
        """For the audit: of the last request."""
        self._client_address: str | None = None

    def within(self, request: str, client_id: str | None) -> "Session":
        """The session of one request on this connection."""
        other = Session(self.host, self.port, self.peer, self.listener, self.end, self.mute)
        other.principal, other.is_by_token = self.principal, self.is_by_token
        other.login, other.state = self.login, self.state
        other.request, other.client_id = request, client_id
        other._client_address = self._client_address
        return other

    @property
    def client_address(self) -> str:
        """The client's address in Java's format, without the port, as ACLs have it."""
        if self._client_address is None:
            self._client_address = java_address(self.peer.rpartition(":")[0])
        return self._client_address


def java_address(host: str) -> str:
    """An IPv6 address with all its groups; anything else as it is."""
    if ":" in host:
        with suppress(ValueError):
            address, percent, zone = host.partition("%")
            groups = IPv6Address(address).exploded.split(":")
            return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone
    return host


class Call(NamedTuple):
    session: Session
    version: int
    message: Any
    """The request, as kio reads it."""
    make: MessageBuilder
    """The classes of the response in the call's version."""
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
        order_key: int = 0,
        wait_ms: int = 0,
        timeout_ms: int = 35_000,
    ) -> Promise[Any]:
        """Send a request to another broker's gateway. Requests with the same `order_key` are answered in order; with
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
        """The controller accepted a broker's heartbeat from this connection."""


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class Context:
    """The node; shared by all calls."""

    world: World
    node_id: int
    cluster_id: str
    """Empty on a node with a new directory until it has read the id from the metadata log."""
    settings: BrokerSettings
    replicas: "Replicas"
    controller: ControllerPort
    quorum: "MetadataQuorum"
    fetch_sessions: "FetchSessions"
    producer_ids: "ProducerIds"
    groups: "GroupCoordinatorService"
    transactions: "TransactionCoordinatorService"
    markers: "MarkerWriter"
    broker_client: "BrokerClient"
    image: ClusterImage
    """The latest committed image that this node has applied. Replaced as a whole."""
    metadata_end: int = 0
    """All committed records of the metadata log below this offset are in `image`."""
    image_watchers: dict[Callable[[], None], None] = field(default_factory=dict)
    """Called in this order when `image` is replaced. Watchers remove themselves."""
    fetch_bytes_max: int = 55 * 2**20
    """`fetch.max.bytes`: limit of one fetch response."""
    client_memory: ClientMemory | None = None
    """Limits how much of a fetch response is read before the client takes it; None for no limit."""
    advertised: dict[str, Endpoint] = field(default_factory=dict)
    """`advertised.listeners`, by listener. A listener without an entry advertises the address the client used."""
    metrics: Metrics = field(default_factory=Metrics)
    peer_gateway: Callable[[], PeerGateway] | None = None
    """Created at the first call, whether or not this node serves HTTP or the line protocol."""
    peers: "Peers | None" = None
    """Connections to controllers; None on a single node."""
    token_keys: "TokenKeys | None" = None
    """The keys of delegation tokens; None if tokens are off."""
    authorizer: "Authorizer | None" = None
    """None if every client may do everything."""
    audit: "AuditLog | None" = None
    """None if the audit is off."""
    audit_topic: str = ""
    """Where the audit is written, which clients cannot write to; empty for none."""
    quotas: "ClientQuotas | None" = None
    """None if the cluster has no quotas of users and client ids."""
    liveness: BrokerLivenessPort | None = None
    """At the controllers' listener: watches the brokers that send heartbeats there."""

    def authorize(self, session: Session, operation: Operation, on: AclResourceType, name: str) -> bool:
        """Whether the session's principal may do what it has asked for. The audit records the decision."""
        authorizer = self.authorizer
        if self.audit is not None:
            return self.audit.allows(session, operation, on, name, authorizer)
        return authorizer is None or authorizer.allows(
            session.principal, session.client_address, operation, on, name
        )

    def permits(self, session: Session, operation: Operation, on: AclResourceType, name: str) -> bool:
        """The same without the audit: for what a client has not named, such as each topic of a list, and for one of
        several rules that would do."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(
            session.principal, session.client_address, operation, on, name
        )

    def permits_any(self, session: Session, operation: Operation, on: AclResourceType) -> bool:
        """Whether the session's principal may do this with any resource of a type."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows_any(
            session.principal, session.client_address, operation, on
        )

    def endpoint(self, broker: Broker, session: Session) -> Endpoint | None:
        """Where this client reaches a broker; None if the broker does not have the client's listener."""
        if broker.id == self.node_id:
            return self.advertised.get(session.listener) or Endpoint(session.host, session.port)
        for each in broker.endpoints:
            if each.name == session.listener:
                return Endpoint(each.host, each.port)
        return None


Handler: TypeAlias = Callable[[Context, Call], Any]
"""Returns the response, or a `Promise` of it."""
