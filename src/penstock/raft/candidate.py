"""Standing for election in an epoch of one's own making, with one's own vote already given and on disk."""

# every role answers with one signature, whether it needs all of it or not

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
        """A lost election is waited out: the time that is left differs from node to node and parts the rivals."""
        if self.tally.is_won:
            self.node.become_leader(now_ms)
        elif now_ms < self.election_deadline:
            self.canvass(now_ms)
        elif self.node.may_stand:
            self.node.become_prospective(now_ms)
        else:
            self.node.become_unattached(self.epoch, now_ms)
