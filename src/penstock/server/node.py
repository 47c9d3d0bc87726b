"""A node: composes everything below, from the sockets' bytes to the disk and back.

    connections --> dispatcher --> handlers --> replicas --> logs          replicas <--> other brokers
                                      |             ^
                                      v             | images, as the metadata log advances
                              active controller --> quorum --> __cluster_metadata-0
                              (here or elsewhere)     ^
                                                      | other controllers

A node uses only its world, its disk and its connections: the same code runs on a machine and in the simulator. All of
it runs on one loop; `start` and `stop` report completion with a callback.

A start: lock the directory and recover its logs; open the metadata log; the quorum elects a leader (a quorum of one:
this node); the broker registers and is unfenced; clients are served. A node that is only a controller stops after the
quorum; a node that is only a broker follows the quorum without a vote.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.base.client_memory import ClientMemory
from penstock.base.ids import LeaderEpoch, Offset, Uuid, uuid_from_text
from penstock.base.metrics import Metrics
from penstock.base.world import World
from penstock.controlplane.adoption import adopt
from penstock.controlplane.broker_lifecycle import BrokerLifecycle
from penstock.controlplane.cluster_naming import (
    cluster_id_records,
    missing_cluster_id_reason,
    must_adopt_cluster_id,
)
from penstock.controlplane.elections import count_elections
from penstock.controlplane.quorum import MetadataQuorum
from penstock.controlplane.unsupported_features import unsupported_reason, warn_unsupported
from penstock.coordinator.runtime.group_service import GroupCoordinatorService
from penstock.coordinator.runtime.transaction_markers import MarkerWriter
from penstock.coordinator.runtime.transaction_service import TransactionCoordinatorService
from penstock.handlers.producer_ids import ProducerIds
from penstock.handlers.support.context import Context
from penstock.handlers.support.dispatch import Dispatcher
from penstock.handlers.support.fetch_sessions import FetchSessions
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.configs import BrokerSettings, broker_setting, min_insync_replicas
from penstock.metadata.controller.requests import RegisterBroker
from penstock.metadata.controller.scram_users import unknown_users_secret
from penstock.metadata.delegation_tokens import token_keys
from penstock.metadata.delta import delta
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord, Endpoint, RemoveTopicRecord
from penstock.metadata.versions import SUPPORTED
from penstock.replica import Durability, Replicas
from penstock.replica.broker_client import BrokerClient
from penstock.replica.checkpointing import LastCheckpoints
from penstock.replica.housekeeping import Housekeeping
from penstock.server.authorization import make_authorizer
from penstock.server.config import NODE_ID_DEFAULT, NodeConfig
from penstock.server.connection import Connection
from penstock.server.connection import Dispatcher as RequestDispatcher
from penstock.server.connections import Connections
from penstock.server.control_plane import ControlPlane
from penstock.server.door_config import listener_of
from penstock.server.doors import DoorConnection, MakeDoor, load
from penstock.server.listeners import PLAINTEXT, PROTOCOL_NUMBERS
from penstock.server.loop_tick import LoopTick
from penstock.server.peers import PeerConnections
from penstock.server.process import give_back_freed_memory
from penstock.storage import DirectoryRefused, LogDirectory, StorageError, open_directory
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.base.settings import LogSettings
    from penstock.client.security import ClientSecurity
    from penstock.gateway.idempotency import IdempotencyKeys
    from penstock.gateway.shared.door_logins import DoorLogins
    from penstock.gateway.shared.gateway import Gateway
    from penstock.gateway.shared.simulations import Ended
    from penstock.gateway.shared.wire import ProtocolServer
    from penstock.handlers.sasl import SaslListener
    from penstock.security.bearer import TokenValidator
    from penstock.security.client_quotas import ClientQuotas
    from penstock.server.audit import NodeAudit
    from penstock.server.connection_rates import ConnectionRates
    from penstock.server.logins import Logins
    from penstock.server.oauth import TokenValidators
    from penstock.server.oauth_config import OAuthConfig
    from penstock.server.peer_security import PeerSecurity
    from penstock.server.tls import TlsListeners
    from penstock.storage.schema_check import SchemaCheck

logger = logging.getLogger(__name__)


class Node:
    """A `QuorumListener`: the quorum publishes committed metadata to it."""

    directory: LogDirectory
    http_schemes: tuple[str, ...] = ()
    """Of a node without a gateway, as `Gateway.http_schemes`."""
    context: Context
    quorum: MetadataQuorum

    def __init__(
        self,
        world: World,
        vfs: Vfs,
        config: NodeConfig,
        *,
        data_world: World | None = None,
        dispatcher: Callable[[Context], RequestDispatcher] = Dispatcher,
    ) -> None:
        """A test may pass another world for the data plane (partitions, groups, transactions, housekeeping), to move
        its clock alone, and its own dispatcher."""
        self._world = world
        self._data_world = world if data_world is None else data_world
        self._make_dispatcher = dispatcher
        self._vfs = vfs
        self._config = config
        self._metrics = Metrics()
        self._metrics.started_ns = world.clock_ns()
        memory = ClientMemory(world, config.number("client.buffers.max.bytes"))
        memory.trim = give_back_freed_memory
        self._tick = LoopTick(world, metrics=self._metrics, memory=memory)
        self._image = EMPTY
        """The image of everything committed; `context.image` is the applied one."""
        self._published = EMPTY
        """The last image that was passed on to be applied."""
        self._has_joined = False
        """The broker has started to register."""
        self._incarnation_id: Uuid | None = None
        """Of this broker process; set when it registers."""
        self._deleted: set[Uuid] = set()
        """Topics with a RemoveTopicRecord since the last applied image; before the first, only topics on disk."""
        self._is_known = False
        """The image has this incarnation's registration, and so every assignment of earlier incarnations."""
        self._is_counted_on = False
        """The controller has unfenced this broker, and clients are not served yet."""
        self._is_stopping = False
        self._doors: dict[str, ProtocolServer] = {}
        self._tls: TlsListeners | None = None
        self._audit: NodeAudit | None = None
        self._quotas: ClientQuotas | None = None
        """Set once the cluster has had quotas."""
        self._is_gateway_open = False

    # -- starting --------------------------------------------------------------------------------------

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Start. Raises if the directory or the settings are invalid; `failed` is called for later failures, which end
        the node."""
        self._ready = ready
        self._failed = failed
        self.directory = self._open_directory()
        try:
            self._compose()
            self._is_only_voter = self._control_plane.is_only_voter
            self.quorum.start()
            self._take_part()
        except BaseException:
            self.abandon()
            raise

    def _take_part(self) -> None:
        """Register the broker. The only voter does so when it leads (`leading`), since no controller exists before."""
        if not self._config.cluster.is_broker:
            self._world.call_soon(self._serve_controllers)
        elif not self._is_only_voter:
            self._join()

    def _serve_controllers(self) -> None:
        if not self._is_stopping:
            self._connections.start()
            if self._tls is not None:
                self._tls.start()
            logger.info(
                "node %d is a controller of cluster %s",
                self.context.node_id,
                self.context.cluster_id or "(not known yet)",
            )
            self._ready()

    def _open_directory(self) -> LogDirectory:
        wanted, cluster = self._config.node_id, self._config.cluster
        directory = open_directory(
            self._vfs,
            self._config.data,
            now_ms=self._world.now_ms(),
            rng=self._world.rng,
            node_id=NODE_ID_DEFAULT if wanted is None else wanted,
            cluster_id=cluster.cluster_id,
            open_files_max=self._config.open_files_max,
            boot_id=self._world.boot_id(),
        )
        found = directory.identity
        refusal = None
        if not found.cluster_id and cluster.cluster_id:
            directory.join_cluster(cluster.cluster_id)
            found = directory.identity
        if wanted not in (None, found.node_id):
            refusal = f"belongs to node {found.node_id}, but node.id is {wanted}"
        elif self._config.setting("cluster.id") is not None and found.cluster_id != cluster.cluster_id:
            refusal = f"belongs to cluster {found.cluster_id}, but cluster.id is {cluster.cluster_id}"
        if refusal is not None:
            directory.abandon()
            raise DirectoryRefused(f"{directory.layout.logs} {refusal}")
        return directory

    def _compose(self) -> None:
        world, config, directory = self._world, self._config, self.directory
        data_world = self._data_world
        identity = directory.identity
        # DescribeConfigs also shows a node.id from the directory.
        own = {"node.id": str(identity.node_id), **config.settings}
        settings = BrokerSettings(identity.node_id, own)
        name = f"penstock-{identity.node_id}"
        self._brokers = PeerConnections(world, name, self._security("brokers", config.to_brokers))
        self._controllers = PeerConnections(world, name, self._security("controllers", config.to_controllers))
        self._control_plane = ControlPlane(
            world,
            self._vfs,
            directory,
            config,
            settings,
            self._controllers,
            lambda: self.context,
            listener=self,
        )
        self.quorum, controller = self._control_plane.quorum, self._control_plane.router
        self._lifecycle = BrokerLifecycle(
            world,
            controller,
            heartbeat_interval_ms=config.number("broker.heartbeat.interval.ms"),
            metadata_offset=lambda: self.context.image.offset,
            failed=self._not_joined,
            registration_timeout_ms=config.number("initial.broker.registration.timeout.ms"),
            session_timeout_ms=config.number("broker.session.timeout.ms"),
            has_lost_majority=lambda: self.quorum.has_lost_majority,
            is_refused=lambda: self._controllers.is_refused or self._control_plane.transport.is_denied,
            registered=directory.registered,
        )
        broker_client = BrokerClient(
            world, self._brokers, lambda: self.context.image, config.cluster.listener
        )
        self._brokers.lost = broker_client.lost
        replicas = Replicas(
            data_world,
            directory,
            identity.node_id,
            settings,
            Durability(config.setting("durability.fsync")),
            self._tick.write_later,
            broker_client,
            controller,
            lambda: self._lifecycle.epoch,
            lambda: self._lifecycle.has_lease,
            lambda: self._tick.count,
        )
        replicas.schema_checks = self._schema_check
        audit = self._audit = self._make_audit(identity.node_id)
        producer_ids = ProducerIds(controller, identity.node_id, lambda: self._lifecycle.epoch)
        groups = GroupCoordinatorService(data_world, replicas, settings, lambda: self.context.image)
        markers = MarkerWriter(
            data_world, replicas, groups, identity.node_id, lambda: self.context.image, broker_client
        )
        self.context = Context(
            world=data_world,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            settings=settings,
            replicas=replicas,
            controller=controller,
            quorum=self.quorum,
            fetch_sessions=FetchSessions(
                config.number("max.incremental.fetch.session.cache.slots"), world.rng
            ),
            producer_ids=producer_ids,
            groups=groups,
            transactions=TransactionCoordinatorService(
                data_world, replicas, settings, lambda: self.context.image, producer_ids, markers
            ),
            markers=markers,
            broker_client=broker_client,
            image=EMPTY,
            fetch_bytes_max=config.number("fetch.max.bytes"),
            client_memory=self._tick.memory,
            advertised=dict(config.advertised),
            metrics=self._metrics,
            peer_gateway=lambda: self.open_gateway().peer_rpc,
            peers=self._controllers,
            authorizer=make_authorizer(config),
            token_keys=token_keys(settings),
            audit=None if audit is None else audit.log,
            audit_topic="" if audit is None else audit.topic,
        )
        self._at_controller = replace(
            self.context, controller=self._control_plane.active, liveness=self._control_plane.liveness
        )
        self._housekeeping = Housekeeping(
            data_world, directory, replicas, settings, lambda: self.context.image, self._metrics.upkeep
        )
        self._connections = Connections(
            world,
            self._tick,
            self._make_dispatcher(self.context),
            lambda name: int(broker_setting(name, self.context.image, settings) or 0),
            dict.fromkeys(config.cluster.controllers, Dispatcher.for_controllers(self._at_controller)),
            config.connections_max,
            self._sasl_listeners(),
            lambda name: broker_setting(name, self.context.image, settings) or "",
            self._connection_rates,
        )
        if config.connection_rates:
            self._connections.start_rates()
        self._keys = self._idempotency_keys()
        self._tls = self._tls_listeners()
        self._watch_certificates()

    def _tls_listeners(self) -> "TlsListeners | None":
        if not self._config.tls:
            return None
        from penstock.server.tls import TlsListeners  # noqa: PLC0415  # a node without TLS does not load OpenSSL

        return TlsListeners(self._world, self._tick, self._metrics, self._config.tls, self.context.audit)

    def _make_audit(self, node_id: int) -> "NodeAudit | None":
        if self._config.setting("audit.log") == "off":
            return None
        from penstock.server.audit import NodeAudit  # noqa: PLC0415  # most nodes have none

        return NodeAudit(self._data_world, self._vfs, self._config, node_id, self._metrics)

    def _security(self, what: str, security: "ClientSecurity") -> "PeerSecurity | None":
        """How this node connects to brokers or controllers; None without TLS and log-ins."""
        if security.tls is None and security.login is None:
            return None
        from penstock.server.peer_security import PeerSecurity  # noqa: PLC0415  # loads OpenSSL

        return PeerSecurity(self._world, security, what)

    def _watch_certificates(self) -> None:
        """From the start, since a node that cannot join yet may need changed files to do so."""
        self._brokers.start()
        self._controllers.start()
        if self._tls is not None:
            self._tls.start()

    def _sasl_listeners(self) -> "Mapping[str, SaslListener]":
        """The listeners whose clients must log in."""
        return {name: self._logins.listener(name) for name in self._config.sasl if not self._is_door(name)}

    def _is_door(self, listener: str) -> bool:
        """Whether settings of this listener are those of a door. A listener of Kafka's may have the same name."""
        config = self._config
        return listener not in config.listeners and listener not in config.cluster.controllers

    @cached_property
    def _logins(self) -> "Logins":
        from penstock.server.logins import Logins  # noqa: PLC0415  # loads what checks passwords

        delay_ms = self._config.number("connection.failed.authentication.delay.ms")
        secret = self._config.setting("console.session.secret")
        return Logins(
            self._config.sasl, self.context, self.token_validator, delay_ms, secret, self._config.oidc
        )

    def token_validator(self, config: "OAuthConfig") -> "TokenValidator":
        """Validates bearer tokens. Listeners with the same keys share a validator."""
        return self._token_validators.validator(config)

    @cached_property
    def _token_validators(self) -> "TokenValidators":
        from penstock.server.oauth import TokenValidators  # noqa: PLC0415  # few nodes have tokens

        return TokenValidators(self._data_world, self._metrics)

    def _stop_validators(self) -> None:
        if "_token_validators" in self.__dict__:
            self._token_validators.stop()

    def _idempotency_keys(self) -> "IdempotencyKeys | None":
        """The idempotency keys on disk, also without doors: logs must not delete a record whose key is not saved, and
        lost records are only detected before the first append. In a cluster, other brokers may add keys."""
        if self._control_plane.is_only_voter and self._vfs.stat(self.directory.layout.idempotency) is None:
            return None
        from penstock.gateway.idempotency import IdempotencyKeys  # noqa: PLC0415  # few nodes have any

        return IdempotencyKeys(self.context)

    # -- following the metadata log --------------------------------------------------------------------

    def loaded(self, image: ClusterImage) -> None:
        self._image = image
        self._learn_cluster_id()

    def committed(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        if self._is_known:
            count_elections(self._metrics.elections, records, self._image)
        self._note_deleted(records)
        self._image = self._image.replay(records, offset, epoch)
        self._learn_cluster_id()

    def _learn_cluster_id(self) -> None:
        """Give a new directory the cluster id of its metadata log, before anything else in that log is applied."""
        if must_adopt_cluster_id(self.directory, self._image):
            cluster_id = self._image.cluster_id
            self.directory.join_cluster(cluster_id)
            self.context.cluster_id = self._at_controller.cluster_id = cluster_id
            self._control_plane.join_cluster(cluster_id)
            self._lifecycle.join_cluster(cluster_id)

    def _note_deleted(self, records: Sequence[AnyRecord]) -> None:
        """Remember topics that a record deleted: only their logs are deleted, not logs that the image lacks."""
        for record in records:
            if isinstance(record, RemoveTopicRecord) and (
                self._is_known or record.topic_id in self._topics_on_disk
            ):
                self._deleted.add(record.topic_id)

    @cached_property
    def _topics_on_disk(self) -> frozenset[Uuid | None]:
        """Topics with a log on disk at the start."""
        return frozenset(log.topic_id for log in self.directory.logs.values())

    def image(self) -> ClusterImage:
        return self._image

    def advanced(self, high_watermark: Offset) -> None:
        """Apply the committed image, then release the requests that wait for it."""
        self._control_plane.committed(high_watermark)
        if not self._is_up_to_date():
            self._authorize_by(self._image)
            self._at_controller.image = self._image
            self._control_plane.advanced(high_watermark)
            return
        old, new = self._published, self._image
        self._published = new
        changed = delta(old, new)
        deleted, self._deleted = self._deleted, set()
        context = self.context

        def acted() -> None:
            self._authorize_by(new)
            self._limit_by(new)
            context.image = self._at_controller.image = new
            context.metadata_end = high_watermark
            context.groups.follow(new, changed)
            context.transactions.follow(new)
            self._control_plane.advanced(high_watermark)
            self._lifecycle.follow(new, changed.brokers, has_new_acls=new.acls is not old.acls)
            self._serve_clients()
            for watcher in list(context.image_watchers):
                watcher()

        context.replicas.apply(new, changed, acted, deleted)

    def _authorize_by(self, image: ClusterImage) -> None:
        """From now on the ACLs of this image decide."""
        authorizer = self._at_controller.authorizer
        if authorizer is not None and authorizer.acls is not image.acls:
            authorizer = authorizer.with_acls(image.acls)
            self.context.authorizer = self._at_controller.authorizer = authorizer

    def _connection_rates(self) -> "ConnectionRates":
        from penstock.server.quotas import make_connection_rates  # noqa: PLC0415  # most nodes have no limit

        return make_connection_rates(self._metrics, self._config)

    def _limit_by(self, image: ClusterImage) -> None:
        """From now on the quotas of this image apply."""
        self._connections.follow_quotas(image.quotas)
        if self._quotas is None:
            if not image.quotas:
                return
            from penstock.server.quotas import make_client_quotas  # noqa: PLC0415  # most clusters have none

            self._quotas = make_client_quotas(self._world, self._metrics, self._config)
        self._quotas.follow(image.quotas)
        self.context.quotas = self._quotas if self._quotas.is_needed else None

    def _is_up_to_date(self) -> bool:
        """Whether the image has this incarnation. Images before it do not have partitions that were assigned later,
        and applying them would remove their logs."""
        if not self._is_known:
            me = self._image.brokers.get(self.context.node_id)
            is_mine = me is not None and me.incarnation_id == self._incarnation_id
            self._is_known = is_mine or not self._config.cluster.is_broker
        return self._is_known

    def leading(self, epoch: LeaderEpoch) -> None:
        image = self._image
        identity, told = self.directory.identity, self._config.cluster.cluster_id
        refusal = unsupported_reason(
            image, has_authorizer=self.context.authorizer is not None
        ) or missing_cluster_id_reason(identity, image)
        if refusal is not None:
            self._failed(refusal)
            return
        warn_unsupported(image, has_token_keys=self.context.token_keys is not None)
        self._control_plane.lead(image, epoch)
        naming: list[AnyRecord] = list(cluster_id_records(identity, told, image, self._world.rng))
        if image.scram_users:  # a directory that Kafka wrote has users and no secret
            keys = [
                each.server_key for _, each in sorted(image.scram_users.entries(), key=lambda each: each[0])
            ]
            naming += unknown_users_secret(image, keys, self._world.rng)
        if image.features and naming:
            self._control_plane.active.write(naming)
        elif not image.features:
            self._control_plane.active.write([*self._first_records(), *naming, *self._first_users()])
            found = (
                adopt(self.directory, self.context.node_id, self._world.rng) if self._is_only_voter else ()
            )
            if found:
                self._control_plane.active.write(found)
        self._join()

    def _first_records(self) -> Sequence[AnyRecord]:
        """First records of a new cluster: those of formatting, or else the defaults."""
        needed = min_insync_replicas("", self._image, self.context.settings)
        return self.quorum.bootstrap or list(bootstrap_records(min_insync_replicas=needed))

    def _first_users(self) -> Sequence[AnyRecord]:
        """SCRAM users of a new cluster (KIP-900): brokers that log in to each other with SCRAM need one."""
        users = self._config.first_users
        if not users:
            return ()
        logger.info("new cluster: added the SCRAM users %s", ", ".join(each.name for each in users))
        keys = [each.server_key for each in users]
        return [*users, *unknown_users_secret(self._image, keys, self._world.rng)]

    def resigned(self, epoch: LeaderEpoch) -> None:
        self._control_plane.resign()

    def failed(self, reason: str) -> None:
        self._failed(reason)

    # -- registration -----------------------------------------------------------------------------

    def _join(self) -> None:
        if self._config.cluster.is_broker and not self._has_joined:
            self._has_joined = True
            self._lifecycle.join(self._registration(), self._unfenced)

    def _not_joined(self, reason: str) -> None:
        """The broker could not register; lost metadata may be the cause."""
        loss = self._control_plane.loss
        self._failed(f"{reason}; {loss}" if loss else reason)

    def _registration(self) -> RegisterBroker:
        identity = self.directory.identity
        self._incarnation_id = self.directory.incarnation(self._world.rng)
        return RegisterBroker(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=self._incarnation_id,
            endpoints=tuple(
                Endpoint(
                    name=name,
                    host=each.host or "localhost",
                    port=each.port,
                    security_protocol=PROTOCOL_NUMBERS[self._config.protocols.get(name, PLAINTEXT)],
                )
                for name, each in {**self._config.listeners, **self._config.advertised}.items()
            ),
            features=SUPPORTED,
            log_dirs=(uuid_from_text(identity.directory_id),),
            rack=self._config.setting("broker.rack"),
            previous_epoch=self.directory.previous_broker_epoch,
        )

    def _unfenced(self) -> None:
        self.directory.broker_epoch = self._lifecycle.epoch
        self._is_counted_on = True
        self._serve_clients()

    def _serve_clients(self) -> None:
        """Serve clients once the image has this broker unfenced: earlier clients would see no brokers."""
        me = self.context.image.brokers.get(self.context.node_id)
        if not self._is_counted_on or self._is_stopping or me is None or me.fenced:
            return
        self._is_counted_on = False
        self.context.replicas.settle()
        self._housekeeping.start()
        self._connections.start()
        if self._audit is not None:
            self._audit.start(self.context)
        logger.info(
            "node %d of cluster %s serves %d partitions from %s",
            self.context.node_id,
            self.context.cluster_id,
            len(self.context.replicas.partitions),
            self.directory.layout.logs,
        )
        self._ready()

    def connection(self, listener: str) -> asyncio.BufferedProtocol:
        """The protocol of a client that has just connected."""
        return self._with_tls(self._connections.accept(listener))

    def _with_tls(self, connection: Connection | DoorConnection) -> asyncio.BufferedProtocol:
        if self._tls is not None and connection.listener in self._tls:
            return self._tls.wrap(connection)
        return connection

    # -- the other doors -------------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        """Otherwise the node is only a controller."""
        return self._config.cluster.is_broker

    def open_doors(self, opened: Callable[[], None]) -> None:
        """Load the doors' code on a thread; then `door` may be called."""

        def loaded(makers: dict[str, MakeDoor] | None, error: Exception | None) -> None:
            if self._is_stopping:
                return
            if makers is None:
                logger.error("cannot load the HTTP and line protocol servers", exc_info=error)
                self._failed(f"cannot load the HTTP and line protocol servers: {error}")
                return
            self._doors = {name: make(self) for name, make in makers.items()}
            opened()

        names = tuple(self._config.doors)
        self._world.beside(lambda: load(names, is_broker=self.is_broker), loaded)

    @cached_property
    def gateway(self) -> "Gateway":
        """What the doors share. Created when first used."""
        from penstock.gateway.shared.gateway import Gateway  # noqa: PLC0415  # loaded with the doors, not before

        return Gateway(self.context, self.directory, self._vfs, self._keys, _start_command)

    def _schema_check(self, topic: str, settings: "LogSettings") -> "SchemaCheck":
        """Of a topic with `schema.validation`."""
        from penstock.gateway.schemas.record_validation import TopicSchemaCheck  # noqa: PLC0415  # few topics have it

        return TopicSchemaCheck(lambda: self.open_gateway().schemas, topic, settings)

    def open_gateway(self) -> "Gateway":
        """The gateway, started: for the doors of this node, and for requests of other brokers' gateways."""
        if not self._is_gateway_open and not self._is_stopping:
            self._is_gateway_open = True
            self.gateway.start()
        return self.gateway

    def door_logins(self, name: str) -> "DoorLogins | None":
        listener = listener_of(name)
        is_secured = listener in self._config.sasl and self._is_door(listener)
        return self._logins.door(listener) if is_secured else None

    def door(self, name: str) -> asyncio.BufferedProtocol:
        """The protocol of a client that has just connected at a door."""
        connection = self._connections.accept_at(self._doors[name], name)
        return self._with_tls(connection) if self._is_door(connection.listener) else connection

    # -- stopping --------------------------------------------------------------------------------------

    def loop_held(self, by: str, took_ns: int, now_ns: int) -> None:
        self._metrics.watch.held(by, took_ns, now_ns)

    def stop(self, done: Callable[[], None]) -> None:
        """Stop cleanly: controlled shutdown, pending replies, sync, and the marker of a clean shutdown."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._stopped = done
        self._lifecycle.leave(self._left)

    def _left(self) -> None:
        """Stop serving clients. Controller connections stay until another node leads the quorum."""
        self.directory.broker_epoch = self._lifecycle.epoch
        self._control_plane.router.close()
        self._housekeeping.stop()
        if self._audit is not None:
            self._audit.stop_topic()
        if self._is_gateway_open:
            self.gateway.stop()
        if self._keys is not None:
            self._keys.stop()
        self.context.groups.shards.close()
        self.context.transactions.shards.close()
        self.context.replicas.step_down()
        self._connections.close_clients()
        self.context.replicas.lane.when_idle(self._checkpoint)

    def _checkpoint(self) -> None:
        LastCheckpoints(self.directory, self.context.replicas.lane, lambda: self.quorum.stop(self._close))

    def _close(self) -> None:
        if self._audit is not None:
            self._audit.stop(self._close_rest)
        else:
            self._close_rest()

    def _close_rest(self) -> None:
        if self._tls is not None:
            self._tls.stop()
        self._stop_validators()
        self._connections.close()
        self._brokers.close()
        self._controllers.close()
        try:
            self.directory.close()
        except StorageError as error:
            logger.error("%s; the next start recovers the logs", error)
        self._stopped()

    def abandon(self) -> None:
        """Release everything as a crash would."""
        self._is_stopping = True
        if hasattr(self, "_connections"):
            self._connections.abort()
        if self._tls is not None:
            self._tls.stop()
        self._stop_validators()
        for name in ("_brokers", "_controllers"):
            if hasattr(self, name):
                getattr(self, name).abort()
        if hasattr(self, "quorum"):
            self.quorum.abandon()
        if hasattr(self, "directory"):
            self.directory.abandon()


def _start_command(arguments: Sequence[str], done: "Callable[[Ended], None]") -> Callable[[], None]:
    from penstock.server.command_process import start_command  # noqa: PLC0415  # few nodes run one

    return start_command(arguments, done)
