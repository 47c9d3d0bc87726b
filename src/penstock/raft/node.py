"""One replica of the Raft log: takes messages and time, acts in its role, and returns work for its driver.

    node.step(message, now_ms)     a request or a reply from another replica
    node.tick(now_ms)              time has passed; at the latest at `next_deadline()`
    node.propose(records, ...)     append records of the leader's state machine
    node.flushed(offset, now_ms)   the log is on disk up to this offset
    ready = node.ready()           what to persist, append, send and announce, in that order

    unattached -> prospective -> candidate -> leader -> resigned
         ^            |  ^           |                     |
         |            v  |           v                     v
         +-------- follower <--- (a leader is known) --- unattached, an epoch on

The driver's obligations:

- After every call, before the next one, it takes `ready()` and carries it out as `ready.Ready` describes. Then it
  checks `next_deadline()`, which may already have passed: after a truncation there is a fetch to send.
- At the start the whole log is on disk (a log recovered after a crash is synced first; one that ends before its latest
  snapshot restarts there), and `election` is what the quorum-state file holds.
- Before it calls `flushed`, it records the synced end of the log in a file of its own. At the next start `synced_end`
  is what that file holds. A log that ends before it lost records that this node acknowledged (see `is_recovering`).
- `flushed` refers to the current log: a sync that began before a truncation is not reported after it.
- A reply is stepped at most once, and only to the node object that sent the request; a request that will get no reply
  is reported as `RequestFailed`.
- It checks cluster id and topic before it steps a request.
- Every voter has an endpoint; `voters_before` is called often and answers from memory.
- It takes snapshots, and moves the log's start, up to the high watermark, at any time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.raft.candidate import Candidate
from penstock.raft.config import RaftConfig
from penstock.raft.describe import QuorumDescription
from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.errors import LostCommit, Misuse, NotLeader
from penstock.raft.follower import Follower
from penstock.raft.leader import Leader
from penstock.raft.log import LogTail, LogView, OffsetAndEpoch
from penstock.raft.message_handler import MessageHandler
from penstock.raft.messages import NOT_SENT, Fetch, LeaderHint, Message, Reply, Request
from penstock.raft.prospective import Prospective
from penstock.raft.ready import Data, Outbound, Ready, RoleChange
from penstock.raft.request_manager import RequestManager
from penstock.raft.resigned import Resigned
from penstock.raft.role import Role
from penstock.raft.unattached import Unattached
from penstock.raft.voters import Endpoint, Peer, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from random import Random

_FIRST_BOOTSTRAP_ID = -2
"""-1 means no node; Kafka also numbers its bootstrap servers downwards from here."""


class Node:
    def __init__(
        self,
        local: Voter,
        log: LogView,
        rng: "Random",
        now_ms: TimestampMs,
        *,
        election: ElectionState | None = None,
        synced_end: OffsetAndEpoch | None = None,
        voters: VoterSet | None = None,
        bootstrap: Sequence[Endpoint] = (),
        config: RaftConfig | None = None,
    ) -> None:
        """`voters` is the configured set, used while the log has none. `bootstrap` are addresses at which to look for
        the leader, in addition to the voters, which may be unknown or have moved while this node was down."""
        self.local = local
        self.log = log
        self.tail = LogTail(log)
        self.config = config or RaftConfig()
        self.pending = Ready()
        self.requests = RequestManager(self.config, first_id=rng.getrandbits(30))
        self.is_closing = False
        self.flushed_offset: Offset = log.end_offset
        """The log is on disk up to here. Moves with `flushed`, and back when the log is truncated."""
        snapshot = log.latest_snapshot()
        self.high_watermark: Offset = snapshot.offset if snapshot is not None else log.start_offset
        """First offset that is not known to be committed. Never decreases while the node runs."""
        self._synced_end = synced_end
        """Position that the log must reach before this node may stand for election; None once it has."""
        self._check_recovery()
        self._rng = rng
        self._configured = voters or VoterSet()
        self._bootstrap = tuple(
            Peer(_FIRST_BOOTSTRAP_ID - place, (endpoint,)) for place, endpoint in enumerate(bootstrap)
        )
        self._handler = MessageHandler(self)
        self._persisted = election
        self.role: Role = self._initial_role(election or ElectionState(), now_ms)
        self._enter(self.role, now_ms)
        if self.is_only_voter and self.may_stand:
            self.become_prospective(now_ms)
        self._poll(now_ms)

    # Queries.

    @property
    def key(self) -> ReplicaKey:
        return self.local.key

    @property
    def epoch(self) -> LeaderEpoch:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def voters(self) -> VoterSet:
        """The current voters: the last set in the log, committed or not, else the configured one."""
        entry = self.tail.voters()
        return entry.voters if entry is not None else self._configured

    @property
    def is_voter(self) -> bool:
        return self.voters.find(self.key) is not None

    @property
    def is_only_voter(self) -> bool:
        return len(self.voters) == 1 and self.is_voter

    @property
    def is_recovering(self) -> bool:
        """Whether the log lost records that this node had synced, and perhaps acknowledged to a leader.

        A majority may have committed those records counting on this node. While it lacks them it does not stand, and
        votes only for a candidate that has them (`longest_end`): with its shorter log it could otherwise help to elect
        a leader without them. It looks for the leader and fetches like an observer.
        """
        return self._synced_end is not None

    @property
    def may_stand(self) -> bool:
        return self.is_voter and not self.is_closing and not self.is_recovering

    @property
    def longest_end(self) -> OffsetAndEpoch:
        """Position that a candidate's log must reach to get this node's vote: the end of the log, or of the log before
        it lost records."""
        return self._synced_end or self.tail.end

    @property
    def is_observing(self) -> bool:
        """Whether this node takes part in no election, and must look for the leader."""
        return not self.is_voter or self.is_recovering

    def describe(self, now_ms: TimestampMs) -> QuorumDescription:
        if isinstance(self.role, Leader):
            return self.role.describe(now_ms)
        return QuorumDescription(self.leader_id, self.epoch, self.high_watermark)

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` is due at the latest; None if only a message can cause work."""
        return self.role.deadline()

    # Calls of the driver.

    def step(self, message: Message, now_ms: TimestampMs) -> None:
        self._check_ready_taken()
        self._handler.handle(message, now_ms)
        self._poll(now_ms)

    def tick(self, now_ms: TimestampMs) -> None:
        self._check_ready_taken()
        self._poll(now_ms)

    def propose(self, records: Sequence[object], epoch: LeaderEpoch, now_ms: TimestampMs) -> Offset:
        """Append records as one batch; return the last offset, which is committed once the high watermark is past it.

        Raises `NotLeader` unless this node leads the given epoch: the caller's state machine may be behind.
        """
        self._check_ready_taken()
        if not isinstance(self.role, Leader) or self.role.epoch != epoch:
            raise NotLeader(f"not the leader of epoch {epoch}: {self.role.name.value} in epoch {self.epoch}")
        if not records:
            raise ValueError("records are empty, expected at least one")
        return self.role.append(Data(tuple(records)), now_ms)

    def flushed(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Everything below `offset` is on disk."""
        self._check_ready_taken()
        if offset > self.log.end_offset:
            raise Misuse(f"flushed to {offset}, beyond the log's end {self.log.end_offset}")
        self.flushed_offset = max(self.flushed_offset, offset)
        self.role.on_flushed(now_ms)
        self._poll(now_ms)

    def append_failed(self, now_ms: TimestampMs) -> None:
        """The records in `Ready.fetched` could not be appended (damaged in transit); they are fetched again."""
        self._check_ready_taken()
        self.role.on_append_failed(now_ms)
        self._poll(now_ms)

    def resign(self, now_ms: TimestampMs) -> None:
        """If this node leads, resign in favour of the most complete follower."""
        self._check_ready_taken()
        if isinstance(self.role, Leader):
            self.become_resigned(self.role.replicas.successors(self.voters), now_ms)
        self._poll(now_ms)

    def close(self, now_ms: TimestampMs) -> None:
        """Resign, and start no more elections. Complete when another node leads, or the driver stops waiting."""
        self.is_closing = True
        self.resign(now_ms)

    def ready(self) -> Ready:
        """Return the work since the last call."""
        ready, self.pending = self.pending, Ready()
        self.tail.written()
        return ready

    # Calls of the roles.

    def request(self, peer: Peer, request: Request, now_ms: TimestampMs) -> None:
        """Send a request, unless one to the peer is in flight or has just failed."""
        if self.requests.is_ready(peer.id, now_ms):
            request_id = self.requests.sent(peer, now_ms)
            self.pending.requests.append(Outbound(peer, request._replace(request_id=request_id)))

    def reply(self, reply: Reply) -> None:
        self.pending.replies.append(reply)

    def fetch(self, peer: Peer, now_ms: TimestampMs, wait_ms_max: int | None = None) -> None:
        """Fetch from the log's end on, unless a request to the peer is in flight or has just failed."""
        if self.requests.is_ready(peer.id, now_ms):
            # Of two fetches in flight from the same offset, only one may be appended.
            self.requests.ignore_others(peer.id)
        request = Fetch(
            NOT_SENT,
            self.key,
            self.epoch,
            self.tail.end.offset,
            self.tail.end.epoch,
            self.high_watermark,
            self.config.fetch_wait_ms_max if wait_ms_max is None else wait_ms_max,
            self.config.fetch_bytes_max,
        )
        self.request(peer, request, now_ms)

    def fetch_from_anyone(self, now_ms: TimestampMs) -> None:
        """Look for the leader with a fetch that the peer answers at once."""
        ready_at = self.anyone_ready_at()
        if ready_at is None or ready_at > now_ms or self.flushed_offset < self.log.end_offset:
            return
        ready = [peer for peer in self._anyone() if self.requests.is_ready(peer.id, now_ms)]
        self.fetch(self._rng.choice(ready), now_ms, wait_ms_max=0)

    def anyone_ready_at(self) -> TimestampMs | None:
        if self.flushed_offset < self.log.end_offset:
            return None
        return self.requests.any_ready_at(peer.id for peer in self._anyone())

    def commit(self, offset: Offset) -> None:
        if offset > self.high_watermark:
            self.high_watermark = self.pending.high_watermark = offset

    def truncate(self, offset: Offset) -> None:
        self.pending.truncate_to = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id.offset < self.high_watermark:
            raise LostCommit(
                f"leader {self.leader_id} of epoch {self.epoch} sent a snapshot that ends at {snapshot_id.offset}, "
                f"below the high watermark {self.high_watermark}"
            )
        self.pending.load_snapshot = snapshot_id
        self.flushed_offset = snapshot_id.offset
        self.commit(snapshot_id.offset)

    def election_timeout(self) -> int:
        timeout = self.config.election_timeout_ms
        return timeout + self._rng.randrange(max(1, timeout))

    def short_wait(self) -> int:
        return self._rng.randrange(max(1, self.config.election_timeout_ms // 4))

    # Transitions.

    def become_unattached(self, epoch: LeaderEpoch, now_ms: TimestampMs, leader_id: int = NO_LEADER) -> None:
        """An election timeout that has begun continues; a newer epoch does not restart it."""
        old = self.role
        voted = old.voted if epoch == old.epoch else None
        if isinstance(old, Unattached | Candidate | Resigned) or (
            isinstance(old, Prospective) and not old.tally.is_lost
        ):
            deadline = old.election_deadline
        else:
            deadline = now_ms + self.election_timeout()
        self._enter(Unattached(self, epoch, deadline, leader_id, voted), now_ms)

    def become_follower(self, leader: LeaderHint, now_ms: TimestampMs) -> None:
        voted = self.role.voted if leader.epoch == self.epoch else None
        self._enter(Follower(self, leader, voted, now_ms), now_ms)

    def become_prospective(self, now_ms: TimestampMs) -> None:
        old = self.role
        leader = LeaderHint(old.epoch) if isinstance(old, Resigned) else old.hint
        self._enter(Prospective(self, leader, old.voted, now_ms), now_ms)

    def become_candidate(self, now_ms: TimestampMs) -> None:
        self._enter(Candidate(self, self.epoch + 1, now_ms), now_ms)

    def become_leader(self, now_ms: TimestampMs) -> None:
        if not isinstance(self.role, Candidate):
            raise Misuse(f"only a candidate becomes leader, not a {self.role.name.value}")
        tally = self.role.tally
        granting = tuple(voter.key for voter in tally.voters if voter.key.id in tally.granted)
        self._enter(Leader(self, self.epoch, granting, now_ms), now_ms)

    def become_resigned(self, successors: tuple[ReplicaKey, ...], now_ms: TimestampMs) -> None:
        self._enter(Resigned(self, self.epoch, successors, now_ms), now_ms)

    def follow_or_wait(self, leader: LeaderHint, now_ms: TimestampMs) -> None:
        """Follow the leader if its endpoint is known; otherwise become unattached with this leader."""
        known = self.voters.by_id(leader.leader_id)
        endpoints = leader.endpoints or (known.endpoints if known is not None else ())
        if endpoints:
            self.become_follower(leader._replace(endpoints=endpoints), now_ms)
        elif leader != self.role.hint:
            self.become_unattached(leader.epoch, now_ms, leader.leader_id)

    def save_vote(self) -> None:
        """Persist the election state, if it has changed."""
        if self.role.election != self._persisted:
            self._persisted = self.pending.election = self.role.election

    def _enter(self, role: Role, now_ms: TimestampMs) -> None:
        old, self.role = self.role, role
        self.requests.forget()
        self.save_vote()
        if old is not role:
            old.leave(role, now_ms)
        start = role.epoch_start if isinstance(role, Leader) else None
        self.pending.roles.append(RoleChange(role.name, role.epoch, role.leader_id, start))
        role.enter(now_ms)

    def _initial_role(self, election: ElectionState, now_ms: TimestampMs) -> Role:
        """The role at the last shutdown, except that a leader becomes resigned and a candidate unattached."""
        deadline = now_ms + self.election_timeout()
        if election.epoch < self.log.last_epoch:
            return Unattached(self, self.log.last_epoch, deadline)
        if election.leader_id == self.key.id:
            return Resigned(self, election.epoch, (), now_ms)
        leader = self.voters.by_id(election.leader_id)
        if leader is not None and leader.endpoints:
            hint = LeaderHint(election.epoch, election.leader_id, leader.endpoints)
            return Follower(self, hint, election.voted, now_ms)
        return Unattached(self, election.epoch, deadline, election.leader_id, election.voted)

    def _poll(self, now_ms: TimestampMs) -> None:
        """Let the role act until it does not change any more, or the driver must change the log first."""
        self._check_recovery()
        while not self.pending.changes_log:
            role = self.role
            role.poll(now_ms)
            if self.role is role:
                return

    def _check_recovery(self) -> None:
        """End the recovery once the log on disk reaches the synced end, compared as votes compare logs.

        The same epoch: one leader wrote both, so the log has all up to that offset. A later epoch: its leader had
        every committed record before it wrote the first one of its own, and the log has what precedes that one.
        """
        lost, log = self._synced_end, self.log
        if lost is None or self.flushed_offset < log.end_offset or self.pending.changes_log:
            return
        if (log.last_epoch, log.end_offset) >= (lost.epoch, lost.offset):
            self._synced_end = None

    def _anyone(self) -> tuple[Peer, ...]:
        """Peers that may know the leader, including the last known leader, which may no longer be a voter."""
        peers = {
            voter.key.id: Peer(voter.key.id, voter.endpoints)
            for voter in self.voters
            if voter.key.id != self.key.id
        }
        if self.role.leader_endpoints and self.leader_id != self.key.id:
            peers[self.leader_id] = Peer(self.leader_id, self.role.leader_endpoints)
        return (*peers.values(), *self._bootstrap)

    def _check_ready_taken(self) -> None:
        if self.pending.changes_log:
            raise Misuse("carry out the last ready() first: it changes the log")
