"""Events of a run as clients and operators saw them: the only input of checkers.

A reply may reach its client after the process that sent it has ended. So events that come from a reply carry the
`incarnation` of that process: its number, counted up with every start of a node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord

Event = NamedTuple
"""One of the events below, of those of a topic's lives (`topic_lives`), or of users and ACLs (`rights`)."""


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


@dataclass(eq=False, slots=True)
class OffsetCommit:
    """An offset committed for a group, alone or in a transaction."""

    name: str
    """Unique; sent as the commit's metadata."""
    group: str
    at: TopicPartition
    offset: Offset
    txn: "Txn | None" = None

    def __str__(self) -> str:
        return f"{self.offset} of {self.at} for {self.group} ({self.name})"


@dataclass(eq=False, slots=True)
class Txn:
    """A transaction as its producer made it, and its state."""

    producer: str
    number: int
    """Counts the producer's transactions."""
    batches: "list[Batch]" = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    commit_sends: int = 0
    """How often its commit was sent."""
    end: TxnEnd = TxnEnd.OPEN

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.end.value})"


@dataclass(eq=False, slots=True)
class Batch:
    """A batch as its producer made it, and how it was sent so far."""

    producer: str
    number: int
    """Counts the producer's batches."""
    at: TopicPartition
    acks: int
    records: list[ProducedRecord]
    sends: int = 0
    txn: Txn | None = None
    """Its transaction, if any."""
    identities: list[tuple[int, int, int]] = field(default_factory=list)
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


# -- HTTP and line protocol ---------------------------------------------------------------------------------


class KeyAnswered(NamedTuple):
    """A record with an idempotency key was acknowledged, perhaps not for the first time."""

    client: str
    key: str
    at: TopicPartition
    offset: Offset


class DoorCommitSent(NamedTuple):
    """A client sent a commit of its group's offset."""

    number: int
    """Unique."""
    group: str
    at: TopicPartition
    offset: Offset
    now_us: int


class DoorCommitEnded(NamedTuple):
    number: int
    is_done: bool | None
    """None if no reply arrived: the commit may take effect at any time."""


class DoorFetchSent(NamedTuple):
    """A client requested records from its group's offset."""

    number: int
    group: str
    at: Sequence[TopicPartition]


class DoorFetchReceived(NamedTuple):
    """A client received records, in the order of their offsets."""

    client: str
    number: int
    """Number of the request (`DoorFetchSent`)."""
    group: str
    at: TopicPartition
    start: Offset | None
    """Offset from which the client continued; None for its group's offset."""
    records: Sequence[ReadRecord]


# -- inside a cluster, where clients cannot see -------------------------------------------------------------


class QuorumLeaderFound(NamedTuple):
    """A node leads the quorum."""

    node: int
    epoch: LeaderEpoch


class LeaderFound(NamedTuple):
    """A node leads a partition."""

    node: int
    at: TopicPartition
    topic_id: Uuid
    epoch: LeaderEpoch
    now_us: int = 0


class CoordinatorLoaded(NamedTuple):
    """The leader of a partition of `__consumer_offsets` has loaded it. Before that it answers heartbeats unchecked."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class CoordinatorUnloaded(NamedTuple):
    """The leader of a partition of `__consumer_offsets` loads it again, and answers heartbeats unchecked again."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class ReplicaCreated(NamedTuple):
    """A process got a replica back that it had before: it was moved away and returned."""

    incarnation: int
    at: TopicPartition


class HighWatermark(NamedTuple):
    """A replica's high watermark has moved."""

    replica: int
    """Unique per process, and per placement of the partition on it."""
    at: TopicPartition
    offset: Offset


class MetadataCommitted(NamedTuple):
    """A node learned that a batch of the metadata log is committed."""

    node: int
    records: tuple[AnyRecord, ...]
    offset: Offset
    """Offset of the last record."""
    epoch: LeaderEpoch


class ImageLoaded(NamedTuple):
    """The cluster image that a node loaded from a snapshot, or has at the end."""

    node: int
    image: ClusterImage


class ReplicaRead(NamedTuple):
    """The committed records in a replica's files at the end."""

    node: int
    at: TopicPartition
    batches: Mapping[Offset, tuple[LeaderEpoch, bytes]]
    """Leader epoch of the batch and value of the record, by offset."""
