"""A node: everything below put together, from the sockets' bytes to the disk and back.

    connections --> dispatcher --> handlers --> replicas --> logs
                                      |             ^
                                      v             | the image, as the metadata log moves
                              active controller --> quorum --> __cluster_metadata-0

It touches nothing but its world, its disk and its connections: the same code runs on a real machine and in the
simulator. Everything happens on one loop; `start` and `stop` say by a call when they are done.

A start: the directory is locked and its logs recovered; the metadata log is read; the quorum elects a leader, which
for a quorum of one is this node; the broker registers and is unfenced; clients are served.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from penstock.base.ids import LeaderEpoch, Offset, random_uuid, uuid_from_text
from penstock.base.metrics import Metrics
from penstock.base.world import World
from penstock.handlers.context import Context
from penstock.handlers.dispatch import Dispatcher
from penstock.handlers.fetch_sessions import FetchSessions
from penstock.handlers.producer_ids import ProducerIds
from penstock.metadata import (
    EMPTY,
    AnyRecord,
    BrokerSettings,
    ClusterImage,
    bootstrap_records,
    delta,
)
from penstock.metadata.configs import broker_setting, min_insync_replicas
from penstock.metadata.controller.requests import RegisterBroker
from penstock.metadata.image import ResourceType
from penstock.metadata.schema import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    Endpoint,
    UserScramCredentialRecord,
)
from penstock.metadata.versions import SUPPORTED
from penstock.raft.config import RaftConfig
from penstock.replica import Durability, Replicas
from penstock.replica.checkpointing import LastCheckpoints
from penstock.replica.housekeeping import Housekeeping
from penstock.runtime import Groups, MarkerWriter, Transactions
from penstock.server.active_controller import ActiveController
from penstock.server.adoption import adopt
from penstock.server.config import NodeConfig
from penstock.server.connection import Connection
from penstock.server.connections import Connections
from penstock.server.doors import DoorConnection, MakeDoor, load
from penstock.server.lifecycle import Lifecycle
from penstock.server.quorum import MetadataQuorum, QuorumSettings
from penstock.server.turn import Turn
from penstock.storage import DirectoryRefused, LogDirectory, StorageError, open_directory
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.gateway.gateway import Gateway
    from penstock.gateway.idempotency import IdempotencyKeys
    from penstock.gateway.wire import Door

logger = logging.getLogger(__name__)

NODE_ID_DEFAULT = 1
STRAYS_SHOWN_MAX = 5


_GUARDS: Final[dict[type[AnyRecord], str]] = {
    AccessControlEntryRecord: "ACLs, which are not enforced",
    UserScramCredentialRecord: "users with passwords (SCRAM), who are not asked for them",
    DelegationTokenRecord: "delegation tokens, which are not asked for",
}
"""What keeps people out of a cluster, and would not here."""


class Node:
    """A `QuorumListener`: the metadata log tells it what is committed."""

    directory: LogDirectory
    context: Context
    quorum: MetadataQuorum

    def __init__(self, world: World, vfs: Vfs, config: NodeConfig) -> None:
        self._world = world
        self._vfs = vfs
        self._config = config
        self._metrics = Metrics()
        self._metrics.started_ns = world.clock_ns()
        self._turn = Turn(world, metrics=self._metrics)
        self._image = EMPTY
        """All that is committed; `context.image` is what has been acted on."""
        self._published = EMPTY
        """What has been given out to be acted on."""
        self._is_stopping = False
        self._doors: dict[str, Door] = {}

    # -- starting --------------------------------------------------------------------------------------

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Begin. What is wrong with the directory or the settings is raised; what goes wrong later is told to
        `failed`, and then the node is of no more use."""
        self._ready = ready
        self._failed = failed
        self.directory = self._open_directory()
        try:
            self._compose()
            self.quorum.start()
        except BaseException:
            self.abandon()
            raise

    def _open_directory(self) -> LogDirectory:
        wanted = self._config.node_id
        directory = open_directory(
            self._vfs,
            self._config.data,
            now_ms=self._world.now_ms(),
            rng=self._world.rng,
            node_id=NODE_ID_DEFAULT if wanted is None else wanted,
            open_files_max=self._config.open_files_max,
        )
        found = directory.identity.node_id
        if wanted not in (None, found):
            directory.abandon()
            raise DirectoryRefused(
                f"{directory.layout.logs} belongs to node {found}, but node.id is {wanted}"
            )
        return directory

    def _compose(self) -> None:
        world, config, directory = self._world, self._config, self.directory
        identity = directory.identity
        # The id may come from the directory; it is described as a setting all the same.
        own = {"node.id": str(identity.node_id), **config.settings}
        settings = BrokerSettings(identity.node_id, own)
        replicas = Replicas(
            world,
            directory,
            identity.node_id,
            settings,
            Durability(config.setting("durability.fsync")),
            self._turn.write_later,
        )
        self.quorum = MetadataQuorum(
            world,
            self._vfs,
            directory.files,
            directory.layout.logs,
            node_id=identity.node_id,
            directory_id=uuid_from_text(identity.directory_id),
            cluster_id=identity.cluster_id,
            settings=_quorum_settings(config),
            listener=self,
        )
        self._controller = ActiveController(
            world,
            self.quorum.propose,
            cluster_id=identity.cluster_id,
            settings=settings,
            session_timeout_ms=config.number("broker.session.timeout.ms"),
        )
        self._lifecycle = Lifecycle(
            world,
            self._controller,
            heartbeat_interval_ms=config.number("broker.heartbeat.interval.ms"),
            metadata_offset=lambda: self.context.image.offset,
            failed=self._failed,
        )
        producer_ids = ProducerIds(self._controller, identity.node_id, lambda: self._lifecycle.epoch)
        groups = Groups(world, replicas, settings, lambda: self.context.image)
        markers = MarkerWriter(world, replicas, groups)
        self.context = Context(
            world=world,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            settings=settings,
            replicas=replicas,
            controller=self._controller,
            quorum=self.quorum,
            fetch_sessions=FetchSessions(
                config.number("max.incremental.fetch.session.cache.slots"), world.rng
            ),
            producer_ids=producer_ids,
            groups=groups,
            transactions=Transactions(
                world, replicas, settings, lambda: self.context.image, producer_ids, markers
            ),
            markers=markers,
            image=EMPTY,
            fetch_bytes_max=config.number("fetch.max.bytes"),
            advertised=dict(config.advertised),
            metrics=self._metrics,
        )
        self._housekeeping = Housekeeping(
            world, directory, replicas, settings, lambda: self.context.image, self._metrics.upkeep
        )
        self._connections = Connections(
            world,
            self._turn,
            Dispatcher(self.context),
            lambda name: int(broker_setting(name, self.context.image, settings) or 0),
        )
        self._keys = self._idempotency_keys()

    def _idempotency_keys(self) -> "IdempotencyKeys | None":
        """Those of earlier lives, doors or not: logs let no record go whose key is not saved, and what the logs lost
        is seen only before they are written to."""
        if self._vfs.stat(self.directory.layout.idempotency) is None:
            return None
        from penstock.gateway.idempotency import IdempotencyKeys  # noqa: PLC0415  # few nodes have any

        return IdempotencyKeys(self.context)

    # -- following the metadata log --------------------------------------------------------------------

    def loaded(self, image: ClusterImage) -> None:
        self._image = image

    def committed(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        self._image = self._image.replay(records, offset, epoch)

    def image(self) -> ClusterImage:
        return self._image

    def advanced(self, high_watermark: Offset) -> None:
        """Act on what was committed, then let those go on who waited for it."""
        old, new = self._published, self._image
        self._published = new
        changed = delta(old, new)
        context = self.context

        def acted() -> None:
            context.image = new
            context.groups.follow(new, changed)
            context.transactions.follow(new)
            self._controller.advanced(high_watermark)
            for watcher in list(context.image_watchers):
                watcher()

        context.replicas.apply(new, changed, acted)

    def leading(self, epoch: LeaderEpoch) -> None:
        image = self._image
        refusal = self._refusal(image)
        if refusal is not None:
            self._failed(refusal)
            return
        self._tell_what_is_not_acted_on(image)
        self._controller.lead(image, epoch)
        if not image.features:
            self._controller.write(self._first_records())
            found = adopt(self.directory, self.context.node_id, self._world.rng)
            if found:
                self._controller.write(found)
        if self._lifecycle.epoch < 0:
            self._lifecycle.join(self._registration(), self._unfenced)

    def _first_records(self) -> Sequence[AnyRecord]:
        """What a new cluster begins with: what its directory was formatted with, or else the defaults."""
        needed = min_insync_replicas("", self._image, self.context.settings)
        return self.quorum.bootstrap or list(bootstrap_records(min_insync_replicas=needed))

    def resigned(self, epoch: LeaderEpoch) -> None:
        self._controller.resign()

    def failed(self, reason: str) -> None:
        self._failed(reason)

    def _refusal(self, image: ClusterImage) -> str | None:
        """Why this node may not serve such a cluster."""
        others = sorted(each.key.id for each in self.quorum.voters if each.key.id != self.context.node_id)
        if others:
            return f"the quorum has other voters ({', '.join(map(str, others))}), and clusters are not served yet"
        for kind, what in _GUARDS.items():
            if any(isinstance(each, kind) for each in image.kept.values()):
                return f"the cluster has {what} yet: serving it would let everybody do everything"
        return None

    def _tell_what_is_not_acted_on(self, image: ClusterImage) -> None:
        quotas = sum(isinstance(each, ClientQuotaRecord) for each in image.kept.values())
        groups = sum(resource.type == ResourceType.GROUP for resource in image.configs)
        for count, what in ((quotas, "quotas of clients"), (groups, "groups with settings of their own")):
            if count:
                logger.warning("the cluster has %d %s, which are kept but not acted on yet", count, what)

    # -- the broker's life -----------------------------------------------------------------------------

    def _registration(self) -> RegisterBroker:
        identity = self.directory.identity
        return RegisterBroker(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=random_uuid(self._world.rng),
            endpoints=tuple(
                Endpoint(name=name, host=each.host or "localhost", port=each.port, security_protocol=0)
                for name, each in {**self._config.listeners, **self._config.advertised}.items()
            ),
            features=SUPPORTED,
            log_dirs=(uuid_from_text(identity.directory_id),),
            rack=self._config.setting("broker.rack"),
            previous_epoch=self.directory.former_broker_epoch,
        )

    def _unfenced(self) -> None:
        self.directory.broker_epoch = self._lifecycle.epoch
        strays = self.context.replicas.strays()
        if strays:
            shown = ", ".join(str(each.partition) for each in strays[:STRAYS_SHOWN_MAX])
            logger.warning(
                "%d partitions on disk belong to no topic and are not served: %s", len(strays), shown
            )
        self._housekeeping.start()
        self._connections.start()
        logger.info(
            "node %d of cluster %s serves %d partitions from %s",
            self.context.node_id,
            self.context.cluster_id,
            len(self.context.replicas.partitions),
            self.directory.layout.logs,
        )
        self._ready()

    def connection(self, listener: str) -> Connection:
        """The protocol of a client that has just connected."""
        return self._connections.accept(listener)

    # -- the other doors -------------------------------------------------------------------------------

    def open_doors(self, opened: Callable[[], None]) -> None:
        """Load what is spoken at them, beside the loop; then `door` may be called."""

        def loaded(makers: dict[str, MakeDoor] | None, error: Exception | None) -> None:
            if self._is_stopping:
                return
            if makers is None:
                logger.error("the doors cannot be opened", exc_info=error)
                self._failed(f"the doors cannot be opened: {error}")
                return
            gateway = self.gateway
            gateway.start()
            self._doors = {name: make(gateway) for name, make in makers.items()}
            opened()

        names = tuple(self._config.doors)
        self._world.beside(lambda: load(names), loaded)

    @cached_property
    def gateway(self) -> "Gateway":
        """What the doors share; there is none before somebody asks."""
        from penstock.gateway.gateway import Gateway  # noqa: PLC0415  # loaded with the doors, not before

        return Gateway(self.context, self.directory, self._vfs, self._keys)

    def door(self, name: str) -> DoorConnection:
        """The protocol of a client that has just connected at a door."""
        return self._connections.accept_at(self._doors[name], name)

    # -- stopping --------------------------------------------------------------------------------------

    def stop(self, done: Callable[[], None]) -> None:
        """Stop cleanly: hand over, answer who waits, sync everything, and note that it was so."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._stopped = done
        self._lifecycle.leave(self._left)

    def _left(self) -> None:
        self._housekeeping.stop()
        if self._doors:
            self.gateway.stop()
        if self._keys is not None:
            self._keys.stop()
        self.context.groups.shards.close()
        self.context.transactions.shards.close()
        self.context.replicas.step_down()
        self._connections.close()
        self.context.replicas.lane.when_idle(self._checkpoint)

    def _checkpoint(self) -> None:
        LastCheckpoints(self.directory, self.context.replicas.lane, lambda: self.quorum.stop(self._close))

    def _close(self) -> None:
        try:
            self.directory.close()
        except StorageError as error:
            logger.error("%s; the next start recovers", error)
        self._stopped()

    def abandon(self) -> None:
        """Let go of everything as a crash would."""
        self._is_stopping = True
        if hasattr(self, "_connections"):
            self._connections.abort()
        if hasattr(self, "quorum"):
            self.quorum.abandon()
        if hasattr(self, "directory"):
            self.directory.abandon()


def _quorum_settings(config: NodeConfig) -> QuorumSettings:
    number = config.number
    return QuorumSettings(
        raft=RaftConfig(
            election_timeout_ms=number("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=number("controller.quorum.fetch.timeout.ms"),
            request_timeout_ms=number("controller.quorum.request.timeout.ms"),
        ),
        segment_bytes=number("metadata.log.segment.bytes"),
        segment_ms=number("metadata.log.segment.ms"),
        snapshot_bytes=number("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=number("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=number("metadata.max.retention.bytes"),
        retention_ms=number("metadata.max.retention.ms"),
    )
