"""Messages between replicas, independent of the transport. `controlplane` maps them to Kafka's requests.

Every request has a `request_id`. For a request that the core sends, the core chooses it, and the reply is passed to
`step` with the same id. For a request that arrives, the driver chooses an id that no open request has, and finds it
again in the reply in `Ready.replies`.
"""

from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, Offset
from penstock.raft.election import NO_LEADER
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import Endpoint, ReplicaKey, Voter

NOT_SENT = -1
"""Id of a request that has not got one yet."""


class LeaderHint(NamedTuple):
    """The sender's epoch and, if known, its leader and the leader's endpoints. Part of every reply."""

    epoch: LeaderEpoch
    leader_id: int = NO_LEADER
    endpoints: tuple[Endpoint, ...] = ()


class Vote(NamedTuple):
    """Request a vote, or with `pre_vote` whether it would be granted (KIP-996; Vote v2)."""

    request_id: int
    epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey
    """The addressed voter; a replica with another directory must not vote in place of a lost one."""
    end: OffsetAndEpoch
    pre_vote: bool = False


class VoteReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint
    granted: bool = False


class BeginQuorumEpoch(NamedTuple):
    request_id: int
    leader: LeaderHint
    voter: ReplicaKey


class BeginQuorumEpochReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint


class EndQuorumEpoch(NamedTuple):
    """The leader has resigned; successors by how far they have fetched, the best first."""

    request_id: int
    leader: LeaderHint
    successors: tuple[ReplicaKey, ...]


class EndQuorumEpochReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint


class Fetch(NamedTuple):
    request_id: int
    replica: ReplicaKey
    epoch: LeaderEpoch
    fetch_offset: Offset
    """The sender's log end; everything below is on its disk."""
    last_fetched_epoch: LeaderEpoch
    high_watermark: Offset = -1
    """The sender's high watermark (KIP-1166): a leader with a higher one replies at once. -1: unknown."""
    wait_ms_max: int = 0
    bytes_max: int = 1 << 20


class LogSlice(NamedTuple):
    """Whole batches to read from the log, up to the requested size; the driver reads the bytes."""

    start: Offset
    end: Offset
    bytes_max: int


class SnapshotSlice(NamedTuple):
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


class FetchReply(NamedTuple):
    """At most one of `diverging`, `snapshot` and `records` is set."""

    request_id: int
    error: ErrorCode
    leader: LeaderHint
    high_watermark: Offset = -1
    log_start_offset: Offset = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: LogSlice | object | None = None
    """In a sent reply a `LogSlice`; in a received one the driver's form of record batches, opaque here."""


class FetchSnapshot(NamedTuple):
    request_id: int
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int = 1 << 20


class FetchSnapshotReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: SnapshotSlice | bytes | None = None
    """In a sent reply a `SnapshotSlice`; in a received one the bytes."""


class AddVoter(NamedTuple):
    request_id: int
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    request_id: int
    voter: ReplicaKey
    timeout_ms: int


class UpdateVoter(NamedTuple):
    """A voter reports new endpoints or supported versions to the leader."""

    request_id: int
    epoch: LeaderEpoch
    voter: Voter
    timeout_ms: int


class VoterChangeReply(NamedTuple):
    """Reply to AddVoter, RemoveVoter and UpdateVoter."""

    request_id: int
    error: ErrorCode
    leader: LeaderHint
    message: str = ""


class ReadIndex(NamedTuple):
    """From the driver of a leader: the committed end of the log, once a majority has confirmed that this node still
    leads."""

    request_id: int


class ReadIndexReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint
    high_watermark: Offset = -1
    """Everything that any leader had committed when the ReadIndex arrived is below."""


class AskVersions(NamedTuple):
    """A leader's request for the versions of `kraft.version` that a new voter supports."""

    request_id: int


class VersionsReply(NamedTuple):
    request_id: int
    error: ErrorCode
    leader: LeaderHint = LeaderHint(-1)
    """Unknown: older than any epoch."""
    kraft_versions: tuple[int, int] | None = None
    """Lowest and highest; None if the replica supports none."""


class RequestFailed(NamedTuple):
    """From the driver: a request could not be sent, its connection broke, or no answer will come."""

    request_id: int
    refused: bool = False
    """The connection was refused: the peer's process is gone, not just slow."""


Request: TypeAlias = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | ReadIndex
    | AskVersions
)
Reply: TypeAlias = (
    VoteReply
    | BeginQuorumEpochReply
    | EndQuorumEpochReply
    | FetchReply
    | FetchSnapshotReply
    | VoterChangeReply
    | ReadIndexReply
    | VersionsReply
)
Message: TypeAlias = Request | Reply | RequestFailed
