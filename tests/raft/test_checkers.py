"""The checkers catch what they are for: nodes that break one rule each, and the history that shows it.

Each mutation is a mistake that someone has made or could make in good faith. A checker that none of them trips would
prove nothing by its silence.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.raft.checkers import Violation
from tests.raft.sim import CHANGING, ROUGH, Faults, run_seed

from penstock.raft.candidate import Candidate
from penstock.raft.changes import VoterChanges
from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.errors import LostCommit
from penstock.raft.follower import Follower
from penstock.raft.inbox import Inbox
from penstock.raft.leader import Leader
from penstock.raft.log import OffsetAndEpoch, Position
from penstock.raft.messages import Vote
from penstock.raft.node import Node
from penstock.raft.ready import Ready
from penstock.raft.role import Role

Patch = Callable[[pytest.MonkeyPatch], None]

FRANTIC = Faults(
    crash_every_ms=120,
    cut_every_ms=150,
    resign_every_ms=300,
    power_cut_every_ms=500,
    crash_in_ready=0.01,
    sync_ms_max=20,
)


class ForgetsItsVote(Node):
    """Starts with the epoch it had, but not with whom it voted for."""

    def __init__(self, *args: Any, election: ElectionState | None, **settings: Any) -> None:
        if election is not None:
            election = election._replace(voted=None)
        super().__init__(*args, election=election, **settings)


class NeverPersists(Node):
    """Says what it promised without writing it down."""

    def ready(self) -> Ready:
        ready = super().ready()
        if ready.election is not None and ready.election.epoch > 1:
            ready.election = None
        return ready


class TakesAllForFlushed(Node):
    """Counts what is written as on disk."""

    @property
    def flushed_offset(self) -> int:  # type: ignore[override]
        return self.log.end_offset

    @flushed_offset.setter
    def flushed_offset(self, offset: int) -> None:
        pass


class LeadsOnAfterRestart(Node):
    """Stands again in the epoch that it led when it went down."""

    def _initial_role(self, election: ElectionState, now_ms: int) -> Role:
        role = super()._initial_role(election, now_ms)
        if election.leader_id == self.key.id and election.epoch >= self.log.last_epoch:
            return Candidate(self, election.epoch, now_ms)
        return role


def commits_old_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "may_commit", lambda self, offset: offset > 0)


def votes_for_any_log(patch: pytest.MonkeyPatch) -> None:
    honest = Inbox._vote

    def vote(self: Inbox, request: Vote, now_ms: int) -> None:
        newest = request.epoch if request.pre_vote else request.epoch - 1
        honest(self, request._replace(end=OffsetAndEpoch(2**60, newest)), now_ms)

    patch.setattr(Inbox, "_vote", vote)


def trusts_every_position(patch: pytest.MonkeyPatch) -> None:
    def check(tail: Any, fetch_offset: int, last_fetched_epoch: int) -> Position:
        if fetch_offset < tail.log.start_offset:
            return Position(snapshot=tail.log.latest_snapshot())
        return Position()

    patch.setattr("penstock.raft.leader.check_position", check)


def truncates_too_much(patch: pytest.MonkeyPatch) -> None:
    def truncate(self: Follower, diverging: OffsetAndEpoch) -> None:
        self.node.truncate(max(self.node.log.start_offset, diverging.offset - 8))

    patch.setattr(Follower, "_truncate", truncate)


def changes_voters_at_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterChanges, "_unsettled", lambda self: None)


def counts_without_majority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("penstock.raft.voters.VoterSet.majority", property(lambda self: max(1, len(self) // 2)))


def lets_the_high_watermark_go_back(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Node, offset: int) -> None:
        if offset >= self.log.start_offset and offset != self.high_watermark:
            self.high_watermark = self.pending.high_watermark = offset

    def fetched(self: Leader, now_ms: int) -> None:
        reached = self.replicas.reached_by_majority(self.node.voters, self.node.flushed_offset)
        if self.may_commit(reached):
            self.high_watermark = reached
            self.node.commit(reached)

    patch.setattr(Node, "commit", commit)
    patch.setattr(Leader, "advance", fetched)


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    def grants(role: Role, candidate: Any, up_to_date: bool, pre_vote: bool) -> bool:
        return up_to_date and role.leader_id == NO_LEADER

    patch.setattr("penstock.raft.unattached.grants_without_leader", grants)


def nothing(patch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("factory", "patch", "faults", "voters"),
    [
        pytest.param(ForgetsItsVote, nothing, FRANTIC, 3, id="forgets its vote"),
        pytest.param(NeverPersists, nothing, FRANTIC, 3, id="does not write its epoch down"),
        pytest.param(TakesAllForFlushed, nothing, FRANTIC, 3, id="promises what is not flushed"),
        pytest.param(LeadsOnAfterRestart, nothing, FRANTIC, 3, id="stands again in the epoch it led"),
        pytest.param(Node, commits_old_epochs, FRANTIC, 5, id="counts entries of older epochs"),
        pytest.param(Node, votes_for_any_log, FRANTIC, 3, id="votes for a log that lacks entries"),
        pytest.param(Node, votes_twice, FRANTIC, 5, id="votes twice in an epoch"),
        pytest.param(Node, trusts_every_position, FRANTIC, 3, id="does not compare logs"),
        pytest.param(Node, truncates_too_much, FRANTIC, 3, id="truncates committed entries"),
        pytest.param(Node, counts_without_majority, ROUGH, 5, id="takes less than half for a majority"),
        pytest.param(Node, lets_the_high_watermark_go_back, ROUGH, 3, id="lets the high watermark go back"),
        pytest.param(Node, changes_voters_at_any_time, CHANGING, 3, id="changes two voters at once"),
    ],
)
def test_a_broken_rule_is_caught(
    factory: type[Node],
    patch: Patch,
    faults: Faults,
    voters: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch(monkeypatch)
    observers = 2 if faults is CHANGING else 0
    for seed in range(150):
        try:
            run_seed(seed, voters, observers, faults, node_factory=factory)
        except (Violation, LostCommit) as caught:
            if "no progress" not in str(caught):
                print(seed, caught)
                return
        except AssertionError:
            raise
    pytest.fail("no seed of 150 shows the broken rule")
