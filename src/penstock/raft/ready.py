"""Work for the driver, which it does in the order of the fields before it calls the core again.

1. `election` is written to the quorum-state file and synced.
2. The log is changed: `truncate_to`, `snapshot_chunks`, `load_snapshot`, `fetched`, `appends`. Appends need no sync
   here; a sync is reported with `node.flushed` whenever it is done.
3. `requests` and `replies` are sent.
4. `high_watermark` and `roles` are announced to the state machine.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.raft.election import ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import Reply, Request
from penstock.raft.voters import Peer, ReplicaKey, VoterSet


class RoleName(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


class LeaderChange(NamedTuple):
    """The first control record of an epoch."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class Voters(NamedTuple):
    """The control record that replaces the voter set."""

    voters: VoterSet


class KRaftVersion(NamedTuple):
    """The control record after which voters are in the log (level 1)."""

    level: int


class Data(NamedTuple):
    """Records of the state machine, opaque here; they form one batch and become visible together."""

    records: tuple[object, ...]


Entry: TypeAlias = LeaderChange | KRaftVersion | Voters | Data


class Append(NamedTuple):
    """One batch for a leader's log. A control record takes one offset, data one for each record."""

    base_offset: Offset
    epoch: LeaderEpoch
    entry: Entry
    timestamp: TimestampMs


class Fetched(NamedTuple):
    """Batches that a follower appends as they are; the first begins at `base_offset`, the log's end."""

    base_offset: Offset
    records: object


class SnapshotChunk(NamedTuple):
    """Bytes of a snapshot that is being fetched; position 0 starts over."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


class Outbound(NamedTuple):
    to: Peer
    request: Request


class RoleChange(NamedTuple):
    role: RoleName
    epoch: LeaderEpoch
    leader_id: int
    epoch_start_offset: Offset | None = None
    """Offset of a leader's first entry: its state machine may serve once that is applied."""


@dataclass(slots=True)
class Ready:
    election: ElectionState | None = None
    truncate_to: Offset | None = None
    snapshot_chunks: list[SnapshotChunk] = field(default_factory=list)
    load_snapshot: OffsetAndEpoch | None = None
    """All chunks have arrived: sync the snapshot, restart the log at its offset, load it into the state machine."""
    fetched: Fetched | None = None
    appends: list[Append] = field(default_factory=list)
    requests: list[Outbound] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    high_watermark: Offset | None = None
    roles: list[RoleChange] = field(default_factory=list)

    @property
    def changes_log(self) -> bool:
        """Whether this work changes the log in ways that the core cannot predict."""
        return self.truncate_to is not None or self.load_snapshot is not None or self.fetched is not None

    @property
    def is_empty(self) -> bool:
        return self == Ready()
