"""The cluster at one offset of the metadata log: brokers, topics and partitions, settings.

An image is immutable. `replay` returns the image after some records, which shares all unchanged parts with the old
one, so that readers may keep any image. `records` returns the records that rebuild it: the contents of a snapshot.
`delta` has the changes between two images.

Records of kinds that are not implemented (records of later Kafka versions) are kept, also in snapshots, so
that no node loses them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, Uuid

from .acls import Acl
from .maps import FrozenMap
from .quotas import QuotaEntity
from .records import (
    NO_LEADER,
    RECOVERED,
    AnyRecord,
    DelegationTokenRecord,
    Endpoint,
    Ids,
    SupportedFeature,
    UnknownRecord,
    UserScramCredentialRecord,
    Uuids,
)
from .versions import ELR_FEATURE, METADATA_VERSION, METADATA_VERSION_MIN


class ResourceType(IntEnum):
    """Types of resources with settings; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    type: int
    name: str
    """Name of a topic or id of a broker; empty for the default of all brokers."""


class ScramUser(NamedTuple):
    mechanism: int
    """A `scram.ScramMechanism`, by its number in the protocol."""
    name: str


def collision_key(topic: str) -> str | None:
    """Return the topic's name as it appears in names of metrics; None if no other topic can have the same."""
    return topic.replace(".", "_") if "." in topic or "_" in topic else None


ALL_BROKERS = Resource(ResourceType.BROKER, "")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration."""

    id: int
    epoch: int
    """Assigned at registration, and larger each time: a request with an older one is from a previous incarnation."""
    incarnation_id: Uuid
    """Drawn by the broker at each start."""
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    """A fenced broker leads no partition, is in no ISR, and is not visible to clients."""
    in_controlled_shutdown: bool = False
    log_dirs: Uuids = ()
    cordoned_log_dirs: Uuids | None = None
    """Directories that take no new replicas; None until the broker reports them."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and join ISRs."""
        return not self.fenced and not self.in_controlled_shutdown

    def supported(self, feature: str) -> tuple[int, int]:
        return supported_range(self.features, feature)


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """A controller's registration."""

    id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    zk_migration_ready: bool = False

    def supported(self, feature: str) -> tuple[int, int]:
        return supported_range(self.features, feature)


def supported_range(features: Iterable[SupportedFeature], name: str) -> tuple[int, int]:
    """Return the lowest and highest supported level; (0, 0), which is off, for an unknown feature."""
    for feature in features:
        if feature.name == name:
            return feature.min_level, feature.max_level
    return 0, 0


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition in the metadata. `replica.Partition` is one that this broker holds."""

    replicas: Ids
    """In order of preference."""
    directories: Uuids
    """Directories of the replicas, in the same order."""
    isr: Ids
    """Invariant: a subset of the replicas that contains the leader, if there is one."""
    leader: int = NO_LEADER
    leader_epoch: LeaderEpoch = 0
    """Rises with every leader change."""
    partition_epoch: int = 0
    """Rises with every change."""
    recovery_state: int = RECOVERED
    elr: Ids = ()
    """Replicas outside the ISR that have every acknowledged record (KIP-966), kept while the ISR is smaller
    than `min.insync.replicas`."""
    last_known_elr: Ids = ()
    """If both ISR and ELR are empty: the last leader, which the partition waits for."""
    adding: Ids = ()
    """Replicas that an ongoing reassignment adds."""
    removing: Ids = ()
    """Replicas that it removes."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: Uuid
    partitions: FrozenMap[int, PartitionRegistration] = FrozenMap()  # noqa: RUF009  (it never changes)


@dataclass(frozen=True)
class ClusterImage:
    offset: Offset = -1
    """Offset of the last replayed record."""
    epoch: LeaderEpoch = 0
    """Epoch of the leader that wrote that record."""
    features: FrozenMap[str, int] = FrozenMap()  # noqa: RUF009
    """The finalized level of each feature that is on."""
    brokers: FrozenMap[int, Broker] = FrozenMap()  # noqa: RUF009
    controllers: FrozenMap[int, ControllerNode] = FrozenMap()  # noqa: RUF009
    topics: FrozenMap[str, Topic] = FrozenMap()  # noqa: RUF009
    topic_names: FrozenMap[Uuid, str] = FrozenMap()  # noqa: RUF009
    collisions: FrozenMap[str, str] = FrozenMap()  # noqa: RUF009
    """Topics with a dot or an underscore in their names, by the name with underscores for dots. In names of
    metrics both become underscores, so two topics must not differ in them only."""
    configs: FrozenMap[Resource, Mapping[str, str]] = field(default=FrozenMap(), repr=False)
    """Some are secrets."""
    quotas: FrozenMap[QuotaEntity, Mapping[str, float]] = FrozenMap()  # noqa: RUF009
    """Limits of users, client ids and addresses, by key."""
    acls: FrozenMap[Uuid, Acl] = FrozenMap()  # noqa: RUF009
    acl_ids: FrozenMap[str, Uuid] = FrozenMap()  # noqa: RUF009
    """The id of each ACL, by its key."""
    next_producer_id: int = 0
    cluster_id: str = ""
    """The id of the cluster; empty if the log does not have it."""
    scram_users: FrozenMap[ScramUser, UserScramCredentialRecord] = FrozenMap()  # noqa: RUF009
    """Credentials of users that log in with SCRAM."""
    tokens: FrozenMap[str, DelegationTokenRecord] = FrozenMap()  # noqa: RUF009
    """Delegation tokens, by their ids."""
    kept: FrozenMap[tuple[object, ...], AnyRecord] = FrozenMap()  # noqa: RUF009
    """Records of kinds that are not implemented, by their key."""
    unknown: tuple[UnknownRecord, ...] = ()
    """Records of unknown kinds, in their order."""
    transaction: tuple[AnyRecord, ...] | None = None
    """Records of an open metadata transaction, which are not part of the image yet."""

    @cached_property
    def metadata_version(self) -> int:
        level: int = self.features.get(METADATA_VERSION, METADATA_VERSION_MIN)
        return level

    @cached_property
    def elr_enabled(self) -> bool:
        return bool(self.features.get(ELR_FEATURE, 0))

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def config(self, resource: Resource) -> Mapping[str, str]:
        found: Mapping[str, str] = self.configs.get(resource, {})
        return found

    def replay(self, records: Iterable[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> "ClusterImage":
        """Return the image after these records, of which the last has this offset."""
        from .replay import ImageDraft  # noqa: PLC0415  (the draft is made of what is declared here)

        draft = ImageDraft(self)
        for record in records:
            draft.replay(record)
        return draft.freeze(offset, epoch)

    def records(self) -> Iterator[AnyRecord]:
        """Return the records that build this image from an empty one, in Kafka's order."""
        from .snapshot import snapshot_records  # noqa: PLC0415

        return snapshot_records(self)


EMPTY = ClusterImage()
