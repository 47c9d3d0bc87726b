"""Pre-vote before an election (KIP-996): would a majority vote for this node?

A pre-vote promises nothing and keeps the epoch, so that a node that was partitioned does not depose a working leader
when it returns.
"""

from typing import TYPE_CHECKING

from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.messages import LeaderHint
from penstock.raft.nominee import Nominee
from penstock.raft.ready import RoleName
from penstock.raft.role import grants_without_leader
from penstock.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Prospective(Nominee):
    name = RoleName.PROSPECTIVE
    pre_vote = True

    def __init__(
        self, node: "Node", leader: LeaderHint, voted: ReplicaKey | None, now_ms: TimestampMs
    ) -> None:
        epoch: LeaderEpoch = leader.epoch
        super().__init__(node, epoch, now_ms)
        self.leader_id = leader.leader_id
        self.leader_endpoints = leader.endpoints
        self.voted = voted

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return grants_without_leader(self, candidate, up_to_date, pre_vote)

    def grant(self, candidate: ReplicaKey, now_ms: TimestampMs) -> None:
        self.voted = candidate
        self.election_deadline = now_ms + self.node.election_timeout()

    def poll(self, now_ms: TimestampMs) -> None:
        if self.tally.is_won and self.node.may_stand:
            self.node.become_candidate(now_ms)
        elif self.tally.is_lost or now_ms >= self.election_deadline or not self.node.may_stand:
            self._give_up(now_ms)
        else:
            self.request_votes(now_ms)

    def _give_up(self, now_ms: TimestampMs) -> None:
        """Return to the last leader, if there was one: it may work, and this node may have been partitioned."""
        if self.leader_endpoints:
            self.node.become_follower(self.hint, now_ms)
        else:
            self.node.become_unattached(self.epoch, now_ms, leader_id=self.leader_id)
