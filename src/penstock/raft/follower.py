"""Fetches the leader's log, one request at a time.

The offset of a fetch acknowledges that everything below is on this node's disk: it counts towards the leader's high
watermark. So the next fetch is sent only when the records of the last one are flushed. If the leader no longer has the
next records, its snapshot is fetched instead, in pieces.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TimestampMs
from penstock.raft.errors import LostCommit
from penstock.raft.log import OffsetAndEpoch, truncation_point
from penstock.raft.messages import (
    NOT_SENT,
    AddVoter,
    EndQuorumEpoch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    RemoveVoter,
    UpdateVoter,
)
from penstock.raft.ready import Fetched, RoleName, SnapshotChunk
from penstock.raft.role import Role, earliest
from penstock.raft.voters import Peer, ReplicaKey

if TYPE_CHECKING:
    from penstock.raft.node import Node


@dataclass(slots=True)
class _SnapshotFetch:
    snapshot_id: OffsetAndEpoch
    position: int = 0


class Follower(Role):
    name = RoleName.FOLLOWER

    def __init__(
        self, node: "Node", leader: LeaderHint, voted: ReplicaKey | None, now_ms: TimestampMs
    ) -> None:
        super().__init__(node, leader.epoch)
        self.leader_id = leader.leader_id
        self.leader_endpoints = leader.endpoints
        self.voted = voted
        self.fetch_deadline = now_ms + node.config.fetch_timeout_ms
        self.has_fetched = False
        """Whether a fetch from this leader succeeded. Until then the leader is no reason to reject a pre-vote."""
        self.leader_is_gone = False
        """The leader resigned, or refuses connections: grant pre-votes, and do not wait for the fetch timeout."""
        self._leader_high_watermark: Offset = -1
        self._is_appending = False
        """Records were handed to the driver and are not known to be flushed."""
        self._snapshot: _SnapshotFetch | None = None
        self._next_update_ms: TimestampMs = now_ms

    @property
    def leader(self) -> Peer:
        return Peer(self.leader_id, self.leader_endpoints)

    def would_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date and (not self.has_fetched or self.leader_is_gone)

    def poll(self, now_ms: TimestampMs) -> None:
        has_timed_out = now_ms >= self.fetch_deadline
        if has_timed_out and self.node.may_stand:
            self.node.become_prospective(now_ms)
        elif not self._may_fetch():
            return
        elif self.node.is_observing and (
            has_timed_out or self.node.requests.is_pausing(self.leader_id, now_ms)
        ):
            self.node.fetch_from_anyone(now_ms)
        elif self._update_is_due(now_ms) and self.node.requests.is_ready(self.leader_id, now_ms):
            self._next_update_ms = now_ms + self.node.config.fetch_timeout_ms
            timeout_ms = self.node.config.request_timeout_ms
            update = UpdateVoter(NOT_SENT, self.epoch, self.node.local, timeout_ms)
            self.node.request(self.leader, update, now_ms)
        elif self._joining_is_due(now_ms) and self.node.requests.is_ready(self.leader_id, now_ms):
            self._next_update_ms = now_ms + self.node.config.fetch_timeout_ms
            self.node.request(self.leader, self._join_request(), now_ms)
        elif self._snapshot is not None:
            self._fetch_snapshot(self._snapshot, now_ms)
        else:
            self.node.fetch(self.leader, now_ms)

    def deadline(self) -> TimestampMs | None:
        next_fetch = None
        if self._may_fetch():
            leader_ready_at = self.node.requests.ready_at(self.leader_id)
            next_fetch = self.node.anyone_ready_at() if self.node.is_observing else leader_ready_at
        return earliest([self.fetch_deadline if self.node.may_stand else None, next_fetch])

    def on_fetch_reply(self, peer: Peer, reply: FetchReply, now_ms: TimestampMs) -> None:
        if reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.on_refused(peer, now_ms)
        if reply.error is not ErrorCode.NONE:
            return
        if reply.diverging is not None:
            self._truncate(reply.diverging)
        elif reply.snapshot is not None:
            self._snapshot = _SnapshotFetch(reply.snapshot)
        else:
            self._leader_high_watermark = max(self._leader_high_watermark, reply.high_watermark)
            if reply.records is not None:
                self._is_appending = True
                self.node.pending.fetched = Fetched(self.node.log.end_offset, reply.records)
            else:
                self._advance()
        self._fetch_succeeded(now_ms)

    def on_fetch_snapshot_reply(self, peer: Peer, reply: FetchSnapshotReply, now_ms: TimestampMs) -> None:
        fetching = self._snapshot
        if fetching is None:
            return
        if reply.error is not ErrorCode.NONE:
            # The leader has a newer snapshot, or no longer leads: fetch again.
            self._snapshot = None
            return
        if reply.snapshot_id != fetching.snapshot_id or reply.position != fetching.position:
            return
        data = reply.data
        if not isinstance(data, bytes):
            raise TypeError(f"snapshot data is {type(data).__name__}, expected bytes")
        self.node.pending.snapshot_chunks.append(SnapshotChunk(fetching.snapshot_id, fetching.position, data))
        fetching.position += len(data)
        if fetching.position >= reply.size:
            self._snapshot = None
            self.node.load_snapshot(fetching.snapshot_id)
        self._fetch_succeeded(now_ms)

    def on_end_quorum_epoch(self, request: EndQuorumEpoch, now_ms: TimestampMs) -> None:
        """The further down the list, the longer the wait, so that the most complete log wins.

        A restarted leader sends no order; then the wait is random.
        """
        self.leader_is_gone = True
        ids = [successor.id for successor in request.successors]
        longest = self.node.config.election_backoff_ms_max
        if self.node.key.id not in ids:
            wait = self.node.short_wait()
        elif (place := ids.index(self.node.key.id)) == 0:
            wait = 0
        else:
            wait = min(longest, (longest >> (len(ids) - 1)) << (place - 1))
        self.fetch_deadline = now_ms + wait

    def on_refused(self, peer: Peer, now_ms: TimestampMs) -> None:
        """The leader's process is gone, or no longer leads: shorten the fetch timeout to a short random wait.

        Kafka waits for the whole timeout. A wrong guess costs a pre-vote, which voters reject that reach the leader.
        """
        if peer.id == self.leader_id and not self.leader_is_gone:
            self.leader_is_gone = True
            self.fetch_deadline = min(self.fetch_deadline, now_ms + self.node.short_wait())

    def on_flushed(self, now_ms: TimestampMs) -> None:
        if self.node.flushed_offset >= self.node.log.end_offset:
            self._is_appending = False
        self._advance()

    def on_append_failed(self, now_ms: TimestampMs) -> None:
        self._is_appending = False
        self.node.requests.pause(self.leader_id, now_ms)

    def _may_fetch(self) -> bool:
        return not self._is_appending and self.node.flushed_offset >= self.node.log.end_offset

    def _fetch_succeeded(self, now_ms: TimestampMs) -> None:
        self.has_fetched = True
        self.leader_is_gone = False
        self.fetch_deadline = now_ms + self.node.config.fetch_timeout_ms

    def _advance(self) -> None:
        self.node.commit(min(self._leader_high_watermark, self.node.flushed_offset))

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        offset = truncation_point(self.node.log, diverging)
        if offset < self.node.high_watermark:
            raise LostCommit(
                f"leader {self.leader_id} of epoch {self.epoch} requires truncation to {offset}, "
                f"below the high watermark {self.node.high_watermark}"
            )
        self.node.truncate(offset)

    def _fetch_snapshot(self, fetching: _SnapshotFetch, now_ms: TimestampMs) -> None:
        request = FetchSnapshot(
            NOT_SENT,
            self.node.key,
            self.epoch,
            fetching.snapshot_id,
            fetching.position,
            self.node.config.snapshot_bytes_max,
        )
        self.node.request(self.leader, request, now_ms)

    def _update_is_due(self, now_ms: TimestampMs) -> bool:
        """Return whether the voter set has an outdated endpoint of this node (KIP-853)."""
        if now_ms < self._next_update_ms or self.node.tail.voters() is None:
            return False
        known = self.node.voters.find(self.node.key)
        return known is not None and bool(self.node.local.endpoints) and known != self.node.local

    def _joining_is_due(self, now_ms: TimestampMs) -> bool:
        """Whether this replica should become a voter, and has caught up with the high watermark."""
        node = self.node
        return (
            node.config.auto_join
            and now_ms >= self._next_update_ms
            and not node.is_closing
            and not node.is_voter
            and bool(node.local.endpoints)
            and node.tail.voters() is not None
            and node.log.end_offset >= self._leader_high_watermark > 0
        )

    def _join_request(self) -> AddVoter | RemoveVoter:
        """AddVoter for this replica; or first RemoveVoter for the voter of the same id, whose disk was replaced."""
        node = self.node
        former = node.voters.by_id(node.key.id)
        timeout_ms = node.config.request_timeout_ms
        if former is not None:
            return RemoveVoter(NOT_SENT, former.key, timeout_ms)
        # This replica must fetch for the change to be committed, and has one request in flight at a time.
        return AddVoter(NOT_SENT, node.local, timeout_ms, ack_when_committed=False)
