"""Messages between the gateways of brokers: plain data, encoded as MessagePack.

    request   [kind, fields]
    reply     [0, result]  or  [1, code, message]  or  [2, reason, message, assignments]: a `Conflict`

A broker answers a kind that it does not know with INVALID_REQUEST, so that releases can be mixed in a cluster. Fields
are only added at the end, with a default.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.coordinator.groups import requests as groups
from penstock.coordinator.transactions import requests as transactions
from penstock.coordinator.transactions.hanging import PartitionProducer
from penstock.gateway.observing.event import Event
from penstock.gateway.observing.status import NodeStatus
from penstock.gateway.shared.config_entries import ConfigEntry
from penstock.gateway.shared.log_inspection import PartitionView
from penstock.gateway.shared.segment_inspection import BatchPage, IndexView, Lookup
from penstock.gateway.shared.topic_figures import TopicFigures
from penstock.registry.changes import Change
from penstock.search.query import Chunk, PartitionPlan, Portion, SearchQuery

Assignments: TypeAlias = Mapping[str, Sequence[int]]
"""Partitions by topic, including topics without an assigned partition."""


class Conflict(KafkaError):
    """A request that conflicts with the state of the group. HTTP clients get 409, with the reason as the code."""

    def __init__(self, reason: str, message: str, assignments: Assignments | None = None) -> None:
        super().__init__(message, ErrorCode.INVALID_REQUEST)
        self.reason = reason
        self.assignments = assignments
        """The member's current assignment; None if the request names no member of the group."""


ANSWER, REFUSAL, CONFLICT = 0, 1, 2


class _Message(msgspec.Struct, array_like=True, frozen=True):
    """Encoded as a list, so that further fields of a newer release are ignored."""


# -- partitions ------------------------------------------------------------------------------------------------


class RecordToWrite(_Message, frozen=True):
    """A record of a `Write`."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    idempotency_key: str | None = None
    timestamp: TimestampMs | None = None
    """None for the time at which the leader writes it."""


class Write(_Message, frozen=True):
    """Write records, as the leader of their partitions."""

    topic: str
    topic_id: Uuid
    lines: tuple[RecordToWrite, ...]


class WriteResult(_Message, frozen=True):
    """The position or the error of a record."""

    partition: int
    offset: Offset
    code: int = 0
    message: str = ""
    may_be_written: bool = False
    """The record may be written in spite of the error."""

    @property
    def error(self) -> KafkaError | None:
        return _error_of_leader(self.code, self.message) if self.code else None


class WriteAudit(_Message, frozen=True):
    """Write lines of the sender's audit, as the leader of the audit topic's partition."""

    topic: str
    topic_id: Uuid
    partition: int
    lines: tuple[bytes, ...]


class FindKeys(_Message, frozen=True):
    """Find records with these idempotency keys."""

    topic_id: Uuid
    digests: tuple[bytes, ...]


KeyPlaces: TypeAlias = list[tuple[int, Offset] | None]
"""Partition and offset of each key's record; None for an unknown key."""


class GetBounds(_Message, frozen=True):
    """Get the offsets of partitions, from their leader."""

    partitions: tuple[tuple[Uuid, int], ...]
    times: tuple[TimestampMs, ...] = ()
    """Timestamps: for each, the offset of the first record at or after it."""


class Bounds(_Message, frozen=True):
    """Offsets and size of a partition, as its leader has them."""

    log_start: Offset
    last_stable: Offset
    high_watermark: Offset
    log_end: Offset
    size_bytes: int
    segments: int
    found: tuple[Offset | None, ...] = ()
    """The offset for each of the requested times; None if no record is that late."""


class BoundsResult(_Message, frozen=True):
    code: int
    message: str = ""
    bounds: Bounds | None = None

    @property
    def error(self) -> KafkaError:
        """The error, if there are no bounds."""
        return _error_of_leader(self.code, self.message)


class GetLagTimes(_Message, frozen=True):
    """Get the age of the first record at or after offsets of partitions that the receiver leads."""

    offsets: tuple[tuple[Uuid, int, Offset], ...]


LagTimes: TypeAlias = list[float | None]
"""Seconds; 0 if there is no such record, None if that is not known."""


class GetOffsetBack(_Message, frozen=True):
    """Go back from an offset of a partition that the receiver leads, by bytes of its log."""

    topic_id: Uuid
    partition: int
    stop: Offset
    size_bytes: int


class View(_Message, frozen=True):
    """Inspect the logs of partitions that the receiver leads."""

    topic_id: Uuid
    numbers: tuple[int, ...]
    segments_max: int
    entries_max: int


class GetTopicFigures(_Message, frozen=True):
    """Get size, records and rates of the topics with a replica on the receiver, in order of their ids."""

    after: Uuid | None
    """Only topics after this one."""


FIGURES_A_REPLY: Final = 10_000
"""Topics in one reply, 500 KB; there may be more if there are so many."""


class GetReplicas(_Message, frozen=True):
    """Get the replicas that the receiver has of partitions of a topic."""

    topic_id: Uuid
    partitions: tuple[int, ...]


class FollowerState(_Message, frozen=True):
    """A follower, as the leader knows it from its fetches."""

    broker: int
    log_end: Offset
    """-1 if it has not fetched since the leader was elected."""
    behind_ms: int | None
    """How long ago it was last known to be at the leader's log end; None if it was not, since then."""


class HeldReplica(_Message, frozen=True):
    """A replica on the broker that answers."""

    partition: int
    log_end: Offset
    size_bytes: int
    segments: int
    bounds: Bounds | None = None
    """If it is the leader."""
    followers: tuple[FollowerState, ...] = ()


class Inspect(_Message, frozen=True):
    """Inspect the log of a partition that the receiver leads, at an offset."""

    topic_id: Uuid
    partition: int
    offset: Offset
    limit: int


class InspectBatches(Inspect, frozen=True):
    """A page of batches."""


class InspectIndexes(Inspect, frozen=True):
    """Entries of both indexes around an offset."""


class InspectLookup(Inspect, frozen=True):
    """The steps of a lookup."""

    time: TimestampMs | None = None
    """Look up a time instead of an offset."""


class DeleteRecords(_Message, frozen=True):
    """Delete the records before an offset."""

    topic_id: Uuid
    partition: int
    before: Offset


class PlanSearch(_Message, frozen=True):
    """Check a query, and split ranges of partitions that the receiver leads into chunks."""

    topic_id: Uuid
    query: SearchQuery
    ranges: tuple[tuple[int, Offset, Offset], ...]
    """Partition, first offset, and the offset after the last."""


class SearchChunks(_Message, frozen=True):
    """Search chunks of partitions that the receiver leads, for a moment."""

    topic_id: Uuid
    query: SearchQuery
    chunks: tuple[Chunk, ...]
    limit: int
    is_committed: bool = True
    """Whether records of aborted transactions are left out."""


class ChangeSchemas(_Message, frozen=True):
    """Change the schema registry, as the leader of `_schemas-0`."""

    change: Change


class SchemasChanged(_Message, frozen=True):
    """The response for the client, also if the change was refused."""

    status: int
    body: bytes
    """JSON."""
    offset: Offset
    """A view up to this offset has the change."""


# -- groups ----------------------------------------------------------------------------------------------------


class Join(_Message, frozen=True):
    group: str
    consumer: str
    topics: tuple[str, ...]
    session_ms: int


class Leave(_Message, frozen=True):
    group: str
    consumer: str


class Consume(_Message, frozen=True):
    group: str
    consumer: str | None
    topic: str
    partition: int
    records_max: int
    wait_ms: int


class ConsumedRecord(_Message, frozen=True):
    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    """Names as bytes, since they need not be UTF-8."""


class ConsumedRecords(_Message, frozen=True):
    records: tuple[ConsumedRecord, ...]
    next_offset: Offset


class Commit(_Message, frozen=True):
    group: str
    consumer: str | None
    topic: str
    partition: int
    offset: Offset


class SummarizeGroups(_Message, frozen=True):
    """Get summaries of groups that the receiver coordinates."""

    groups: tuple[str, ...]
    positions_max: int
    """The receiver stops after the group with which there are this many positions."""


class GroupSummaries(_Message, frozen=True):
    groups: tuple[groups.GroupSummary, ...]
    """Without groups that do not exist."""
    handled: int
    """How many of the named groups were looked at, from the first."""


# -- transactions ----------------------------------------------------------------------------------------------


class ListTransactions(_Message, frozen=True):
    """List the transactions that the receiver coordinates. Empty filters let everything through."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    age_ms_min: int = -1


class GetProducers(_Message, frozen=True):
    """Get the producers of a partition that the receiver leads."""

    topic_id: Uuid
    partition: int


class FindOpenTransactions(_Message, frozen=True):
    """Find transactions that are open in partitions that the receiver leads, and that got no record for some time."""

    age_ms_min: int
    limit: int


class OpenTransaction(_Message, frozen=True):
    topic: str
    partition: int
    producer: PartitionProducer


class AbortOpenTransaction(_Message, frozen=True):
    """Write an abort marker for the transaction that begins at an offset, without its coordinator."""

    topic_id: Uuid
    partition: int
    start_offset: Offset


# -- brokers ---------------------------------------------------------------------------------------------------


class GetLogDirectory(_Message, frozen=True):
    """Get the space of the receiver's log directory, and the sizes of its logs."""

    with_topics: bool = False


class TopicSize(_Message, frozen=True):
    topic: str
    partitions: int
    size_bytes: int


class LogDirectory(_Message, frozen=True):
    path: str
    total_bytes: int
    free_bytes: int
    logs_bytes: int
    partitions: int
    topics: tuple[TopicSize, ...] = ()


class GetLogRanges(_Message, frozen=True):
    """Get the log start and log end offsets of the receiver's replicas, as leader or follower."""

    partitions: tuple[tuple[Uuid, int], ...]


LogRanges: TypeAlias = list[tuple[Offset, Offset] | None]
"""None for a partition without a replica."""


class GetBrokerConfigs(_Message, frozen=True):
    """Get all configs of the receiver, once it has read the metadata log up to an offset."""

    metadata_end: Offset = 0


class GetAudit(_Message, frozen=True):
    """Get the last lines of the receiver's audit."""

    limit: int


AuditLines: TypeAlias = list[str] | None
"""Oldest first; None if the receiver has no audit."""


# -- what brokers observe --------------------------------------------------------------------------------------


class GetHistory(_Message, frozen=True):
    """Get the receiver's samples."""

    series: tuple[str, ...]
    since_ms: TimestampMs
    step_ms: int


class NodeHistory(_Message, frozen=True):
    """Samples of one broker, by step."""

    times: list[TimestampMs]
    """When each step begins."""
    values: dict[str, list[float | None]]
    """By series."""
    counts: dict[str, list[list[int]]]
    """By kind of requests: for each step, the number of requests by duration (`base.metrics.BOUNDS_NS`)."""


class GetLagHistory(_Message, frozen=True):
    """Get the lag of a group, as far as the receiver has sampled it."""

    group: str
    since_ms: TimestampMs


class LagSamples(_Message, frozen=True):
    is_known: bool
    """The receiver coordinates the group."""
    times: list[TimestampMs]
    records: list[float | None]
    seconds: list[float | None]


class GetLags(_Message, frozen=True):
    """Get how far offsets are behind the end of partitions that the receiver leads."""

    offsets: tuple[tuple[Uuid, int, Offset], ...]


Lags: TypeAlias = list[tuple[int, float | None] | None]
"""Records, and seconds if they are known; None for a partition that the receiver does not lead."""


class GetEvents(_Message, frozen=True):
    """Get events of the receiver itself after an id; and those of the cluster that it has seen."""

    after: int
    limit: int
    of_cluster: bool = False


class NodeEvents(_Message, frozen=True):
    since_ms: TimestampMs
    """Since when the broker has noted events."""
    events: list[Event]
    cluster_events: list[Event]


class GetNodeStatus(_Message, frozen=True):
    """Get the receiver's health and figures."""


class _Call(NamedTuple):
    request: Any
    """Type of the request."""
    reply: Any
    """Type of the reply."""


def _group_call(request: type[Any]) -> _Call:
    """A request to a group coordinator, sent as it is. Its reply has the same type whatever the fields are."""
    empty: Any = request.__new__(request, *("" for _ in request._fields))
    return _Call(request, type(groups.refusal(empty, ErrorCode.NONE)))


CALLS: Final[Mapping[str, _Call]] = {
    "Write": _Call(Write, list[WriteResult]),
    "WriteAudit": _Call(WriteAudit, None),
    "FindKeys": _Call(FindKeys, KeyPlaces),
    "Look": _Call(GetBounds, list[BoundsResult]),
    "LagTimes": _Call(GetLagTimes, LagTimes),
    "OffsetBack": _Call(GetOffsetBack, int),
    "View": _Call(View, list[PartitionView]),
    "TopicFigures": _Call(GetTopicFigures, list[TopicFigures]),
    "Replicas": _Call(GetReplicas, list[HeldReplica]),
    "InspectBatches": _Call(InspectBatches, BatchPage),
    "InspectIndexes": _Call(InspectIndexes, IndexView),
    "InspectLookup": _Call(InspectLookup, Lookup),
    "Shorten": _Call(DeleteRecords, int),
    "PlanSearch": _Call(PlanSearch, list[PartitionPlan]),
    "SearchChunks": _Call(SearchChunks, Portion),
    "ChangeSchemas": _Call(ChangeSchemas, SchemasChanged),
    "Join": _Call(Join, dict[str, list[int]]),
    "Leave": _Call(Leave, None),
    "Consume": _Call(Consume, ConsumedRecords),
    "Commit": _Call(Commit, None),
    "SummarizeGroups": _Call(SummarizeGroups, GroupSummaries),
    "LeaveGroup": _group_call(groups.LeaveGroup),
    "History": _Call(GetHistory, NodeHistory),
    "LagHistory": _Call(GetLagHistory, LagSamples),
    "Lags": _Call(GetLags, Lags),
    "Events": _Call(GetEvents, NodeEvents),
    "NodeStatus": _Call(GetNodeStatus, NodeStatus),
    "OffsetCommit": _group_call(groups.OffsetCommit),
    "OffsetDelete": _group_call(groups.OffsetDelete),
    "OffsetFetch": _group_call(groups.OffsetFetch),
    "ListGroups": _group_call(groups.ListGroups),
    "DescribeGroups": _group_call(groups.DescribeGroups),
    "DeleteGroups": _group_call(groups.DeleteGroups),
    "ConsumerGroupDescribe": _group_call(groups.ConsumerGroupDescribe),
    "ListTransactions": _Call(ListTransactions, list[transactions.Listed]),
    "DescribeTransaction": _Call(transactions.DescribeTransaction, transactions.Described),
    "InitProducerId": _Call(transactions.InitProducerId, transactions.ProducerReply),
    "GetProducers": _Call(GetProducers, list[PartitionProducer]),
    "FindOpenTransactions": _Call(FindOpenTransactions, list[OpenTransaction]),
    "AbortOpenTransaction": _Call(AbortOpenTransaction, PartitionProducer),
    "GetLogDirectory": _Call(GetLogDirectory, LogDirectory),
    "GetLogRanges": _Call(GetLogRanges, LogRanges),
    "GetBrokerConfigs": _Call(GetBrokerConfigs, list[ConfigEntry]),
    "GetAudit": _Call(GetAudit, AuditLines),
}
"""By the kind on the wire."""

_KINDS = {call.request: kind for kind, call in CALLS.items()}

_encode = msgspec.msgpack.Encoder().encode
_open = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode
_readers = {kind: msgspec.msgpack.Decoder(call.request).decode for kind, call in CALLS.items()}
_replies = {kind: msgspec.msgpack.Decoder(call.reply).decode for kind, call in CALLS.items()}
_envelope = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_number = msgspec.msgpack.Decoder(int).decode
_text = msgspec.msgpack.Decoder(str).decode
_assignments = msgspec.msgpack.Decoder(dict[str, list[int]] | None).decode


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # of a newer release
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _error_of_leader(number: int, message: str) -> KafkaError:
    """A partition that the receiver does not know is retriable: its metadata is behind the sender's."""
    code = _code(number)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return KafkaError(message, code)


def write(request: Any) -> bytes:
    return _encode((_KINDS[type(request)], request))


def read(data: bytes) -> Any:
    """The request. Raises INVALID_REQUEST if it cannot be read."""
    try:
        kind, body = _open(data)
        return _readers[kind](body)
    except KeyError:
        raise KafkaError(
            f"unknown request {kind[:64]!r} between brokers", ErrorCode.INVALID_REQUEST
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KafkaError(f"malformed request between brokers: {error}", ErrorCode.INVALID_REQUEST) from error


def write_reply(reply: Any) -> bytes:
    return _encode((ANSWER, reply))


def write_error(error: KafkaError) -> bytes:
    if isinstance(error, Conflict):
        return _encode((CONFLICT, error.reason, str(error), error.assignments))
    return _encode((REFUSAL, int(error.code), str(error)))


def read_reply(request: Any, data: bytes) -> Any:
    """The reply to a request. Raises the other broker's error."""
    try:
        what, *parts = _envelope(data)
        match _number(what):
            case 0:
                return _replies[_KINDS[type(request)]](parts[0])
            case 1:
                raise KafkaError(_text(parts[1]), _code(_number(parts[0])))
            case 2:
                raise Conflict(_text(parts[0]), _text(parts[1]), _assignments(parts[2]))
        raise ValueError(f"it begins with {_number(what)}, expected 0, 1 or 2")
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        raise KafkaError(
            f"malformed reply of another broker: {error}", ErrorCode.UNKNOWN_SERVER_ERROR
        ) from error
