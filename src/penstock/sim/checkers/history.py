"""Events of a run as clients and operators saw them: the only input of checkers.

A reply may reach its client after the process that sent it has ended. So events that come from a reply carry the
`incarnation` of that process: its number, counted up with every start of a node.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.cluster_history import (
    CoordinatorLoaded,
    CoordinatorUnloaded,
    HighWatermark,
    ImageLoaded,
    LeaderFound,
    MetadataCommitted,
    QuorumLeaderFound,
    ReplicaCreated,
    ReplicaRead,
)
from penstock.sim.checkers.door_history import DoorEvent
from penstock.sim.topic_lives import Deleted, DeletionLost, DeletionSent, LifeStarted, ReadByName


class Survives(Enum):
    """What a record must survive once it is acknowledged."""

    NOTHING = "nothing"
    KILL = "a kill"
    POWER_CUT = "a power cut"


class ProducedRecord(NamedTuple):
    """A record as its producer made it. Its value is unique."""

    key: bytes | None
    value: bytes
    number: int
    """Counts the producer's records in this partition."""


class TxnEnd(Enum):
    """State of a transaction, as far as its producer knows."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Also if the producer never ended it: a commit was never sent, and never will be."""
    UNKNOWN = "unknown"
    """A commit was sent, and its reply was lost."""


class OffsetCommit:
    """An offset committed for a group, alone or in a transaction."""

    __slots__ = ("at", "group", "name", "offset", "txn")

    def __init__(
        self, name: str, group: str, at: TopicPartition, offset: Offset, txn: "Txn | None" = None
    ) -> None:
        self.name = name
        """Unique; sent as the commit's metadata."""
        self.group = group
        self.at = at
        self.offset = offset
        self.txn = txn

    def __str__(self) -> str:
        return f"{self.offset} of {self.at} for {self.group} ({self.name})"


class Txn:
    """A transaction as its producer made it, and its state."""

    __slots__ = ("batches", "commit_sends", "commits", "end", "number", "producer")

    def __init__(self, producer: str, number: int) -> None:
        self.producer = producer
        self.number = number
        """Counts the producer's transactions."""
        self.batches: list[Batch] = []
        self.commits: list[OffsetCommit] = []
        self.commit_sends = 0
        """How often its commit was sent."""
        self.end = TxnEnd.OPEN

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.end.value})"


class Batch:
    """A batch as its producer made it, and how it was sent so far."""

    __slots__ = ("acks", "at", "identities", "number", "producer", "records", "sends", "txn")

    def __init__(
        self, producer: str, number: int, at: TopicPartition, acks: int, records: list[ProducedRecord]
    ) -> None:
        self.producer = producer
        self.number = number
        """Counts the producer's batches."""
        self.at = at
        self.acks = acks
        self.records = records
        self.sends = 0
        self.txn: Txn | None = None
        """Its transaction, if any."""
        self.identities: list[tuple[int, int, int]] = []
        """Each (producer id, epoch, sequence) that it was sent with; empty for a plain producer."""

    def __str__(self) -> str:
        return f"{self.producer} #{self.number} for {self.at} ({len(self.records)} records, acks={self.acks})"

    @property
    def copies_max(self) -> int:
        """How often each of its records may be in the log."""
        return len(self.identities) or self.sends


class ReadRecord(NamedTuple):
    """A record as a consumer read it."""

    offset: Offset
    key: bytes | None
    value: bytes


# -- producers ----------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    batch: Batch


class Acked(NamedTuple):
    batch: Batch
    base_offset: Offset
    """-1 if the node only replied that it already has the batch."""
    survives: Survives
    incarnation: int


class Refused(NamedTuple):
    batch: Batch
    code: int
    is_first: bool
    """All earlier batches of the producer for this partition were acknowledged."""
    incarnation: int


class EpochBumped(NamedTuple):
    """A pipelined producer bumped its epoch and renumbered its unacknowledged batches."""

    producer: str
    epoch: int
    code: int
    """The error that caused it."""


class GotProducerId(NamedTuple):
    producer: str
    producer_id: int
    epoch: int
    incarnation: int


# -- consumers ----------------------------------------------------------------------------------------------


class FetchSent(NamedTuple):
    """A client sent a Fetch."""

    request: tuple[str, int]
    at: Sequence[TopicPartition]


class FetchReceived(NamedTuple):
    """A Fetch response showed the records between two offsets."""

    consumer: str
    at: TopicPartition
    request: tuple[str, int]
    start: Offset
    stop: Offset
    records: Sequence[ReadRecord]
    high_watermark: Offset
    log_start: Offset
    """-1 if the response does not carry it."""
    incarnation: int


class PositionMoved(NamedTuple):
    """A consumer changed its position: its offset was out of range, or it continues at its group's offset."""

    consumer: str
    at: TopicPartition
    to: Offset
    incarnation: int


class Audited(NamedTuple):
    """All records of a partition, read at the end of a run."""

    at: TopicPartition
    start: Offset
    end: Offset
    records: Sequence[ReadRecord]


class Delivered(NamedTuple):
    """What a read_committed consumer delivered of a fetched range, and which aborted records it hid."""

    consumer: str
    at: TopicPartition
    records: Sequence[ReadRecord]
    hidden: Sequence[ReadRecord]


class ReadAfterLoss(NamedTuple):
    """What a read_committed consumer gets from a log that has lost data (`hole_trials`)."""

    at: TopicPartition
    lost: str
    records: Sequence[ReadRecord]


# -- transactions -------------------------------------------------------------------------------------------


class InitSent(NamedTuple):
    """A transactional producer sent InitProducerId."""

    producer: str


class Initialised(NamedTuple):
    """A transactional producer received its producer id and epoch."""

    producer: str
    transactional_id: str
    producer_id: int
    epoch: int
    is_anew: bool
    """It did not send its previous identity: the previous user of the transactional id is fenced."""


class CommitSent(NamedTuple):
    txn: Txn


class TxnEnded(NamedTuple):
    """The producer is done with a transaction; `txn.end` is final."""

    txn: Txn


class Derived(NamedTuple):
    """A worker writes a record computed from another record."""

    value: bytes
    group: str
    at: TopicPartition
    """Partition and offset of the record that was read."""
    offset: Offset
    source: bytes


# -- groups -------------------------------------------------------------------------------------------------


class Owned(NamedTuple):
    """A member was assigned partitions."""

    group: str
    generation: int
    """Generation of the group, or the member's epoch in the consumer protocol."""
    member_id: str
    partitions: Sequence[int]
    now_us: int


class Renewal(NamedTuple):
    """An answered heartbeat, which renews a member's session."""

    node: int
    """The node it was sent to, as the group's coordinator."""
    sent_us: int


class Leased(NamedTuple):
    """A member may keep reading its partitions: no other member may be assigned them before its session ends."""

    group: str
    generation: int
    member_id: str
    partitions: Sequence[int]
    """Empty: the member gave them up."""
    until_us: int
    renewal: Renewal | None = None


class OffsetsSent(NamedTuple):
    """A client sent commits of offsets."""

    commits: Sequence[OffsetCommit]


class OffsetsAcked(NamedTuple):
    """Commits were acknowledged. Those of a transaction are pending until it ends."""

    commits: Sequence[OffsetCommit]


class OffsetsRefused(NamedTuple):
    """Commits were rejected and never take effect."""

    commits: Sequence[OffsetCommit]


class OffsetFetchSent(NamedTuple):
    """A client sent OffsetFetch."""

    request: tuple[str, int]


class OffsetsFetched(NamedTuple):
    request: tuple[str, int]
    group: str
    names: Mapping[TopicPartition, tuple[Offset, str]]
    """Offset and name of the commit; -1 if there is none."""
    is_stable: bool
    """The request waited for pending transactions."""


class RequestRefused(NamedTuple):
    """A coordinator or controller rejected a request."""

    client: str
    what: str
    code: int
    is_due: bool
    """The client knows a reason for it: it is late, or another client replaced it."""


class Closed(NamedTuple):
    """The run has settled, and everything was read."""


# -- connections and topics ---------------------------------------------------------------------------------


class Replied(NamedTuple):
    client: str
    link: int
    expected: int
    """Correlation id of the oldest open request; -1 if there is none."""
    found: int


class Overdue(NamedTuple):
    """A request got no reply within the request timeout."""

    client: str
    what: str
    is_node_there: bool
    """The process that got the request is alive and reachable."""


class TopicDescribed(NamedTuple):
    name: str
    id: UUID | None
    partition_count: int


# -- the node -----------------------------------------------------------------------------------------------


class Started(NamedTuple):
    incarnation: int


class Killed(NamedTuple):
    incarnation: int


class PowerCut(NamedTuple):
    incarnation: int
    """The last process that ran; it may have ended before."""


class Stopped(NamedTuple):
    incarnation: int
    is_clean: bool
    """Its disk had no faults, so everything it wrote must be durable."""


Event = (
    Sent
    | Acked
    | Refused
    | EpochBumped
    | GotProducerId
    | FetchSent
    | FetchReceived
    | PositionMoved
    | Audited
    | Delivered
    | ReadAfterLoss
    | InitSent
    | Initialised
    | CommitSent
    | TxnEnded
    | Derived
    | Owned
    | Leased
    | OffsetsSent
    | OffsetsAcked
    | OffsetsRefused
    | OffsetFetchSent
    | OffsetsFetched
    | RequestRefused
    | Closed
    | Replied
    | Overdue
    | TopicDescribed
    | Started
    | Killed
    | PowerCut
    | Stopped
    | QuorumLeaderFound
    | LeaderFound
    | CoordinatorLoaded
    | CoordinatorUnloaded
    | ReplicaCreated
    | HighWatermark
    | MetadataCommitted
    | ImageLoaded
    | ReplicaRead
    | LifeStarted
    | DeletionSent
    | DeletionLost
    | Deleted
    | ReadByName
    | DoorEvent
)
