"""Checks each message before the role handles it: its addressee, its epoch and its leader.

A request of an older epoch is rejected with ours; a message of a newer epoch first moves this node to that epoch. Only
messages of the current epoch reach the role.
"""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.raft.election import NO_LEADER
from penstock.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    Message,
    ReadIndex,
    ReadIndexReply,
    RemoveVoter,
    Reply,
    RequestFailed,
    UpdateVoter,
    VersionsReply,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from penstock.raft.prospective import Prospective
from penstock.raft.voters import Peer

if TYPE_CHECKING:
    from penstock.raft.node import Node


class MessageHandler:
    def __init__(self, node: "Node") -> None:
        self._node = node

    def handle(self, message: Message, now_ms: TimestampMs) -> None:
        match message:
            case Vote():
                self._vote(message, now_ms)
            case BeginQuorumEpoch():
                self._begin(message, now_ms)
            case EndQuorumEpoch():
                self._end(message, now_ms)
            case Fetch():
                self._fetch(message, now_ms)
            case FetchSnapshot():
                self._fetch_snapshot(message, now_ms)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                self._voter_change(message, now_ms)
            case ReadIndex():
                self._node.role.on_read_index(message, now_ms)
            case AskVersions():
                node = self._node
                versions = node.local.kraft_versions
                node.reply(VersionsReply(message.request_id, ErrorCode.NONE, kraft_versions=versions))
            case RequestFailed():
                self._failed(message, now_ms)
            case _:
                self._reply(message, now_ms)

    # Requests between voters.

    def _vote(self, request: Vote, now_ms: TimestampMs) -> None:
        node = self._node
        error = self._voter_error(request.epoch, request.candidate.id)
        newest = request.epoch if request.pre_vote else request.epoch - 1
        if error is ErrorCode.NONE and (request.end.offset < 0 or not 0 <= request.end.epoch <= newest):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and not request.voter.covers(node.key):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is not ErrorCode.NONE:
            node.reply(VoteReply(request.request_id, error, node.role.hint))
            return
        if request.epoch > node.epoch:
            node.become_unattached(request.epoch, now_ms)
        ours = node.longest_end
        up_to_date = (request.end.epoch, request.end.offset) >= (ours.epoch, ours.offset)
        granted = node.role.would_grant(request.candidate, up_to_date, request.pre_vote)
        if granted and not request.pre_vote:
            node.role.grant(request.candidate, now_ms)
            node.save_vote()
        node.reply(VoteReply(request.request_id, ErrorCode.NONE, node.role.hint, granted))

    def _begin(self, request: BeginQuorumEpoch, now_ms: TimestampMs) -> None:
        node = self._node
        error = self._voter_error(request.leader.epoch, request.leader.leader_id)
        if error is ErrorCode.NONE and not request.voter.covers(node.key):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE and not self._update_leader(request.leader, now_ms):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and isinstance(node.role, Prospective):
            # The lost leader answers: follow it again.
            node.follow_or_wait(request.leader, now_ms)
        node.reply(BeginQuorumEpochReply(request.request_id, error, node.role.hint))

    def _end(self, request: EndQuorumEpoch, now_ms: TimestampMs) -> None:
        node = self._node
        error = self._voter_error(request.leader.epoch, request.leader.leader_id)
        if error is ErrorCode.NONE and not self._update_leader(request.leader, now_ms):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            node.role.on_end_quorum_epoch(request, now_ms)
        node.reply(EndQuorumEpochReply(request.request_id, error, node.role.hint))

    def _voter_error(self, epoch: LeaderEpoch, sender_id: int) -> ErrorCode:
        if epoch < self._node.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender_id < 0 or sender_id == self._node.key.id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    # Requests to a leader.

    def _fetch(self, request: Fetch, now_ms: TimestampMs) -> None:
        error = self._leader_error(request.epoch)
        if error is ErrorCode.NONE and (
            request.fetch_offset < 0
            or not 0 <= request.last_fetched_epoch <= request.epoch
            or request.replica.id == self._node.key.id
        ):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            self._node.role.on_fetch(request, now_ms)
        else:
            self._node.reply(FetchReply(request.request_id, error, self._node.role.hint))

    def _fetch_snapshot(self, request: FetchSnapshot, now_ms: TimestampMs) -> None:
        error = self._leader_error(request.epoch)
        if error is ErrorCode.NONE:
            self._node.role.on_fetch_snapshot(request, now_ms)
        else:
            self._node.reply(FetchSnapshotReply(request.request_id, error, self._node.role.hint))

    def _voter_change(self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs) -> None:
        error = self._leader_error(request.epoch) if isinstance(request, UpdateVoter) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            self._node.role.on_voter_change(request, now_ms)
        else:
            self._node.reply(VoterChangeReply(request.request_id, error, self._node.role.hint))

    def _leader_error(self, epoch: LeaderEpoch) -> ErrorCode:
        if epoch < self._node.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self._node.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    # Replies.

    def _failed(self, failure: RequestFailed, now_ms: TimestampMs) -> None:
        peer = self._node.requests.answered(failure.request_id)
        if peer is None:
            return
        self._node.requests.pause(peer.id, now_ms)
        self._node.role.on_unanswered(peer, now_ms)
        if failure.refused:
            self._node.role.on_refused(peer, now_ms)

    def _reply(self, reply: Reply, now_ms: TimestampMs) -> None:
        node = self._node
        peer = node.requests.answered(reply.request_id)
        if peer is None:
            return
        if reply.error is not ErrorCode.NONE:
            node.requests.pause(peer.id, now_ms)
        if isinstance(reply, VersionsReply):
            node.role.on_versions_reply(peer, reply, now_ms)
            return
        if reply.leader.epoch < node.epoch or reply.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            return
        before = node.role
        self._update_leader(reply.leader, now_ms)
        if node.role is before:
            self._pass_to_role(peer, reply, now_ms)

    def _pass_to_role(self, peer: Peer, reply: Reply, now_ms: TimestampMs) -> None:
        role = self._node.role
        match reply:
            case VoteReply():
                role.on_vote_reply(peer, reply, now_ms)
            case BeginQuorumEpochReply():
                role.on_begin_reply(peer, reply, now_ms)
            case EndQuorumEpochReply():
                role.on_end_reply(peer, reply, now_ms)
            case FetchReply():
                role.on_fetch_reply(peer, reply, now_ms)
            case FetchSnapshotReply():
                role.on_fetch_snapshot_reply(peer, reply, now_ms)
            case VoterChangeReply() | ReadIndexReply() | VersionsReply():
                pass

    def _update_leader(self, leader: LeaderHint, now_ms: TimestampMs) -> bool:
        """Adopt a newer epoch or a newly known leader; False if it contradicts the known leader.

        An epoch has one leader (Raft 5.2): a message that names another is wrong, and is rejected.
        """
        node = self._node
        if leader.epoch > node.epoch:
            if leader.leader_id == NO_LEADER:
                node.become_unattached(leader.epoch, now_ms)
            elif leader.leader_id == node.key.id:
                # This node led that epoch on a disk that was lost. The epoch has had its leader.
                node.become_unattached(leader.epoch, now_ms, leader_id=node.key.id)
            else:
                node.follow_or_wait(leader, now_ms)
            return True
        if leader.epoch < node.epoch or leader.leader_id in (NO_LEADER, node.key.id):
            return True
        if node.leader_id not in (NO_LEADER, leader.leader_id):
            return False
        if not node.role.leader_endpoints:
            node.follow_or_wait(leader, now_ms)
        return True
