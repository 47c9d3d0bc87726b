"""This node's part in the control plane: the metadata quorum, the controller while active here, and the router to it.

    router --> active controller --> quorum (leader) --> __cluster_metadata-0
       |           ^                    |  ^
       |           broker liveness      v  |
       +------> the active controller of another node, other controllers

A node that is only a broker follows the metadata log without a vote, and its `ActiveController` is never active.
"""

import logging
from collections.abc import Callable, Iterable

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, Offset, random_uuid, uuid_from_text
from penstock.base.world import World
from penstock.controlplane.active_controller import ActiveController
from penstock.controlplane.cluster_id_check import ClusterIdCheck
from penstock.controlplane.controller_router import ControllerRouter
from penstock.controlplane.quorum import MetadataQuorum
from penstock.controlplane.quorum_settings import QuorumListener, QuorumSettings
from penstock.controlplane.quorum_transport import PeerTransport
from penstock.handlers.support.context import Context
from penstock.handlers.support.context import Endpoint as Address
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller.requests import RegisterController
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import Endpoint as RegisteredEndpoint
from penstock.metadata.versions import SUPPORTED
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.server.broker_liveness import BrokerLiveness
from penstock.server.cluster_config import ClusterConfig
from penstock.server.config import NodeConfig
from penstock.server.listeners import PLAINTEXT, PROTOCOL_NUMBERS
from penstock.storage import LogDirectory, StorageError
from penstock.vfs import Vfs
from penstock.wire.peers import Peers

logger = logging.getLogger(__name__)

REGISTER_AGAIN_MS = 1000


class ControlPlane:
    def __init__(
        self,
        world: World,
        vfs: Vfs,
        directory: LogDirectory,
        config: NodeConfig,
        settings: BrokerSettings,
        peers: Peers,
        context: Callable[[], Context],
        listener: QuorumListener,
    ) -> None:
        """Raises if the metadata log cannot be opened."""
        identity, cluster = directory.identity, config.cluster
        self._world = world
        self._node_id = identity.node_id
        self._cluster = cluster
        self._context = context
        quorum_settings = quorum_settings_of(config, identity.node_id)
        own = quorum_settings.endpoints
        configured = len(cluster.voters) or len(cluster.bootstrap)
        self._cluster_id_check = ClusterIdCheck(configured, identity.cluster_id, listener.failed)
        self.transport = PeerTransport(
            peers,
            identity.cluster_id,
            quorum_settings.raft,
            quorum_settings.listener,
            self._cluster_id_check,
        )
        self.quorum = MetadataQuorum(
            world,
            vfs,
            directory.files,
            directory.layout.logs,
            directory.layout.meta,
            node_id=identity.node_id,
            directory_id=uuid_from_text(identity.directory_id),
            settings=quorum_settings,
            listener=listener,
            transport=self.transport,
        )
        self.active = ActiveController(
            world,
            self.quorum.propose,
            cluster_id=identity.cluster_id,
            settings=settings,
            session_timeout_ms=config.number("broker.session.timeout.ms"),
        )
        self.router = ControllerRouter(
            world,
            self.active,
            peers,
            leader_address=lambda: self.quorum.leader_address,
            image=lambda: context().image,
            watchers=lambda: context().image_watchers,
            timeout_ms=lambda: config.number("request.timeout.ms"),
            heartbeat_interval_ms=config.number("broker.heartbeat.interval.ms"),
        )
        self.liveness = BrokerLiveness(
            world,
            self.active,
            lambda: context().image,
            node_id=identity.node_id,
            listener=cluster.listener,
        )
        self._registration = RegisterController(
            controller_id=identity.node_id,
            incarnation_id=random_uuid(world.rng),
            endpoints=tuple(
                RegisteredEndpoint(
                    name=each.listener,
                    host=each.host,
                    port=each.port,
                    security_protocol=PROTOCOL_NUMBERS[config.protocols.get(each.listener, PLAINTEXT)],
                )
                for each in own
            ),
            features=SUPPORTED,
        )
        self._is_registered = not (cluster.is_controller and own)
        if self.is_only_voter and self.quorum.lost_end is not None:
            raise StorageError(self.loss)

    @property
    def loss(self) -> str:
        """What this node's metadata log has lost, and what to do about it; empty if nothing is lost."""
        quorum, lost = self.quorum, self.quorum.lost_end
        if lost is None:
            return ""
        missing = (
            f"{quorum.directory} ends at offset {quorum.end_offset}, but was synced to offset {lost.offset}: the end "
            "of the metadata log is lost"
        )
        if not self.is_only_voter:
            return (
                f"{missing}, and no controller that has it was found. Start the other controllers, or see 'Lost "
                "metadata' in docs/cluster.md"
            )
        return (
            f"{missing}. Restore the directory from a copy, or remove {quorum.synced_path} to continue with what is "
            "left: partitions of lost topics become strays or, if no metadata is left, topics with default settings"
        )

    @property
    def is_only_voter(self) -> bool:
        """Whether this node is the only voter, and its configuration names no others. It takes the same path as any
        quorum, but for three things: lost metadata is lost for good, because no other node has a copy; partitions
        without metadata may be adopted, because no other node knows their topics; and the broker registers after the
        first records of the new cluster are written."""
        others = [each for each in self.quorum.voters if each.key.id != self._node_id]
        return self._cluster.is_controller and not others and not self._cluster.bootstrap

    def join_cluster(self, cluster_id: str) -> None:
        """Use the cluster id that was found in the metadata log."""
        self.transport.cluster_id = self.active.cluster_id = self._cluster_id_check.cluster_id = cluster_id

    def lead(self, image: ClusterImage, epoch: LeaderEpoch) -> None:
        if not self.is_only_voter:
            logger.info("this node is the active controller in epoch %d", epoch)
        self.active.lead(image, epoch)
        self.liveness.begin()
        # Pending requests are sent after the first records of a new cluster: a registration before them would be
        # written in the oldest metadata version, without its log directories.
        self._world.call_soon(self.router.look_again)

    def resign(self) -> None:
        logger.info("this node is no longer the active controller")
        self.active.resign()
        self.liveness.end()

    def committed(self, high_watermark: Offset) -> None:
        """All records below are committed."""
        self.active.committed(high_watermark)

    def advanced(self, high_watermark: Offset) -> None:
        """This node's image has all records below."""
        self.active.advanced(high_watermark)
        self.router.look_again()
        if not self._is_registered and self._context().image.features:
            self._is_registered = True
            self._register()

    def _register(self) -> None:
        """Register this controller's endpoints and features."""

        def failed(error: KafkaError) -> None:
            logger.info("cannot register this controller yet, trying again: %s", error)
            self._world.call_later(REGISTER_AGAIN_MS, self._register)

        self.router.submit(self._registration).then(lambda _: None, failed)


def quorum_settings_of(config: NodeConfig, node_id: int) -> QuorumSettings:
    """The quorum's settings of a node. The node id comes from its data directory."""
    number, cluster = config.number, config.cluster
    return QuorumSettings(
        endpoints=_own_endpoints(cluster, node_id),
        listener=cluster.controller_listener,
        voters=_voters(cluster),
        bootstrap=tuple(
            Endpoint(cluster.controller_listener, each.host, each.port) for each in _bootstrap(cluster)
        ),
        is_standalone=cluster.is_standalone,
        raft=RaftConfig(
            election_timeout_ms=number("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=number("controller.quorum.fetch.timeout.ms"),
            election_backoff_ms_max=number("controller.quorum.election.backoff.max.ms"),
            request_timeout_ms=number("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=number("controller.quorum.retry.backoff.ms"),
            fetch_bytes_max=number("controller.quorum.fetch.max.bytes"),
            snapshot_bytes_max=number("controller.quorum.fetch.snapshot.max.bytes"),
            auto_join=cluster.is_controller and config.flag("controller.quorum.auto.join.enable"),
        ),
        segment_bytes=number("metadata.log.segment.bytes"),
        segment_ms=number("metadata.log.segment.ms"),
        snapshot_bytes=number("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=number("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=number("metadata.max.retention.bytes"),
        retention_ms=number("metadata.max.retention.ms"),
    )


def _bootstrap(cluster: ClusterConfig) -> Iterable[Address]:
    """Addresses to ask for the leader. A broker uses its configured voters as addresses only: the log names the voters
    in force."""
    return cluster.bootstrap if cluster.is_controller or cluster.bootstrap else dict(cluster.voters).values()


def _voters(cluster: ClusterConfig) -> VoterSet:
    """The configured voters; none for a single voter, which is this node: its log has the voters in force."""
    if len(cluster.voters) <= 1 and cluster.is_controller:
        return VoterSet()
    name = cluster.controller_listener
    return VoterSet.of(
        Voter(ReplicaKey(number), (Endpoint(name, at.host, at.port),)) for number, at in cluster.voters
    )


def _own_endpoints(cluster: ClusterConfig, node_id: int) -> tuple[Endpoint, ...]:
    """The address among the voters is that of the listener that nodes connect to; another has only its host."""
    configured = dict(cluster.voters).get(node_id)
    found = []
    for name, at in cluster.controllers.items():
        own = cluster.advertised.get(name)
        if own is None and configured is not None:
            own = configured if name == cluster.controller_listener else Address(configured.host, at.port)
        own = own or at
        found.append(Endpoint(name, own.host or "localhost", own.port))
    return tuple(found)
