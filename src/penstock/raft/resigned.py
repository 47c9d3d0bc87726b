"""A leader that resigned: it sends EndQuorumEpoch with its preferred successors, and votes for no other in its epoch.

A node that led when it went down also starts in this role: in its epoch it must neither vote nor lead again, since its
log may have lost entries that it had served but not flushed.
"""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.messages import NOT_SENT, EndQuorumEpoch, EndQuorumEpochReply
from penstock.raft.ready import RoleName
from penstock.raft.role import Role, earliest
from penstock.raft.voters import Peer, ReplicaKey, Voter

if TYPE_CHECKING:
    from penstock.raft.node import Node


class Resigned(Role):
    name = RoleName.RESIGNED

    def __init__(
        self, node: "Node", epoch: LeaderEpoch, successors: tuple[ReplicaKey, ...], now_ms: TimestampMs
    ) -> None:
        super().__init__(node, epoch)
        self.leader_id = node.key.id
        self.leader_endpoints = node.local.endpoints
        self.successors = successors
        self.election_deadline = now_ms + node.election_timeout()
        self._acknowledged: set[int] = set()

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date

    def poll(self, now_ms: TimestampMs) -> None:
        if now_ms >= self.election_deadline and not self.node.is_closing:
            self.node.become_unattached(self.epoch + 1, now_ms)
            return
        for voter in self._unaware():
            end = EndQuorumEpoch(NOT_SENT, self.hint, self.successors)
            self.node.request(Peer(voter.key.id, voter.endpoints), end, now_ms)

    def deadline(self) -> TimestampMs | None:
        sends = [self.node.requests.ready_at(voter.key.id) for voter in self._unaware()]
        return earliest([None if self.node.is_closing else self.election_deadline, *sends])

    def on_end_reply(self, peer: Peer, reply: EndQuorumEpochReply, now_ms: TimestampMs) -> None:
        if reply.error is ErrorCode.NONE:
            self._acknowledged.add(peer.id)

    def _unaware(self) -> list[Voter]:
        voters = self.node.voters.others(self.node.key)
        return [voter for voter in voters if voter.key.id not in self._acknowledged]
