"""The base class of roles, with the default answer to every message.

Every transition makes a new role object. A role has the state that lasts as long as it does (epoch, timers), reads the
rest from the node, and ends by calling one of the node's `become_*` methods.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.messages import (
    AddVoter,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    ReadIndex,
    ReadIndexReply,
    RemoveVoter,
    UpdateVoter,
    VersionsReply,
    VoterChangeReply,
    VoteReply,
)
from penstock.raft.ready import RoleName
from penstock.raft.voters import Endpoint, Peer, ReplicaKey

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Role:
    name: ClassVar[RoleName]
    leader_id: int = NO_LEADER
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None

    def __init__(self, node: "Node", epoch: LeaderEpoch) -> None:
        self.node = node
        self.epoch = epoch

    @property
    def election(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted)

    @property
    def hint(self) -> LeaderHint:
        return LeaderHint(self.epoch, self.leader_id, self.leader_endpoints)

    def poll(self, now_ms: TimestampMs) -> None:
        """Act on expired timers, and send requests that are due."""
        raise NotImplementedError

    def deadline(self) -> TimestampMs | None:
        """Return when `poll` has work to do, if no message arrives before."""
        raise NotImplementedError

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether a candidate of this role's epoch gets the vote."""
        raise NotImplementedError

    def enter(self, now_ms: TimestampMs) -> None:
        """Called once, when the role is the node's."""

    def leave(self, successor: "Role", now_ms: TimestampMs) -> None:
        """Called once, when another role has become the node's."""

    def grant(self, candidate: ReplicaKey, now_ms: TimestampMs) -> None:
        """Note a vote that `would_grant` allowed."""

    def on_vote_reply(self, peer: Peer, reply: VoteReply, now_ms: TimestampMs) -> None:
        """Handle a reply in the current epoch, as all methods below do."""

    def on_begin_reply(self, peer: Peer, reply: BeginQuorumEpochReply, now_ms: TimestampMs) -> None: ...

    def on_end_reply(self, peer: Peer, reply: EndQuorumEpochReply, now_ms: TimestampMs) -> None: ...

    def on_fetch_reply(self, peer: Peer, reply: FetchReply, now_ms: TimestampMs) -> None: ...

    def on_fetch_snapshot_reply(self, peer: Peer, reply: FetchSnapshotReply, now_ms: TimestampMs) -> None: ...

    def on_versions_reply(self, peer: Peer, reply: VersionsReply, now_ms: TimestampMs) -> None: ...

    def on_unanswered(self, peer: Peer, now_ms: TimestampMs) -> None:
        """A request to this peer will get no reply."""

    def on_refused(self, peer: Peer, now_ms: TimestampMs) -> None: ...

    def on_end_quorum_epoch(self, request: EndQuorumEpoch, now_ms: TimestampMs) -> None: ...

    def on_flushed(self, now_ms: TimestampMs) -> None: ...

    def on_append_failed(self, now_ms: TimestampMs) -> None: ...

    def on_fetch(self, request: Fetch, now_ms: TimestampMs) -> None:
        self.node.reply(FetchReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.hint))

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: TimestampMs) -> None:
        self.node.reply(FetchSnapshotReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.hint))

    def on_voter_change(self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs) -> None:
        self.node.reply(VoterChangeReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.hint))

    def on_read_index(self, request: ReadIndex, now_ms: TimestampMs) -> None:
        self.node.reply(ReadIndexReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.hint))


def earliest(deadlines: Iterable[TimestampMs | None]) -> TimestampMs | None:
    return min((each for each in deadlines if each is not None), default=None)


def grants_without_leader(role: Role, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    """Return whether a node without a leader votes for a candidate: for one per epoch, and none if it has a leader."""
    if pre_vote:
        return up_to_date
    if role.voted is not None:
        return role.voted.covers(candidate)
    return role.leader_id == NO_LEADER and up_to_date
