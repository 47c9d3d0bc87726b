"""Settings and contents of transactions, and the meaning of error codes to a transactional producer."""

from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode
from penstock.sim.checkers.history import ProducedRecord, Survives
from penstock.sim.clients import messages
from penstock.sim.clients.group_messages import Membership, Position
from penstock.wire import Api

ALL = -1

VERSION_1_MAX = {
    Api.PRODUCE: 11,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 4,
    Api.END_TXN: 4,
}
"""Last versions used with `transaction.version` 1."""
VERSION_2_MIN = {Api.PRODUCE: 12, Api.TXN_OFFSET_COMMIT: 5, Api.END_TXN: 5}

EXPECTED_FROM = 3
"""First version of InitProducerId that sends the producer's current id and epoch."""

ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Another node is the coordinator now, or will be."""

NOT_YET = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})
"""The request had no effect; retry."""
AGAIN = NOT_YET | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
FENCED = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
MEMBER_GONE = frozenset({
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
})  # fmt: skip
"""Errors of a member that the group has rebalanced without."""


@dataclass
class TxnWork:
    """The contents of one transaction."""

    rounds: list[dict[int, list[ProducedRecord]]]
    """Records by partition, one Produce request per round."""
    commit: bool
    member: Membership | None = None
    """Member whose offsets are committed with it."""
    topic: messages.TopicName | None = None
    positions: dict[int, Position] = field(default_factory=dict)


@dataclass(frozen=True)
class TxnSettings:
    transactional_id: str
    topic: str
    """Topic that it writes to."""
    is_version_2: bool
    timeout_ms: int
    survives: Survives
    is_shared: bool = False
    """Other producers use the same transactional id: fencing is expected."""
