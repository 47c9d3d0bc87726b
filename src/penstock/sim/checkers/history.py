"""What happened, as clients and the operator saw it: the only thing that checkers look at.

A reply may reach its client after the process that sent it is gone. So whatever was heard names the `incarnation` it
was heard from: the number of the node's process, counted up with every start.
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
    """A record as its producer made it. The value is found nowhere else."""

    key: bytes | None
    value: bytes
    number: int
    """Counts the producer's records in this partition."""


class TxnEnd(Enum):
    """What a transactional producer knows of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Also if nobody ended it: nobody asked for its commit, and nobody will."""
    UNKNOWN = "unknown"
    """A commit was asked for, and nobody heard what became of it."""


class OffsetCommit:
    """An offset of a group that somebody commits, by itself or in a transaction."""

    __slots__ = ("at", "group", "name", "offset", "txn")

    def __init__(
        self, name: str, group: str, at: TopicPartition, offset: Offset, txn: "Txn | None" = None
    ) -> None:
        self.name = name
        """Goes with it as metadata, and is found nowhere else."""
        self.group = group
        self.at = at
        self.offset = offset
        self.txn = txn

    def __str__(self) -> str:
        return f"{self.offset} of {self.at} for {self.group} ({self.name})"


class Txn:
    """A transaction as its producer made it, with what is known of it."""

    __slots__ = ("batches", "commit_sends", "commits", "end", "number", "producer")

    def __init__(self, producer: str, number: int) -> None:
        self.producer = producer
        self.number = number
        """Counts the producer's transactions."""
        self.batches: list[Batch] = []
        self.commits: list[OffsetCommit] = []
        self.commit_sends = 0
        """How often its commit was asked for."""
        self.end = TxnEnd.OPEN

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.end.value})"


class Batch:
    """A batch as its producer made it, with what became of it so far."""

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
        """The transaction it is part of."""
        self.identities: list[tuple[int, int, int]] = []
        """Under which (producer id, epoch, sequence) it was sent; empty for a plain producer."""

    def __str__(self) -> str:
        return f"{self.producer} #{self.number} for {self.at} ({len(self.records)} records, acks={self.acks})"

    @property
    def copies_max(self) -> int:
        """How often each of its records may be in the log."""
        return len(self.identities) or self.sends


class ReadRecord(NamedTuple):
    """A record as somebody read it."""

    offset: Offset
    key: bytes | None
    value: bytes


# -- producers ----------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    batch: Batch


class Acked(NamedTuple):
    batch: Batch
    base_offset: Offset
    """-1 if the node only said that it has the batch already."""
    survives: Survives
    incarnation: int


class Refused(NamedTuple):
    batch: Batch
    code: int
    is_first: bool
    """Everything that the producer sent before it to this partition was acknowledged."""
    incarnation: int


class EpochBumped(NamedTuple):
    """A pipelined producer begins a new epoch by itself, and numbers anew what is not acknowledged."""

    producer: str
    epoch: int
    code: int
    """The refusal that made it do so."""


class GotProducerId(NamedTuple):
    producer: str
    producer_id: int
    epoch: int
    incarnation: int


# -- consumers ----------------------------------------------------------------------------------------------


class FetchSent(NamedTuple):
    """A fetch leaves its client."""

    request: tuple[str, int]
    at: Sequence[TopicPartition]


class FetchReceived(NamedTuple):
    """A fetch showed what lies between two offsets."""

    consumer: str
    at: TopicPartition
    request: tuple[str, int]
    start: Offset
    stop: Offset
    records: Sequence[ReadRecord]
    high_watermark: Offset
    log_start: Offset
    """-1 if it was not told."""
    incarnation: int


class PositionMoved(NamedTuple):
    """A consumer goes on elsewhere: its offset was out of range, or it reads on where its group is."""

    consumer: str
    at: TopicPartition
    to: Offset
    incarnation: int


class Audited(NamedTuple):
    """Everything in a partition, read when all is quiet."""

    at: TopicPartition
    start: Offset
    end: Offset
    records: Sequence[ReadRecord]


class Delivered(NamedTuple):
    """What a consumer that reads committed records made of a view: some it gives on, the others it hides."""

    consumer: str
    at: TopicPartition
    records: Sequence[ReadRecord]
    hidden: Sequence[ReadRecord]


class ReadAfterLoss(NamedTuple):
    """What a reader of committed records is given of a log that has lost something (`hole_trials`)."""

    at: TopicPartition
    lost: str
    records: Sequence[ReadRecord]


# -- transactions -------------------------------------------------------------------------------------------


class InitSent(NamedTuple):
    """A transactional producer asks who it is."""

    producer: str


class Initialised(NamedTuple):
    """A transactional producer learnt who it is."""

    producer: str
    transactional_id: str
    producer_id: int
    epoch: int
    is_anew: bool
    """It did not say who it was before: whoever was this id until now is fenced."""


class CommitSent(NamedTuple):
    txn: Txn


class TxnEnded(NamedTuple):
    """The end of a transaction is known; or it is known that nobody will ever know."""

    txn: Txn


class Derived(NamedTuple):
    """A record is written because another one was read."""

    value: bytes
    group: str
    at: TopicPartition
    """And the offset: of the record that was read."""
    offset: Offset
    source: bytes


# -- groups -------------------------------------------------------------------------------------------------


class Owned(NamedTuple):
    """A member was given partitions."""

    group: str
    generation: int
    """Or the member's epoch."""
    member_id: str
    partitions: Sequence[int]
    now_us: int


class Renewal(NamedTuple):
    """What a member's session lasts by: a heartbeat that was answered."""

    node: int
    """Which it was sent to, as the group's coordinator."""
    sent_us: int


class Leased(NamedTuple):
    """A member may go on reading its partitions: nobody else can be given them before its session ends."""

    group: str
    generation: int
    member_id: str
    partitions: Sequence[int]
    """None of them: it gave them up."""
    until_us: int
    renewal: Renewal | None = None


class OffsetsSent(NamedTuple):
    """Commits leave their client."""

    commits: Sequence[OffsetCommit]


class OffsetsAcked(NamedTuple):
    """They were acknowledged. Those of a transaction are pending until it ends."""

    commits: Sequence[OffsetCommit]


class OffsetsRefused(NamedTuple):
    """They will never count."""

    commits: Sequence[OffsetCommit]


class OffsetFetchSent(NamedTuple):
    """A request for a group's offsets leaves its client."""

    request: tuple[str, int]


class OffsetsFetched(NamedTuple):
    request: tuple[str, int]
    group: str
    names: Mapping[TopicPartition, tuple[Offset, str]]
    """The offset and the name of the commit; -1 where there is none."""
    is_stable: bool
    """What is pending was waited for."""


class RequestRefused(NamedTuple):
    """A coordinator refused a request."""

    client: str
    what: str
    code: int
    is_due: bool
    """There is a reason for it that the client knows: it is late, or somebody else took its place."""


class Closed(NamedTuple):
    """All is quiet, and everything was read."""


# -- connections and topics ---------------------------------------------------------------------------------


class Replied(NamedTuple):
    client: str
    link: int
    expected: int
    """The correlation id of the oldest request that is open; -1 if none is."""
    found: int


class Overdue(NamedTuple):
    """A request has waited for its reply longer than anything takes."""

    client: str
    what: str
    is_node_there: bool
    """The process that the request went to lives, and holds the connection."""


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
    """The last process that ran; it need not have been running still."""


class Stopped(NamedTuple):
    incarnation: int
    is_clean: bool
    """It had a sound disk, so that all it wrote is to be durable now."""


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
