"""A candidate in a new epoch; its vote for itself is on disk."""

from typing import TYPE_CHECKING

from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.nominee import Nominee
from penstock.raft.ready import RoleName
from penstock.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Candidate(Nominee):
    name = RoleName.CANDIDATE
    pre_vote = False

    def __init__(self, node: "Node", epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        super().__init__(node, epoch, now_ms)
        self.voted = node.key

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date

    def poll(self, now_ms: TimestampMs) -> None:
        """After a lost election, wait for the randomised timeout, which separates rival candidates."""
        if self.tally.is_won:
            self.node.become_leader(now_ms)
        elif now_ms < self.election_deadline:
            self.request_votes(now_ms)
        elif self.node.may_stand:
            self.node.become_prospective(now_ms)
        else:
            self.node.become_unattached(self.epoch, now_ms)
