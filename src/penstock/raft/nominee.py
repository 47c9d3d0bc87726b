"""The base of prospective and candidate: both request votes from every voter, and count them."""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.election import Tally
from penstock.raft.messages import NOT_SENT, Vote, VoteReply
from penstock.raft.role import Role, earliest
from penstock.raft.voters import Peer, Voter

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Nominee(Role):
    pre_vote: bool

    def __init__(self, node: "Node", epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        super().__init__(node, epoch)
        self.tally = Tally(node.voters)
        self.tally.record(node.key.id, granted=True)
        self.election_deadline = now_ms + node.election_timeout()

    def on_vote_reply(self, peer: Peer, reply: VoteReply, now_ms: TimestampMs) -> None:
        if reply.error is ErrorCode.NONE:
            self.tally.record(peer.id, reply.granted)

    def request_votes(self, now_ms: TimestampMs) -> None:
        """Send Vote requests to voters that have not replied, while the election can be won."""
        if self.tally.is_lost:
            return
        end = self.node.tail.end
        for voter in self._outstanding_voters():
            vote = Vote(NOT_SENT, self.epoch, self.node.key, voter.key, end, self.pre_vote)
            self.node.request(Peer(voter.key.id, voter.endpoints), vote, now_ms)

    def deadline(self) -> TimestampMs | None:
        sends = (
            []
            if self.tally.is_lost
            else [self.node.requests.ready_at(v.key.id) for v in self._outstanding_voters()]
        )
        return earliest([self.election_deadline, *sends])

    def _outstanding_voters(self) -> list[Voter]:
        return [v for v in self.tally.voters.others(self.node.key) if self.tally.waits_for(v.key.id)]
