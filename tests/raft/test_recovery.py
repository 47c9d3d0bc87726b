"""Voters whose log lost records that they had synced: protocol-aware recovery of a Raft log.

"Protocol-Aware Recovery for Consensus-Based Storage" (FAST 2018): a damaged log that is cut like a torn one lets a
majority elect a leader without a committed entry. The node remembers where its log ended instead.
"""

import pytest
from tests.raft.bench import Bench, key, log_of, vote, voter_set
from tests.raft.checkers import Violation
from tests.raft.memlog import Record, make_snapshot
from tests.raft.sim import run_seed, voter
from tests.raft.test_simulation import WORLDS

from penstock.base.errors import ErrorCode
from penstock.raft.election import ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import Fetch, FetchReply, FetchSnapshotReply, LeaderHint, Vote, VoteReply
from penstock.raft.ready import RoleName

LOST = OffsetAndEpoch(4, 2)
"""Where the log ended that has two records of epoch 1 left."""


def forgetful(**options: object) -> Bench:
    return Bench(log=log_of(1, 1), election=ElectionState(2), synced_end=LOST, **options)  # type: ignore[arg-type]


def served(bench: Bench, *epochs: int, high_watermark: int = 0) -> None:
    """Answer the fetch just sent with a record of each epoch."""
    (fetch,) = bench.sent(Fetch)
    records = tuple(Record(epoch, "fetched") for epoch in epochs)
    hint = LeaderHint(bench.node.epoch, 2, voter(2).endpoints)
    bench.step(FetchReply(fetch.request_id, ErrorCode.NONE, hint, high_watermark, 0, records=records or None))


def test_it_stands_in_no_election_and_looks_for_the_leader() -> None:
    bench = forgetful()
    assert bench.node.is_recovering
    for _ in range(100):
        bench.later(100)
        assert bench.role is RoleName.UNATTACHED
        assert not bench.sent(Vote)
    fetches = []
    for _ in range(20):
        bench.later(100)
        fetches += bench.sent(Fetch)
    assert fetches


@pytest.mark.parametrize(
    ("end", "is_granted"),
    [
        (OffsetAndEpoch(2, 1), False),  # as long as what is left
        (OffsetAndEpoch(9, 1), False),
        (OffsetAndEpoch(3, 2), False),
        (OffsetAndEpoch(4, 2), True),  # as long as what there was
        (OffsetAndEpoch(3, 3), True),
    ],
)
def test_it_votes_only_for_a_log_that_reaches_as_far_as_its_own_once_did(
    end: OffsetAndEpoch, is_granted: bool
) -> None:
    """Raft 5.4.1, of the log that there was: so one voter that has everything is enough to bring a quorum back."""
    for pre_vote in (True, False):
        reply = forgetful().ask(vote(2, epoch=4, end=end, pre_vote=pre_vote))
        assert isinstance(reply, VoteReply)
        assert reply.granted is is_granted


def test_it_takes_part_again_once_what_it_lost_is_on_its_disk() -> None:
    bench = forgetful(auto_flush=False)
    bench.become_follower(epoch=3)
    served(bench, 2)
    bench.flush()
    assert bench.node.is_recovering
    served(bench, 2)
    assert bench.node.is_recovering  # fetched, but not synced
    bench.flush()
    assert not bench.node.is_recovering
    bench.become_prospective()


def test_a_record_of_a_later_epoch_ends_the_recovery_too() -> None:
    """Its leader had all that was committed before; what this node lost beyond that was not."""
    bench = forgetful()
    bench.become_follower(epoch=3)
    served(bench, 3)
    assert bench.log.end_offset == 3
    assert not bench.node.is_recovering


def test_a_snapshot_ends_the_recovery_too() -> None:
    bench = forgetful()
    bench.become_follower(epoch=3)
    (fetch,) = bench.sent(Fetch)
    hint, snapshot_id = LeaderHint(3, 2, voter(2).endpoints), OffsetAndEpoch(10, 3)
    bench.step(FetchReply(fetch.request_id, ErrorCode.NONE, hint, 10, 10, snapshot=snapshot_id))
    request = bench.sent_to(2, type(bench.ready.requests[0].request))
    data = make_snapshot(1, None).data
    reply = FetchSnapshotReply(request.request_id, ErrorCode.NONE, hint, snapshot_id, len(data), 0, data)
    bench.step(reply)
    assert bench.loaded == [snapshot_id]
    bench.later(1)
    assert not bench.node.is_recovering


def test_a_voter_alone_that_lost_records_leads_nothing() -> None:
    """Nobody else has them: an operator must say that they are given up."""
    bench = Bench(voters=voter_set(1), log=log_of(1, 1), synced_end=LOST)
    bench.later(60_000)
    assert bench.role is RoleName.UNATTACHED
    assert not Bench(voters=voter_set(1), log=log_of(1, 1, 2, 2), synced_end=LOST).node.is_recovering


def test_a_log_that_is_longer_or_of_a_later_epoch_lost_nothing() -> None:
    for epochs in ((1, 1, 2, 2), (1, 1, 2, 2, 2), (1, 3)):
        assert not Bench(log=log_of(*epochs), synced_end=LOST).node.is_recovering
    assert Bench(log=log_of(1, 1, 1, 1, 1), synced_end=LOST).node.is_recovering


def test_it_follows_the_next_leader_when_its_own_goes_away() -> None:
    bench = forgetful()
    bench.become_follower(leader_id=2, epoch=3)
    found = False
    for _ in range(200):
        bench.later(100)
        found = found or any(each.to.id == 3 for each in bench.ready.requests)
        assert not bench.sent(Vote)
    assert found
    assert bench.node.voters.find(key(1)) is not None


@pytest.mark.parametrize("world", ["forgetful", "forgetful-five"])
def test_voting_with_what_is_left_is_caught(world: str) -> None:
    """The simulation finds the fault that all this is for."""
    voters, observers, faults, _ = WORLDS[world]
    seed = {"forgetful": 101, "forgetful-five": 102}[world]
    with pytest.raises(Violation, match="LeaderCompleteness: "):
        run_seed(seed, voters, observers, faults, heeds_synced_end=False)
