"""No leader to follow: the epoch is known, but not its leader, or not the leader's endpoint.

The node sends fetches to voters and bootstrap servers; a reply names the leader, if the peer knows it. A voter whose
election timeout expires becomes prospective.
"""

from typing import TYPE_CHECKING

from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.election import NO_LEADER
from penstock.raft.ready import RoleName
from penstock.raft.role import Role, earliest, grants_without_leader
from penstock.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Unattached(Role):
    name = RoleName.UNATTACHED

    def __init__(
        self,
        node: "Node",
        epoch: LeaderEpoch,
        election_deadline: TimestampMs,
        leader_id: int = NO_LEADER,
        voted: ReplicaKey | None = None,
    ) -> None:
        super().__init__(node, epoch)
        self.leader_id = leader_id
        self.voted = voted
        self.election_deadline = election_deadline

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, up_to_date, pre_vote)

    def grant(self, candidate: ReplicaKey, now_ms: TimestampMs) -> None:
        """Granting a vote restarts the election timer."""
        self.voted = candidate
        self.election_deadline = now_ms + self.node.election_timeout()

    def poll(self, now_ms: TimestampMs) -> None:
        if self.node.may_stand and now_ms >= self.election_deadline:
            self.node.become_prospective(now_ms)
        else:
            self.node.fetch_from_anyone(now_ms)

    def deadline(self) -> TimestampMs | None:
        return earliest(
            [
                self.election_deadline if self.node.may_stand else None,
                self.node.anyone_ready_at(),
            ]
        )
