"""What a prospective and a candidate share: they ask every voter, and count."""

# every role answers with one signature, whether it needs all of it or not

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

    def canvass(self, now_ms: TimestampMs) -> None:
        """Ask those who have not answered, as long as the election can be won."""
        if self.tally.is_lost:
            return
        end = self.node.tail.end
        for voter in self._unheard():
            vote = Vote(NOT_SENT, self.epoch, self.node.key, voter.key, end, self.pre_vote)
            self.node.request(Peer(voter.key.id, voter.endpoints), vote, now_ms)

    def deadline(self) -> TimestampMs | None:
        sends = [] if self.tally.is_lost else [self.node.requests.ready_at(v.key.id) for v in self._unheard()]
        return earliest([self.election_deadline, *sends])

    def _unheard(self) -> list[Voter]:
        return [v for v in self.tally.voters.others(self.node.key) if self.tally.waits_for(v.key.id)]
