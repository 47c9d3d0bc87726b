"""Requests and replies of a transaction coordinator, independent of API versions.

`version` in a request is the client's `transaction.version`, which the handler derives from the API version:

    AddPartitionsToTxn   2 from version 4 on, else 0
    AddOffsetsToTxn      0: a client that speaks 2 does not send it
    EndTxn               2 from version 5 on, else 0
    Produce              2 from version 12 on; before, partitions are verified, not added
    TxnOffsetCommit      2 from version 5 on; before, the same

Replies have the codes of Kafka's coordinator; `codes` translates them for older clients.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_for
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, TimestampMs, TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC

from .state import Partitions


class ProducerEpoch(NamedTuple):
    """A producer's id and its epoch."""

    producer_id: ProducerId
    epoch: int


# Requests of producers.


class InitProducerId(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: ProducerEpoch | None = None
    """The producer's id and epoch, if it recovers from an error (KIP-360)."""


class AddPartitions(NamedTuple):
    transactional_id: str
    producer: ProducerEpoch
    partitions: Partitions
    version: int = 0


class VerifyPartitions(NamedTuple):
    """Whether partitions are in the transaction that is open now; nothing is added (KIP-890 part 1)."""

    transactional_id: str
    producer: ProducerEpoch
    partitions: Partitions


class EndTxn(NamedTuple):
    transactional_id: str
    producer: ProducerEpoch
    commit: bool
    version: int = 0


def add_offsets(
    transactional_id: str, producer: ProducerEpoch, group_id: str, offsets_partitions: int
) -> AddPartitions:
    """AddOffsetsToTxn: the transaction also writes to the partition that keeps the group's offsets."""
    kept_by = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, offsets_partitions))
    return AddPartitions(transactional_id, producer, frozenset({kept_by}))


# Requests of the coordinator itself and its runtime.


class AbortTimedOut(NamedTuple):
    """Abort the transaction of this producer: it has timed out."""

    transactional_id: str
    producer: ProducerEpoch


class ExpireIds(NamedTuple):
    """Remove these unused ids; each is checked again before its tombstone is written."""

    transactional_ids: tuple[str, ...]


class MarkersWritten(NamedTuple):
    """The markers of these partitions are committed, or the partitions were deleted."""

    transactional_id: str
    end: int
    """`Markers.end`. Ignored if it is not the current end."""
    partitions: Partitions = frozenset()


# Requests of operators.


class DescribeTransaction(NamedTuple):
    transactional_id: str


class ListTransactions(NamedTuple):
    """Empty filters let everything through."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    duration_ms: int = -1
    """Only transactions that began longer ago than this; negative for all."""
    matches: Callable[[str], bool] | None = None
    """Whether the whole transactional id matches the pattern of the request."""


OfOneId: TypeAlias = (
    InitProducerId | AddPartitions | VerifyPartitions | EndTxn | AbortTimedOut | MarkersWritten
)
"""Requests that read or change the state of one id."""
Request: TypeAlias = OfOneId | ExpireIds | DescribeTransaction | ListTransactions


# Replies.


class Reply(NamedTuple):
    """To every request that needs only an error code."""

    code: ErrorCode = ErrorCode.NONE


class ProducerReply(NamedTuple):
    """To InitProducerId and EndTxn: the producer's id and epoch from now on."""

    code: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


class VerifyReply(NamedTuple):
    codes: dict[TopicPartition, ErrorCode]


class Described(NamedTuple):
    code: ErrorCode
    state: str = ""
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    started_ms: TimestampMs = -1
    partitions: tuple[TopicPartition, ...] = ()


class Listed(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: str
    started_ms: TimestampMs = -1
    """Start time of the open or else of the last transaction; -1 if there was none."""


class ListReply(NamedTuple):
    transactions: tuple[Listed, ...]
    unknown_states: tuple[str, ...]
    """Of the filter: names that no state has."""


class NeedsProducerId(NamedTuple):
    """The decision needs a new producer id: handle the request again with one."""


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


class Markers(NamedTuple):
    """The end of a transaction, to be written to each of its partitions."""

    transactional_id: str
    end: int
    """Names this end among all that this coordinator has handed out."""
    producer: ProducerEpoch
    coordinator_epoch: int
    commit: bool
    partitions: Partitions
    version: int
    """The `transaction.version` of the end: from 2 on, a marker's epoch is above that of the records it ends
    (KIP-1228), and a partition can refuse one that comes too late."""


def refusal(request: Request, code: ErrorCode) -> Any:
    """The reply that carries an error, in the shape that the request's API has."""
    match request:
        case InitProducerId() | EndTxn():
            return ProducerReply(code)
        case VerifyPartitions():
            return VerifyReply(dict.fromkeys(request.partitions, code))
        case DescribeTransaction():
            return Described(code)
        case ListTransactions():
            return ListReply((), ())
    return Reply(code)
