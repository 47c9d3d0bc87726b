"""Requests to a group coordinator and its replies, independent of API versions.

Differences in behaviour between versions are fields of the requests. A reply has its error code; `refusal` makes the
reply to any request that failed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.records.structs import NO_UUID

NO_MEMBER_ID = ""
NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER = ""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata, in the member's order of preference."""


# The classic protocol.


class JoinGroup(NamedTuple):
    group: str
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """-1 to use the session timeout: version 0 has no such field."""
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    needs_member_id: bool = True
    """From version 4: a new member gets its id first, and then joins with it (KIP-394)."""
    may_skip_assignment: bool = True
    """From version 9: the reply has `skip_assignment` (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """Filled in the leader's reply only."""


class SyncGroup(NamedTuple):
    group: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    """Versions before 5 have neither field. From version 5 on both are required: the handler rejects a request without
    them with INCONSISTENT_GROUP_PROTOCOL."""
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    group: str
    member_id: str
    generation: int
    instance_id: str | None = None


class HeartbeatReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None


class LeaveGroup(NamedTuple):
    group: str
    members: tuple[LeavingMember, ...]
    """Before version 3 there is one member, and the reply has its code."""


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    code: ErrorCode = ErrorCode.NONE


class LeaveReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


# Offsets.


class CommittedPartition(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: Uuid = NO_UUID


class OffsetCommit(NamedTuple):
    group: str
    partitions: tuple[CommittedPartition, ...]
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    """Of a member of the consumer protocol, its epoch."""
    instance_id: str | None = None
    retention_ms: int = -1
    """In versions 2 to 4."""
    knows_epochs: bool = True
    """From version 9: the client understands GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""


class TxnOffsetCommit(NamedTuple):
    group: str
    partitions: tuple[CommittedPartition, ...]
    producer_id: int
    producer_epoch: int
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    instance_id: str | None = None


class PartitionResult(NamedTuple):
    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE


class PartitionsReply(NamedTuple):
    """Reply to OffsetCommit, TxnOffsetCommit and OffsetDelete. If it has an error code, no partition was handled."""

    code: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


class WantedOffset(NamedTuple):
    topic: str
    partition: int
    topic_id: Uuid = NO_UUID
    """If both topic ids are known and differ, the offset was committed for another topic, and is not returned."""


class OffsetFetch(NamedTuple):
    group: str
    partitions: tuple[WantedOffset, ...] | None
    """None for all offsets of the group."""
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False
    """Return UNSTABLE_OFFSET_COMMIT for offsets that an open transaction has pending (KIP-447)."""


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    code: ErrorCode = ErrorCode.NONE


class OffsetFetchReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    offsets: tuple[FetchedOffset, ...] = ()


class OffsetDelete(NamedTuple):
    group: str
    partitions: tuple[tuple[str, int], ...]


class ForgetPartitions(NamedTuple):
    """The partitions are deleted: delete their offsets in every group."""

    partitions: tuple[tuple[str, int], ...]


# Administration of groups.


class ListGroups(NamedTuple):
    states: frozenset[str] = frozenset()
    """In lower case, as the next one; empty for all."""
    types: frozenset[str] = frozenset()


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str
    type: str


class ListReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


class DescribeGroups(NamedTuple):
    """Classic groups. A group that does not exist is Dead, which is no error before version 6."""

    groups: tuple[str, ...]


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


class DescribedGroup(NamedTuple):
    group: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class DescribeReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    groups: tuple[DescribedGroup, ...] = ()


class DeleteGroups(NamedTuple):
    groups: tuple[str, ...]


class DeletedGroup(NamedTuple):
    group: str
    code: ErrorCode = ErrorCode.NONE


class DeleteReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    groups: tuple[DeletedGroup, ...] = ()


# The consumer protocol (KIP-848).

Partitions: TypeAlias = tuple[tuple[Uuid, tuple[int, ...]], ...]
"""Topics by id, and partitions of each."""


class ConsumerGroupHeartbeat(NamedTuple):
    group: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2: a static member leaves and will return."""
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_names: tuple[str, ...] | None = None
    """None, here and below, if unchanged since the last heartbeat."""
    subscribed_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    needs_member_id: bool = False
    """In version 0 the coordinator may generate the member id (KIP-1082)."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the client may describe a topic; None if it may describe all."""


class ConsumerHeartbeatReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """None if it is the same as in the last reply."""


class ConsumerGroupDescribe(NamedTuple):
    groups: tuple[str, ...]


class DescribedTopicPartitions(NamedTuple):
    topic_id: Uuid
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str | None
    assignment: tuple[DescribedTopicPartitions, ...]
    target: tuple[DescribedTopicPartitions, ...]
    is_classic: bool


class DescribedConsumerGroup(NamedTuple):
    group: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class ConsumerDescribeReply(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    groups: tuple[DescribedConsumerGroup, ...] = ()


class GroupSummary(NamedTuple):
    """A group in a list: how large it is, and the positions that its lag is computed from. Not a reply."""

    group: str
    state: str
    type: str
    protocol_type: str
    members: int
    positions: tuple[tuple[str, int, int], ...]
    """Topic, partition and committed offset, NO_OFFSET for a partition that is only assigned."""
    metadata: str = ""
    """The metadata of one of its commits."""


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | ForgetPartitions
    | ListGroups
    | DescribeGroups
    | DeleteGroups
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
)

_REPLIES: dict[type[Any], type[Any]] = {
    JoinGroup: JoinReply,
    SyncGroup: SyncReply,
    Heartbeat: HeartbeatReply,
    LeaveGroup: LeaveReply,
    OffsetCommit: PartitionsReply,
    TxnOffsetCommit: PartitionsReply,
    OffsetFetch: OffsetFetchReply,
    OffsetDelete: PartitionsReply,
    ForgetPartitions: PartitionsReply,
    ListGroups: ListReply,
    DescribeGroups: DescribeReply,
    DeleteGroups: DeleteReply,
    ConsumerGroupHeartbeat: ConsumerHeartbeatReply,
    ConsumerGroupDescribe: ConsumerDescribeReply,
}


def refusal(request: Request, code: ErrorCode, message: str | None = None) -> Any:
    """The reply to any request that failed."""
    if isinstance(request, JoinGroup):
        return JoinReply(code, request.member_id)
    if isinstance(request, ConsumerGroupHeartbeat):
        return ConsumerHeartbeatReply(code, message)
    return _REPLIES[type(request)](code)


_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """The error for a member whose records could not be written, as in Kafka."""
    return _WRITE_ERRORS.get(code, code)


def write_refusal(request: Request, code: ErrorCode) -> Any:
    """The reply to a request whose records, or earlier ones that it depends on, were not written in time."""
    error = write_error(code)
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE and isinstance(request, OffsetFetch):
        # Consumers before 3.9 would not retry otherwise. Kafka does the same.
        error = ErrorCode.NOT_COORDINATOR
    return refusal(request, error)
