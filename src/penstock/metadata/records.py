"""Kafka's metadata records, which the controller writes to `__cluster_metadata` and every node replays.

Fields, types, versions and tags are those of Kafka 4.3's schemas; all of them are flexible. A record's bytes are a
frame version, the record's key and its version, each an unsigned varint, then the message. Unknown kinds, versions and
tags of a later Kafka are kept byte for byte.
"""

from typing import ClassVar, NamedTuple, TypeAlias

from penstock.base.ids import Uuid
from penstock.records.structs import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_UUID,
    STRING,
    UINT16,
    UUID,
    CorruptStruct,
    Struct,
    array,
    body_of,
    read_uvarint,
    read_whole,
    struct,
    wire,
    write_uvarint,
)

FRAME_VERSION = 1

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""In a PartitionChangeRecord: leader and leader epoch do not change."""
RECOVERED, RECOVERING, NO_RECOVERY_CHANGE = 0, 1, -1
"""Recovery state of a leader: it has every acknowledged record, or was elected uncleanly and may lack some."""

DIRECTORY_MIGRATING: Uuid = NO_UUID
"""From before directories were recorded."""
DIRECTORY_UNASSIGNED: Uuid = (1).to_bytes(16, "big")
"""The broker has not reported yet which directory holds the replica."""
DIRECTORY_LOST: Uuid = (2).to_bytes(16, "big")
"""The directory failed, and which one it was is not known."""

OWN_TAG = 10_000
"""Tag of a field that Kafka does not have and skips. High enough not to collide with Kafka's."""

Ids: TypeAlias = tuple[int, ...]
Uuids: TypeAlias = tuple[Uuid, ...]
IDS, UUIDS, STRINGS = array(INT32), array(UUID), array(STRING)


class MetadataRecord(Struct):
    """Base of all metadata records."""

    KEY: ClassVar[int] = -1
    version: int = 0
    """Version in which it is written; the default is the latest."""


class UnknownRecord(NamedTuple):
    """A record of a kind or version that this code does not know."""

    key: int
    version: int
    data: bytes


AnyRecord: TypeAlias = MetadataRecord | UnknownRecord


class Endpoint(Struct):
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)
    security_protocol: int = wire(INT16)


class SupportedFeature(Struct):
    name: str = wire(STRING)
    min_level: int = wire(INT16)
    max_level: int = wire(INT16)


class QuotaEntity(Struct):
    type: str = wire(STRING)
    name: str | None = wire(STRING, nullable=True)
    """None for the default of that type."""


class RegisterBrokerRecord(MetadataRecord):
    KEY: ClassVar = 0
    version: int = 4
    broker_id: int = wire(INT32)
    is_migrating_zk_broker: bool = wire(BOOL, since=2)
    incarnation_id: Uuid = wire(UUID)
    broker_epoch: int = wire(INT64)
    endpoints: tuple[Endpoint, ...] = wire(array(struct(Endpoint)))
    features: tuple[SupportedFeature, ...] = wire(array(struct(SupportedFeature)))
    rack: str | None = wire(STRING, None, nullable=True)
    fenced: bool = wire(BOOL, True)
    in_controlled_shutdown: bool = wire(BOOL, since=1)
    log_dirs: Uuids = wire(UUIDS, since=3, tag=0)
    cordoned_log_dirs: Uuids | None = wire(UUIDS, None, since=4, tag=1, nullable=True)


class UnregisterBrokerRecord(MetadataRecord):
    KEY: ClassVar = 1
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)


class TopicRecord(MetadataRecord):
    KEY: ClassVar = 2
    name: str = wire(STRING)
    topic_id: Uuid = wire(UUID)


class PartitionRecord(MetadataRecord):
    KEY: ClassVar = 3
    version: int = 2
    partition_id: int = wire(INT32, -1)
    topic_id: Uuid = wire(UUID)
    replicas: Ids = wire(IDS)
    isr: Ids = wire(IDS)
    removing_replicas: Ids = wire(IDS)
    adding_replicas: Ids = wire(IDS)
    leader: int = wire(INT32, NO_LEADER)
    leader_recovery_state: int = wire(INT8, RECOVERED, tag=0)
    leader_epoch: int = wire(INT32, -1)
    partition_epoch: int = wire(INT32, -1)
    directories: Uuids = wire(UUIDS, since=1)
    eligible_leader_replicas: Ids | None = wire(IDS, None, since=2, tag=1, nullable=True)
    last_known_elr: Ids | None = wire(IDS, None, since=2, tag=2, nullable=True)


class ConfigRecord(MetadataRecord):
    KEY: ClassVar = 4
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=True)
    """None removes the setting."""

    @property
    def is_secret(self) -> bool:
        from .config_table import BROKER_SETTINGS  # noqa: PLC0415  (which few records need)

        setting = BROKER_SETTINGS.get(self.name)
        return setting is not None and setting.is_secret and bool(self.value)

    def __repr__(self) -> str:
        """Without the value of a password."""
        value = "[hidden]" if self.is_secret else repr(self.value)
        return (
            f"ConfigRecord(version={self.version!r}, resource_type={self.resource_type!r}, "
            f"resource_name={self.resource_name!r}, name={self.name!r}, value={value})"
        )


class PartitionChangeRecord(MetadataRecord):
    """Changes of a partition. Unchanged fields are None, the leader -2, and the recovery state -1."""

    KEY: ClassVar = 5
    version: int = 2
    partition_id: int = wire(INT32, -1)
    topic_id: Uuid = wire(UUID)
    isr: Ids | None = wire(IDS, None, tag=0, nullable=True)
    leader: int = wire(INT32, NO_LEADER_CHANGE, tag=1)
    replicas: Ids | None = wire(IDS, None, tag=2, nullable=True)
    removing_replicas: Ids | None = wire(IDS, None, tag=3, nullable=True)
    adding_replicas: Ids | None = wire(IDS, None, tag=4, nullable=True)
    leader_recovery_state: int = wire(INT8, NO_RECOVERY_CHANGE, tag=5)
    eligible_leader_replicas: Ids | None = wire(IDS, None, since=2, tag=6, nullable=True)
    last_known_elr: Ids | None = wire(IDS, None, since=2, tag=7, nullable=True)
    directories: Uuids | None = wire(UUIDS, None, since=1, tag=8, nullable=True)


class FenceBrokerRecord(MetadataRecord):
    KEY: ClassVar = 7
    id: int = wire(INT32)
    epoch: int = wire(INT64)


class UnfenceBrokerRecord(MetadataRecord):
    KEY: ClassVar = 8
    id: int = wire(INT32)
    epoch: int = wire(INT64)


class RemoveTopicRecord(MetadataRecord):
    KEY: ClassVar = 9
    topic_id: Uuid = wire(UUID)


class DelegationTokenRecord(MetadataRecord):
    KEY: ClassVar = 10
    owner: str = wire(STRING)
    requester: str = wire(STRING)
    renewers: tuple[str, ...] = wire(STRINGS)
    issue_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    expiration_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)


class UserScramCredentialRecord(MetadataRecord):
    KEY: ClassVar = 11
    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    salt: bytes = wire(BYTES)
    stored_key: bytes = wire(BYTES)
    server_key: bytes = wire(BYTES)
    iterations: int = wire(INT32)

    def __repr__(self) -> str:
        """Without the keys, which are secrets."""
        return (
            f"UserScramCredentialRecord(version={self.version!r}, name={self.name!r}, mechanism={self.mechanism!r}, "
            f"iterations={self.iterations!r})"
        )


class FeatureLevelRecord(MetadataRecord):
    KEY: ClassVar = 12
    name: str = wire(STRING)
    feature_level: int = wire(INT16)
    """0 removes the feature."""


class ClientQuotaRecord(MetadataRecord):
    KEY: ClassVar = 14
    entity: tuple[QuotaEntity, ...] = wire(array(struct(QuotaEntity)))
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


class ProducerIdsRecord(MetadataRecord):
    KEY: ClassVar = 15
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, -1)
    next_producer_id: int = wire(INT64)
    """First id that is in no block yet."""


class BrokerRegistrationChangeRecord(MetadataRecord):
    KEY: ClassVar = 17
    version: int = 3
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64)
    fenced: int = wire(INT8, tag=0)
    """1 fences, -1 unfences, 0 is no change."""
    in_controlled_shutdown: int = wire(INT8, since=1, tag=1)
    """1 begins a controlled shutdown, 0 is no change."""
    log_dirs: Uuids = wire(UUIDS, since=2, tag=2)
    """Remaining directories, if some have failed; empty is no change."""
    cordoned_log_dirs: Uuids | None = wire(UUIDS, None, since=3, tag=3, nullable=True)


class AccessControlEntryRecord(MetadataRecord):
    KEY: ClassVar = 18
    id: Uuid = wire(UUID)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class RemoveAccessControlEntryRecord(MetadataRecord):
    KEY: ClassVar = 19
    id: Uuid = wire(UUID)


class NoOpRecord(MetadataRecord):
    """Changes nothing. Kafka writes one from time to time so that followers see progress.

    `cluster_id` is Penstock's extension: the id of the log's cluster, for which Kafka has no record.
    """

    KEY: ClassVar = 20
    cluster_id: str | None = wire(STRING, None, tag=OWN_TAG, nullable=True)


class ZkMigrationStateRecord(MetadataRecord):
    KEY: ClassVar = 21
    zk_migration_state: int = wire(INT8)


class RemoveUserScramCredentialRecord(MetadataRecord):
    KEY: ClassVar = 22
    name: str = wire(STRING)
    mechanism: int = wire(INT8)


class BeginTransactionRecord(MetadataRecord):
    """The records up to the end of the transaction take effect together, or not at all if it is aborted."""

    KEY: ClassVar = 23
    name: str | None = wire(STRING, None, tag=0, nullable=True)


class EndTransactionRecord(MetadataRecord):
    KEY: ClassVar = 24


class AbortTransactionRecord(MetadataRecord):
    KEY: ClassVar = 25
    reason: str | None = wire(STRING, None, tag=0, nullable=True)


class RemoveDelegationTokenRecord(MetadataRecord):
    KEY: ClassVar = 26
    token_id: str = wire(STRING)


class RegisterControllerRecord(MetadataRecord):
    KEY: ClassVar = 27
    controller_id: int = wire(INT32)
    incarnation_id: Uuid = wire(UUID)
    zk_migration_ready: bool = wire(BOOL)
    endpoints: tuple[Endpoint, ...] = wire(array(struct(Endpoint)))
    features: tuple[SupportedFeature, ...] = wire(array(struct(SupportedFeature)))


class ClearElrRecord(MetadataRecord):
    KEY: ClassVar = 28
    topic_name: str = wire(STRING)
    """Empty for every topic."""


KINDS: dict[int, type[MetadataRecord]] = {kind.KEY: kind for kind in MetadataRecord.__subclasses__()}

LATEST = {key: kind().version for key, kind in KINDS.items()}
"""The highest version of each kind; the lowest is 0."""


def encode(record: AnyRecord) -> bytes:
    out = bytearray()
    write_uvarint(out, FRAME_VERSION)
    if isinstance(record, UnknownRecord):
        write_uvarint(out, record.key)
        write_uvarint(out, record.version)
        return bytes(out + record.data)
    write_uvarint(out, record.KEY)
    write_uvarint(out, record.version)
    body_of(type(record), record.version).write(out, record)
    return bytes(out)


def has_secret(data: bytes) -> bool:
    """Whether an encoded record has a password, or what stands for one."""
    try:
        record = decode(data)
    except CorruptStruct:
        return False
    return isinstance(record, UserScramCredentialRecord) or (
        isinstance(record, ConfigRecord) and record.is_secret
    )


def decode(data: bytes) -> AnyRecord:
    try:
        frame, position = read_uvarint(data, 0)
        key, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError as error:
        raise CorruptStruct(f"a metadata record has {len(data)} bytes, and ends within its header") from error
    if frame != FRAME_VERSION:
        raise CorruptStruct(f"a metadata record has frame version {frame}, expected {FRAME_VERSION}")
    kind = KINDS.get(key)
    if kind is None or version > LATEST[key]:
        return UnknownRecord(key, version, data[position:])
    return kind(version=version, **read_whole(kind, version, data, position))
