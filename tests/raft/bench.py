"""One node on the bench: messages by hand, a log in memory, a clock that stands still until told."""

from random import Random
from typing import TypeVar

from tests.raft.memlog import MemoryLog, Record
from tests.raft.sim import voter

from penstock.base.errors import ErrorCode
from penstock.raft.config import RaftConfig
from penstock.raft.election import ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    BeginQuorumEpoch,
    Fetch,
    LeaderHint,
    Message,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from penstock.raft.node import Node
from penstock.raft.ready import Ready, RoleName
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

Kind = TypeVar("Kind", bound=Message)


EMPTY = OffsetAndEpoch(0, 0)
"""The end of a log without records."""


def key(node_id: int) -> ReplicaKey:
    return voter(node_id).key


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(voter(each) for each in ids)


def log_of(*epochs: int, formatted: VoterSet | None = None) -> MemoryLog:
    """A flushed log with one record for each epoch named."""
    records = [Record(epoch, f"r{place}") for place, epoch in enumerate(epochs)]
    return MemoryLog(formatted, records=records, flushed=list(records))


class Bench:
    def __init__(
        self,
        node_id: int = 1,
        voters: VoterSet | None = None,
        log: MemoryLog | None = None,
        election: ElectionState | None = None,
        config: RaftConfig | None = None,
        local: Voter | None = None,
        bootstrap: tuple[Endpoint, ...] = (),
        auto_flush: bool = True,
        synced_end: OffsetAndEpoch | None = None,
    ) -> None:
        self.log = log if log is not None else MemoryLog()
        self.now_ms = 1000
        self.disk: ElectionState | None = election
        self.ready = Ready()
        """What the last call brought, log changes already carried out."""
        self.auto_flush = auto_flush
        self.loaded: list[OffsetAndEpoch] = []
        self._token = 0
        self.node = Node(
            local or voter(node_id),
            self.log,
            Random(7),
            self.now_ms,
            election=election,
            synced_end=synced_end,
            voters=voters if voters is not None else voter_set(1, 2, 3),
            bootstrap=bootstrap,
            config=config,
        )
        self._carry_out()

    @property
    def role(self) -> RoleName:
        return self.node.role.name

    # Calls.

    def step(self, message: Message) -> Ready:
        self.node.step(message, self.now_ms)
        return self._carry_out()

    def ask(self, request: Request) -> Reply:
        """Step a request and give the answer, which must come at once."""
        self._token += 1
        ready = self.step(request._replace(request_id=self._token))
        answers = [reply for reply in ready.replies if reply.request_id == self._token]
        assert len(answers) == 1, ready
        return answers[0]

    def later(self, ms: int) -> Ready:
        self.now_ms += ms
        self.node.tick(self.now_ms)
        return self._carry_out()

    def propose(self, *records: object) -> Ready:
        self.node.propose(records, self.node.epoch, self.now_ms)
        return self._carry_out()

    def flush(self) -> Ready:
        self.log.sync(self.log.end_offset)
        self.node.flushed(self.log.end_offset, self.now_ms)
        return self._carry_out()

    def sent(self, kind: type[Kind]) -> list[Kind]:
        """Requests of a kind in the last `Ready`."""
        return [each.request for each in self.ready.requests if isinstance(each.request, kind)]

    def sent_to(self, node_id: int, kind: type[Kind]) -> Kind:
        found = [each.request for each in self.ready.requests if each.to.id == node_id]
        assert len(found) == 1, self.ready.requests
        assert isinstance(found[0], kind)
        return found[0]

    def _carry_out(self) -> Ready:
        total = Ready()
        while not (ready := self.node.ready()).is_empty:
            if ready.election is not None:
                total.election = self.disk = ready.election
            if ready.truncate_to is not None:
                total.truncate_to = ready.truncate_to
                self.log.truncate(ready.truncate_to)
            for chunk in ready.snapshot_chunks:
                self.log.store_chunk(chunk)
            if ready.load_snapshot is not None:
                self.log.load_snapshot(ready.load_snapshot)
                self.loaded.append(ready.load_snapshot)
                total.load_snapshot = ready.load_snapshot
            if ready.fetched is not None:
                self.log.append_fetched(ready.fetched)
                total.fetched = ready.fetched
            for append in ready.appends:
                self.log.append(append)
            total.snapshot_chunks += ready.snapshot_chunks
            total.appends += ready.appends
            total.requests += ready.requests
            total.replies += ready.replies
            total.roles += ready.roles
            if ready.high_watermark is not None:
                total.high_watermark = ready.high_watermark
            if ready.changes_log:
                self.node.tick(self.now_ms)
            if self.auto_flush and self.node.flushed_offset < self.log.end_offset:
                self.log.sync(self.log.end_offset)
                self.node.flushed(self.log.end_offset, self.now_ms)
        self.ready = total
        return total

    # Ways to a role.

    def become_prospective(self) -> Ready:
        """Let the timers of whatever role run out."""
        for _ in range(100):
            if self.node.role.name is RoleName.PROSPECTIVE:
                return self.ready
            self.later(100)
        raise AssertionError(f"still {self.node.role.name}")

    def grant(self, *voter_ids: int) -> Ready:
        """Answer the votes just asked for with yes."""
        asked = {each.to.id: each.request for each in self.ready.requests}
        for voter_id in voter_ids:
            request = asked[voter_id]
            assert isinstance(request, Vote)
            hint = LeaderHint(request.epoch)
            self.step(VoteReply(request.request_id, ErrorCode.NONE, hint, granted=True))
        return self.ready

    def become_candidate(self) -> Ready:
        self.become_prospective()
        return self.grant(2)

    def become_leader(self) -> Ready:
        self.become_candidate()
        return self.grant(2)

    def become_follower(self, leader_id: int = 2, epoch: int = 1) -> Ready:
        hint = LeaderHint(epoch, leader_id, voter(leader_id).endpoints)
        return self.step(BeginQuorumEpoch(900, hint, self.node.key))

    # Messages.

    def fetch(
        self,
        from_id: int,
        offset: int,
        last_epoch: int | None = None,
        wait_ms: int = 0,
        high_watermark: int = -1,
        epoch: int | None = None,
    ) -> Fetch:
        """As a replica would send it whose log is ours up to offset."""
        if last_epoch is None:
            last_epoch = self.log.at(offset - 1).epoch if offset > self.log.start_offset else 0
        own = self.node.epoch if epoch is None else epoch
        return Fetch(0, key(from_id), own, offset, last_epoch, high_watermark, wait_ms)


def vote(
    candidate_id: int,
    epoch: int,
    end: OffsetAndEpoch = EMPTY,
    pre_vote: bool = False,
    voter_id: int = 1,
) -> Vote:
    return Vote(0, epoch, key(candidate_id), key(voter_id), end, pre_vote)
