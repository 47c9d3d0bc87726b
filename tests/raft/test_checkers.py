"""The checkers catch what they are for: nodes that break one rule each, and the history that shows it.

Each mutation is a mistake that someone has made or could make in good faith. A checker that none of them trips would
prove nothing by its silence.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.raft.checkers import (
    HighWatermarkForward,
    LeaderCompleteness,
    LogMatching,
    OneLeaderAnEpoch,
    PromisesKept,
    Violation,
)
from tests.raft.sim import CALM, ROUGH, Cluster, Faults, Host, run_seed

from penstock.raft import leader, unattached
from penstock.raft.candidate import Candidate
from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.errors import LostCommit
from penstock.raft.leader import Leader
from penstock.raft.log import OffsetAndEpoch, Position, check_position
from penstock.raft.message_handler import MessageHandler
from penstock.raft.messages import FetchReply, Message, Vote
from penstock.raft.node import Node
from penstock.raft.ready import Ready
from penstock.raft.role import Role, grants_without_leader
from penstock.raft.voter_changes import VoterChanges
from penstock.raft.voters import VoterSet

Patch = Callable[[pytest.MonkeyPatch], None]

FRANTIC = Faults(
    crash_every_ms=120,
    cut_every_ms=150,
    resign_every_ms=300,
    power_cut_every_ms=500,
    crash_in_ready=0.01,
    sync_ms_max=20,
)

SLOW_DISKS = replace(FRANTIC, sync_ms_max=80, power_cut_every_ms=250)
RESTLESS = replace(
    FRANTIC,
    change_voters_every_ms=20,
    crash_every_ms=300,
    cut_every_ms=120,
    power_cut_every_ms=0,
    resign_every_ms=200,
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
    def flushed_offset(self) -> int:
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
    plant(patch, Leader.may_commit, lambda _, offset: offset > 0)


def votes_for_any_log(patch: pytest.MonkeyPatch) -> None:
    honest = MessageHandler._vote

    def vote(self: MessageHandler, request: Vote, now_ms: int) -> None:
        newest = request.epoch if request.pre_vote else request.epoch - 1
        honest(self, request._replace(end=OffsetAndEpoch(2**60, newest)), now_ms)

    plant(patch, honest, vote)


def trusts_every_position(patch: pytest.MonkeyPatch) -> None:
    def check(tail: Any, fetch_offset: int, last_fetched_epoch: int) -> Position:
        if fetch_offset < tail.log.start_offset:
            return Position(snapshot=tail.log.latest_snapshot())
        return Position()

    plant(patch, check_position, check, within=leader)


def changes_voters_at_any_time(patch: pytest.MonkeyPatch) -> None:
    plant(patch, VoterChanges._unsettled, lambda _: None)


def counts_without_majority(patch: pytest.MonkeyPatch) -> None:
    plant(patch, VoterSet.majority, property(lambda self: max(1, len(self) // 2)))


def lets_the_high_watermark_go_back(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Node, offset: int) -> None:
        if offset >= self.log.start_offset and offset != self.high_watermark:
            self.high_watermark = self.pending.high_watermark = offset

    def fetched(self: Leader, now_ms: int) -> None:
        reached = self.replicas.reached_by_majority(self.node.voters, self.node.flushed_offset)
        if self.may_commit(reached):
            self.high_watermark = reached
            self.node.commit(reached)

    plant(patch, Node.commit, commit)
    plant(patch, Leader.advance, fetched)


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    def grants(role: Role, candidate: Any, up_to_date: bool, pre_vote: bool) -> bool:
        return up_to_date and role.leader_id == NO_LEADER

    plant(patch, grants_without_leader, grants, within=unattached)


def nothing(patch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("factory", "patch", "faults", "voters", "rule"),
    [
        pytest.param(ForgetsItsVote, nothing, FRANTIC, 3, PromisesKept, id="forgets its vote"),
        pytest.param(
            NeverPersists, nothing, FRANTIC, 3, OneLeaderAnEpoch, id="does not write its epoch down"
        ),
        pytest.param(
            TakesAllForFlushed, nothing, SLOW_DISKS, 3, LeaderCompleteness, id="promises what is not flushed"
        ),
        pytest.param(
            LeadsOnAfterRestart,
            nothing,
            FRANTIC,
            3,
            PromisesKept,
            id="stands again in the epoch it led",
        ),
        pytest.param(
            Node, votes_for_any_log, FRANTIC, 3, LeaderCompleteness, id="votes for a log that lacks entries"
        ),
        pytest.param(Node, votes_twice, FRANTIC, 5, PromisesKept, id="votes twice in an epoch"),
        pytest.param(Node, trusts_every_position, FRANTIC, 3, LogMatching, id="does not compare logs"),
        pytest.param(
            Node,
            counts_without_majority,
            ROUGH,
            5,
            LeaderCompleteness,
            id="takes less than half for a majority",
        ),
        pytest.param(
            Node,
            lets_the_high_watermark_go_back,
            ROUGH,
            3,
            HighWatermarkForward,
            id="lets the high watermark go back",
        ),
        pytest.param(
            Node, changes_voters_at_any_time, RESTLESS, 3, LeaderCompleteness, id="changes two voters at once"
        ),
    ],
)
def test_a_broken_rule_is_caught(
    factory: type[Node],
    patch: Patch,
    faults: Faults,
    voters: int,
    rule: type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch(monkeypatch)
    observers = 2 if faults is RESTLESS else 0
    others: Counter[str] = Counter()
    for seed in range(150):
        try:
            run_seed(seed, voters, observers, faults, node_factory=factory)
        except LostCommit:
            others[LostCommit.__name__] += 1
        except Violation as violation:
            broken = str(violation).partition(":")[0]
            if broken == rule.__name__:
                return
            others[broken] += 1
    pytest.fail(f"{rule.__name__} failed none of 150 seeds; other rules did: {dict(others)}")


def figure_8(cluster: Cluster) -> None:
    """Raft figure 8, step by step; x is the entry that a majority has and that is overwritten in the end.

    1  a leader of an early epoch gives x to one other node
    2  one of the other three is elected, and appends the first entry of its epoch to its own log alone
    3  a node with x is elected and spreads x to a majority, but nothing of its own epoch
    4  the leader of step 2, whose log ends in a later epoch than x, is elected and its log prevails
    """

    def until(condition: Callable[[], bool]) -> None:
        for _ in range(5000):
            if condition():
                return
            cluster.run(1)
        raise AssertionError(f"not reached: {cluster.trace[-10:]}")

    def part(*side: Host) -> None:
        ids = {host.id for host in side}
        rest = set(cluster.hosts) - ids
        cluster.cut = {(a, b) for a in ids for b in rest} | {(b, a) for a in ids for b in rest}

    def led_by(hosts: list[Host], after: int) -> Host | None:
        leaders = [each for each in hosts if each.node and each.node.is_leader and each.node.epoch > after]
        return leaders[0] if leaders else None

    hosts = list(cluster.hosts.values())
    until(lambda: led_by(hosts, 0) is not None)
    cluster.run(100)
    first = led_by(hosts, 0)
    assert first is not None
    assert first.node is not None
    early = first.node.epoch
    second = next(host for host in hosts if host is not first)
    others = [host for host in hosts if host not in (first, second)]
    part(first, second)
    x = cluster.propose(first)
    assert x is not None
    until(lambda: second.log.end_offset > x)

    until(lambda: led_by(others, early) is not None)
    upstart = led_by(others, early)
    assert upstart is not None
    assert upstart.node is not None
    late = upstart.node.epoch
    part(upstart)
    cluster.run(30)
    assert upstart.log.last_epoch == late
    assert all(host.log.last_epoch < late for host in hosts if host is not upstart)

    def is_of_a_later_epoch(message: Message) -> bool:
        records = message.records if isinstance(message, FetchReply) else None
        return isinstance(records, tuple) and any(record.epoch > late for record in records)

    cluster.stops = is_of_a_later_epoch
    until(lambda: led_by([first, second], late) is not None)
    until(lambda: all(host.log.end_offset > x for host in others if host is not upstart))
    cluster.run(20)

    part(first, second)
    cluster.stops = lambda _: False
    until(lambda: led_by(others, late + 1) is not None)
    assert led_by(others, late + 1) is upstart
    cluster.cut.clear()
    cluster.settle()
    assert cluster.committed.records[x].epoch == late


ONE_BY_ONE = replace(CALM, fetch_records_max=1)


def test_an_entry_of_an_older_epoch_is_not_committed_by_counting() -> None:
    """Raft 5.4.2, figure 8: a majority has it, and yet it may be overwritten."""
    figure_8(Cluster(seed=1, voters=5, faults=ONE_BY_ONE))


def test_counting_entries_of_older_epochs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    commits_old_epochs(monkeypatch)
    with pytest.raises(Violation, match=r"LeaderCompleteness: .* lacks .* committed at"):
        figure_8(Cluster(seed=1, voters=5, faults=ONE_BY_ONE))
