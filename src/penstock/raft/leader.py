"""The leader of an epoch: other replicas fetch its log, and their fetches move the high watermark.

Its first entry is the leader change record. Entries of earlier epochs are committed only along with it (Raft 5.4.2): a
replica whose log ends in a later epoch could still win an election and overwrite them. A leader that a majority no
longer fetches from resigns, so that clients do not wait for a partitioned leader (check quorum).
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.raft.describe import QuorumDescription, ReplicaDescription
from penstock.raft.log import Position, check_position
from penstock.raft.messages import (
    NOT_SENT,
    AddVoter,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LogSlice,
    ReadIndex,
    RemoveVoter,
    SnapshotSlice,
    UpdateVoter,
    VersionsReply,
)
from penstock.raft.pending_reads import PendingReads
from penstock.raft.ready import Append, Data, Entry, KRaftVersion, LeaderChange, RoleName, Voters
from penstock.raft.replicas import Progress, Replicas
from penstock.raft.role import Role, earliest
from penstock.raft.voter_changes import VoterChanges
from penstock.raft.voters import Peer, ReplicaKey, Voter

if TYPE_CHECKING:
    from penstock.raft.node import Node


class _Waiting(NamedTuple):
    """A fetch that waits for new records."""

    request: Fetch
    deadline: TimestampMs


class Leader(Role):
    name = RoleName.LEADER

    def __init__(
        self, node: "Node", epoch: LeaderEpoch, granting: tuple[ReplicaKey, ...], now_ms: TimestampMs
    ) -> None:
        super().__init__(node, epoch)
        self.leader_id = node.key.id
        self.leader_endpoints = node.local.endpoints
        self.epoch_start: Offset = node.tail.end_offset
        """Offset of the leader change record; nothing is committed before it is."""
        self.high_watermark: Offset = -1
        """-1 until a majority has an entry of this epoch, then the node's high watermark."""
        self.replicas = Replicas(node.key, now_ms)
        self.changes = VoterChanges(self)
        self.reads = PendingReads(self)
        self._granting = granting
        self._next_begin_ms: dict[int, TimestampMs] = {}
        self._waiting: dict[int, _Waiting] = {}

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return False

    def enter(self, now_ms: TimestampMs) -> None:
        voters = self.node.voters
        entry = self.node.tail.voters()
        self.append(
            LeaderChange(self.leader_id, tuple(voter.key for voter in voters), self._granting), now_ms
        )
        if entry is not None and entry.offset < 0:
            # The voter set came with the formatted directory; write it to the log, for replicas that join later.
            self.append(KRaftVersion(1), now_ms)
            self.append(Voters(entry.voters), now_ms)

    def leave(self, successor: Role, now_ms: TimestampMs) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self.node.reply(
                FetchReply(each.request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, successor.hint)
            )
        self.changes.abandon()
        self.reads.abandon()

    def append(self, entry: Entry, now_ms: TimestampMs) -> Offset:
        """Append one batch; return its last offset."""
        node = self.node
        node.pending.appends.append(Append(node.tail.end_offset, self.epoch, entry, now_ms))
        count = len(entry.records) if isinstance(entry, Data) else 1
        node.tail.appended(count, self.epoch, entry.voters if isinstance(entry, Voters) else None)
        self._answer_waiting(now_ms)
        return node.tail.end_offset - 1

    def poll(self, now_ms: TimestampMs) -> None:
        expiry = self._quorum_expires_at()
        if self.node.is_closing or (expiry is not None and now_ms >= expiry):
            self.node.become_resigned(self.replicas.successors(self.node.voters), now_ms)
            return
        self.changes.poll(now_ms)
        self._answer_waiting(now_ms)
        self.reads.poll(now_ms)
        for voter in self._voters_to_notify(now_ms):
            self.reads.sent(voter)
            self._next_begin_ms[voter.key.id] = now_ms + self.node.config.begin_epoch_interval_ms
            begin = BeginQuorumEpoch(NOT_SENT, self.hint, voter.key)
            self.node.request(Peer(voter.key.id, voter.endpoints), begin, now_ms)

    def deadline(self) -> TimestampMs | None:
        begins = [
            max(self._begin_at(voter), self.node.requests.ready_at(voter.key.id))
            for voter in self.node.voters.others(self.node.key)
        ]
        waits = [each.deadline for each in self._waiting.values()]
        return earliest(
            [self._quorum_expires_at(), self.changes.deadline, self.reads.deadline, *begins, *waits]
        )

    def on_begin_reply(self, peer: Peer, reply: BeginQuorumEpochReply, now_ms: TimestampMs) -> None:
        if reply.error is ErrorCode.NONE:
            self.reads.acknowledged(peer.id)
        else:
            self._next_begin_ms.pop(peer.id, None)
            self.reads.failed(peer.id)

    def on_fetch(self, request: Fetch, now_ms: TimestampMs) -> None:
        node = self.node
        position = check_position(node.tail, request.fetch_offset, request.last_fetched_epoch)
        if position == Position() and request.replica.id >= 0:
            self.replicas.fetched(request.replica, request.fetch_offset, node.tail.end_offset, now_ms)
            self.advance(now_ms)
            if node.role is not self:
                node.reply(FetchReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, node.role.hint))
                return
        if position == Position() and request.wait_ms_max > 0 and not self._has_news(request):
            self._waiting[request.request_id] = _Waiting(request, now_ms + request.wait_ms_max)
        else:
            self._answer(request, position)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: TimestampMs) -> None:
        self.replicas.asked_for_snapshot(request.replica, now_ms)
        size = self.node.log.snapshot_bytes(request.snapshot_id)
        if size is None:
            self.node.reply(FetchSnapshotReply(request.request_id, ErrorCode.SNAPSHOT_NOT_FOUND, self.hint))
        elif not 0 <= request.position < size:
            self.node.reply(
                FetchSnapshotReply(request.request_id, ErrorCode.POSITION_OUT_OF_RANGE, self.hint)
            )
        else:
            piece = SnapshotSlice(request.snapshot_id, request.position, request.bytes_max)
            self.node.reply(
                FetchSnapshotReply(
                    request.request_id,
                    ErrorCode.NONE,
                    self.hint,
                    request.snapshot_id,
                    size,
                    request.position,
                    piece,
                )
            )

    def on_voter_change(self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs) -> None:
        self.changes.handle(request, now_ms)
        self.advance(now_ms)

    def on_read_index(self, request: ReadIndex, now_ms: TimestampMs) -> None:
        self.reads.add(request, now_ms)

    def on_versions_reply(self, peer: Peer, reply: VersionsReply, now_ms: TimestampMs) -> None:
        self.changes.on_versions(peer.id, reply, now_ms)
        self.advance(now_ms)

    def on_unanswered(self, peer: Peer, now_ms: TimestampMs) -> None:
        self.changes.unanswered(peer.id)
        self.reads.failed(peer.id)

    def on_flushed(self, now_ms: TimestampMs) -> None:
        self.advance(now_ms)

    def may_commit(self, offset: Offset) -> bool:
        """Raft 5.4.2: replicas commit anything only once they have an entry of this epoch."""
        return offset > self.epoch_start

    def advance(self, now_ms: TimestampMs) -> None:
        """Move the high watermark to what a majority has on disk."""
        node = self.node
        reached = self.replicas.reached_by_majority(node.voters, node.flushed_offset)
        if not self.may_commit(reached) or reached <= self.high_watermark:
            return
        self.high_watermark = reached
        node.commit(reached)
        self.changes.committed(reached)
        self._answer_waiting(now_ms)
        entry = node.tail.voters()
        if not node.is_voter and (entry is None or entry.offset < reached):
            # Our own removal is committed: resign.
            node.become_resigned(self.replicas.successors(node.voters), now_ms)

    def describe(self, now_ms: TimestampMs) -> QuorumDescription:
        node = self.node

        def voter_row(voter: Voter) -> ReplicaDescription:
            if voter.key.covers(node.key):
                return ReplicaDescription(node.key, node.tail.end_offset, now_ms, now_ms, voter.endpoints)
            return row(self.replicas.of(voter.key), voter)

        def row(progress: Progress, voter: Voter | None = None) -> ReplicaDescription:
            return ReplicaDescription(
                voter.key if voter is not None else progress.key,
                progress.end_offset,
                progress.last_fetch_ms,
                progress.last_caught_up_ms,
                voter.endpoints if voter is not None else (),
            )

        return QuorumDescription(
            self.leader_id,
            self.epoch,
            self.high_watermark,
            tuple(voter_row(voter) for voter in node.voters),
            tuple(row(each) for each in self.replicas.observers(node.voters, now_ms)),
        )

    def _has_news(self, request: Fetch) -> bool:
        return request.fetch_offset < self.node.tail.end_offset or (
            0 <= request.high_watermark < min(self.high_watermark, request.fetch_offset)
        )

    def _answer(self, request: Fetch, position: Position) -> None:
        records = None
        if position == Position() and request.fetch_offset < self.node.tail.end_offset:
            records = LogSlice(request.fetch_offset, self.node.tail.end_offset, request.bytes_max)
        self.node.reply(
            FetchReply(
                request.request_id,
                ErrorCode.NONE,
                self.hint,
                self.high_watermark,
                self.node.log.start_offset,
                position.diverging,
                position.snapshot,
                records,
            )
        )

    def _answer_waiting(self, now_ms: TimestampMs) -> None:
        due = [
            request_id
            for request_id, (request, deadline) in self._waiting.items()
            if now_ms >= deadline or self._has_news(request)
        ]
        for request_id in due:
            request = self._waiting.pop(request_id).request
            self._answer(
                request, check_position(self.node.tail, request.fetch_offset, request.last_fetched_epoch)
            )

    def _quorum_expires_at(self) -> TimestampMs | None:
        fetched_ms = self.replicas.majority_fetched_ms(self.node.voters)
        return None if fetched_ms is None else fetched_ms + self.node.config.check_quorum_ms

    def _begin_at(self, voter: Voter) -> TimestampMs:
        """When to send BeginQuorumEpoch to a voter again: at once if reads wait for its reply, but else not while it
        fetches, which shows that it knows the leader."""
        if self.reads.needs(voter):
            return 0
        knows_until = self.replicas.of(voter.key).last_fetch_ms + self.node.config.begin_epoch_interval_ms
        return max(self._next_begin_ms.get(voter.key.id, 0), knows_until)

    def _voters_to_notify(self, now_ms: TimestampMs) -> list[Voter]:
        return [
            voter
            for voter in self.node.voters.others(self.node.key)
            if now_ms >= self._begin_at(voter) and self.node.requests.is_ready(voter.key.id, now_ms)
        ]
