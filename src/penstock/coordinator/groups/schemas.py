"""Kafka's records of `__consumer_offsets`: groups and committed offsets.

A record's key begins with its type (two bytes), its value with the value's version (two bytes); the rest are
Kafka 4.3's own schemas. Keys have one version each and are not flexible, so that the same
key always has the same bytes, as compaction requires. A value of None is a tombstone.

    0  a committed offset, before Kafka 0.8.3         5  a member of a consumer group: subscription
    1  a committed offset                             6  the epoch of a consumer group's target
    2  a classic group, all of its members            7  a member's target assignment
    3  a consumer group (KIP-848): its epoch          8  a member's current assignment
    4  its topics, before Kafka 4.1                  16  the topics that a regular expression matched

Records of share and streams groups have other types. They stay in the log, and are ignored when it is read.
"""

from functools import lru_cache
from struct import Struct as Packing
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from penstock.base.ids import Uuid
from penstock.records.structs import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NO_UUID,
    STRING,
    UUID,
    CorruptStruct,
    Struct,
    array,
    body_of,
    read_whole,
    struct,
    wire,
)

_INT16 = Packing(">h")
_OFFSET = Packing(">hqiBqB")
"""A committed offset, version 4, without text: version, offset, leader epoch, an empty text, time, number of tags."""
_TOPIC_ID_TAG = bytes((0, 16))
_NEVER = 2**15
"""Above every version: a schema that is flexible from this version on is never flexible."""


class Value(Struct):
    LATEST: ClassVar[int] = 0
    version: int = 0
    """The version that is written; by default that of Kafka 4.3."""


class Key(Struct):
    FLEXIBLE_SINCE: ClassVar[int] = _NEVER
    TYPE: ClassVar[int] = -1
    VALUE: ClassVar[type[Value]] = Value


class LegacyOffsetCommitValue(Value):
    FLEXIBLE_SINCE: ClassVar = _NEVER
    offset: int = wire(INT64)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)


class LegacyOffsetCommitKey(Key):
    TYPE: ClassVar = 0
    VALUE: ClassVar = LegacyOffsetCommitValue
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


class OffsetCommitValue(Value):
    LATEST: ClassVar = 4
    FLEXIBLE_SINCE: ClassVar = 4
    version: int = 4
    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, -1, since=3)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, -1, since=1, until=1)
    """Set only if the client sent a retention time, in OffsetCommit 2 to 4; Kafka then writes version 1."""
    topic_id: Uuid = wire(UUID, since=4, tag=0)


class OffsetCommitKey(Key):
    TYPE: ClassVar = 1
    VALUE: ClassVar = OffsetCommitValue
    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


class MemberMetadata(Struct):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, None, since=3, nullable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, -1, since=1)
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


class GroupMetadataValue(Value):
    LATEST: ClassVar = 4
    FLEXIBLE_SINCE: ClassVar = 4
    version: int = 3
    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable=True)
    leader: str | None = wire(STRING, nullable=True)
    current_state_timestamp: int = wire(INT64, -1, since=2)
    members: tuple[MemberMetadata, ...] = wire(array(struct(MemberMetadata)))


class GroupMetadataKey(Key):
    TYPE: ClassVar = 2
    VALUE: ClassVar = GroupMetadataValue
    group: str = wire(STRING)


class ConsumerGroupMetadataValue(Value):
    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, 0, tag=0)


class ConsumerGroupMetadataKey(Key):
    TYPE: ClassVar = 3
    VALUE: ClassVar = ConsumerGroupMetadataValue
    group_id: str = wire(STRING)


class PartitionMetadata(Struct):
    partition: int = wire(INT32)
    racks: tuple[str, ...] = wire(array(STRING))


class TopicMetadata(Struct):
    topic_id: Uuid = wire(UUID)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: tuple[PartitionMetadata, ...] = wire(array(struct(PartitionMetadata)))


class ConsumerGroupPartitionMetadataValue(Value):
    """Written before Kafka 4.1, and deleted when found: replaced by the metadata hash."""

    topics: tuple[TopicMetadata, ...] = wire(array(struct(TopicMetadata)))


class ConsumerGroupPartitionMetadataKey(Key):
    TYPE: ClassVar = 4
    VALUE: ClassVar = ConsumerGroupPartitionMetadataValue
    group_id: str = wire(STRING)


class ClassicProtocol(Struct):
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = wire(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = wire(array(struct(ClassicProtocol)))


class ConsumerGroupMemberMetadataValue(Value):
    instance_id: str | None = wire(STRING, nullable=True)
    rack_id: str | None = wire(STRING, nullable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=True)
    rebalance_timeout_ms: int = wire(INT32, -1)
    server_assignor: str | None = wire(STRING, nullable=True)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        struct(ClassicMemberMetadata), tag=0, nullable=True
    )
    """None for a member of the consumer protocol. Kafka's default is an empty struct, so None is written."""


class ConsumerGroupMemberMetadataKey(Key):
    TYPE: ClassVar = 5
    VALUE: ClassVar = ConsumerGroupMemberMetadataValue
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Value):
    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, 0, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Key):
    TYPE: ClassVar = 6
    VALUE: ClassVar = ConsumerGroupTargetAssignmentMetadataValue
    group_id: str = wire(STRING)


class TopicPartition(Struct):
    topic_id: Uuid = wire(UUID)
    partitions: tuple[int, ...] = wire(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Value):
    topic_partitions: tuple[TopicPartition, ...] = wire(array(struct(TopicPartition)))


class ConsumerGroupTargetAssignmentMemberKey(Key):
    TYPE: ClassVar = 7
    VALUE: ClassVar = ConsumerGroupTargetAssignmentMemberValue
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


class TopicPartitions(Struct):
    topic_id: Uuid = wire(UUID)
    partitions: tuple[int, ...] = wire(array(INT32))
    assignment_epochs: tuple[int, ...] | None = wire(array(INT32), tag=0, nullable=True)
    """The epoch at which the member got each partition, which fences late commits. Of the same length, or empty."""


class ConsumerGroupCurrentMemberAssignmentValue(Value):
    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(struct(TopicPartitions)))
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire(array(struct(TopicPartitions)))


class ConsumerGroupCurrentMemberAssignmentKey(Key):
    TYPE: ClassVar = 8
    VALUE: ClassVar = ConsumerGroupCurrentMemberAssignmentValue
    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


class ConsumerGroupRegularExpressionValue(Value):
    topics: tuple[str, ...] = wire(array(STRING))
    regex_version: int = wire(INT64)
    """Version of the metadata that it was matched against."""
    timestamp: int = wire(INT64)


class ConsumerGroupRegularExpressionKey(Key):
    TYPE: ClassVar = 16
    VALUE: ClassVar = ConsumerGroupRegularExpressionValue
    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


KEYS: dict[int, type[Key]] = {kind.TYPE: kind for kind in Key.__subclasses__()}


class GroupRecord(NamedTuple):
    """One record of the topic; a value of None is a tombstone."""

    key: Key
    value: Value | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        return encode_key(self.key), None if self.value is None else encode_value(self.value)


class AnyRecord(Protocol):
    """A `GroupRecord`, or what can stand for one."""

    @property
    def key(self) -> Key: ...

    @property
    def value(self) -> Value | None: ...

    def encoded(self) -> tuple[bytes, bytes | None]: ...


Records: TypeAlias = tuple[AnyRecord, ...]


def encode_key(key: Key) -> bytes:
    if type(key) is OffsetCommitKey:
        return offset_key(key.group, key.topic, key.partition)
    return _encode_key(key)


@lru_cache(8192)  # a member commits the same partitions again and again
def offset_key(group: str, topic: str, partition: int) -> bytes:
    return _encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))


def _encode_key(key: Key) -> bytes:
    out = bytearray(_INT16.pack(key.TYPE))
    body_of(type(key), 0).write(out, key)
    return bytes(out)


def encode_value(value: Value) -> bytes:
    if type(value) is OffsetCommitValue and value.version == 4 and not (value.metadata or value.unknown_tags):
        if value.expire_timestamp != -1:
            raise ValueError(f"version 4 of a committed offset has no expiry: {value}")
        return plain_offset(value.offset, value.leader_epoch, value.commit_timestamp, value.topic_id)
    return _encode_value(value)


def _encode_value(value: Value) -> bytes:
    out = bytearray(_INT16.pack(value.version))
    body_of(type(value), value.version).write(out, value)
    return bytes(out)


def plain_offset(offset: int, leader_epoch: int, commit_ms: int, topic_id: Uuid) -> bytes:
    """Nearly all values of the topic; encoded by hand, which takes a tenth of the time."""
    if topic_id == NO_UUID:
        return _OFFSET.pack(4, offset, leader_epoch, 1, commit_ms, 0)
    return _OFFSET.pack(4, offset, leader_epoch, 1, commit_ms, 1) + _TOPIC_ID_TAG + topic_id


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, or None if its type is ignored here.

    Raises CorruptStruct for bytes that are not one of Kafka's records, and for an unknown version of a known record: a
    coordinator that ignored it would lose state.
    """
    if len(key) < _INT16.size:
        raise CorruptStruct(f"a key has {len(key)} bytes, too few for a type")
    (number,) = _INT16.unpack_from(key)
    kind = KEYS.get(number)
    if kind is None:
        return None
    read_key = kind(**read_whole(kind, 0, key, _INT16.size))
    if value is None:
        return GroupRecord(read_key, None)
    if len(value) < _INT16.size:
        raise CorruptStruct(f"the value of a {kind.__name__} has {len(value)} bytes, too few for a version")
    (version,) = _INT16.unpack_from(value)
    of = kind.VALUE
    if not 0 <= version <= of.LATEST:
        raise CorruptStruct(f"{of.__name__} has version {version}, expected 0 to {of.LATEST}")
    return GroupRecord(read_key, of(version=version, **read_whole(of, version, value, _INT16.size)))
