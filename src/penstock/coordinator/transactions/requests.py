"""What a transaction coordinator can be asked, and what it answers: plain data, free of API versions.

`version` in a request is the `transaction.version` that the client speaks, which the handler tells from the API's
version:

    AddPartitionsToTxn   2 from version 4 on, else 0
    AddOffsetsToTxn      0: a client that speaks 2 does not send it
    EndTxn               2 from version 5 on, else 0
    Produce              2 from version 12 on; before, partitions are verified, not added
    TxnOffsetCommit      2 from version 5 on; before, the same

Replies have codes as Kafka's coordinator gives them; `codes` has what is made of them for older clients.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_for
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, TimestampMs, TopicPartition

from .state import Partitions

R_co = TypeVar("R_co", covariant=True)

GROUP_TOPIC: Final = "__consumer_offsets"


class ProducerEpoch(NamedTuple):
    """A producer's id and its epoch."""

    producer_id: ProducerId
    epoch: int


# What producers ask.


class InitProducerId(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: ProducerEpoch | None = None
    """What the producer had, where it goes on after an error (KIP-360)."""


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
    kept_by = TopicPartition(GROUP_TOPIC, partition_for(group_id, offsets_partitions))
    return AddPartitions(transactional_id, producer, frozenset({kept_by}))


# What the coordinator asks itself, and its driver tells it.


class AbortTimedOut(NamedTuple):
    """The transaction of this producer has lasted too long."""

    transactional_id: str
    producer: ProducerEpoch


class ExpireIds(NamedTuple):
    """These ids have been idle for too long; each is looked at again before its tombstone is written."""

    transactional_ids: tuple[str, ...]


class MarkersWritten(NamedTuple):
    """The markers of these partitions are in their logs, and committed there; or the partitions are no more."""

    transactional_id: str
    end: int
    """As the markers have it. What is said of another end, however late, changes nothing."""
    partitions: Partitions = frozenset()


# What people ask.


class DescribeTransaction(NamedTuple):
    transactional_id: str


class ListTransactions(NamedTuple):
    """Empty filters let everything through."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    duration_ms: int = -1
    """Only transactions that began longer ago than this; negative for all."""
    matches: Callable[[str], bool] | None = None
    """Whether the whole transactional id fits the pattern of the request."""


OfOneId: TypeAlias = (
    InitProducerId | AddPartitions | VerifyPartitions | EndTxn | AbortTimedOut | MarkersWritten
)
"""What is decided on the state of one id, and may change it."""
Request: TypeAlias = OfOneId | ExpireIds | DescribeTransaction | ListTransactions


# Answers.


class Reply(NamedTuple):
    """To every request that has no richer answer."""

    code: ErrorCode = ErrorCode.NONE


class ProducerReply(NamedTuple):
    """To InitProducerId and EndTxn: what the producer is from now on, where it is told."""

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


class ListReply(NamedTuple):
    transactions: tuple[Listed, ...]
    unknown_states: tuple[str, ...]
    """Of the filter: names that no state has."""


class NeedsProducerId(NamedTuple):
    """No decision without a fresh producer id: the same request is to be handled again, with one."""


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
