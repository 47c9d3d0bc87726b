"""Elections: epochs, votes and pre-votes (Raft 5.1, 5.2, 5.4.1; KIP-595, KIP-996, KIP-853)."""

from dataclasses import replace

import pytest
from tests.raft.bench import Bench, key, log_of, vote, voter_set
from tests.raft.sim import voter

from penstock.base.errors import ErrorCode
from penstock.raft.config import RaftConfig
from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    LeaderHint,
    RequestFailed,
    Vote,
    VoteReply,
)
from penstock.raft.ready import LeaderChange, RoleName
from penstock.raft.voters import ReplicaKey

# Epochs (5.1).


def test_a_message_of_a_later_epoch_moves_the_node_there() -> None:
    """Raft 5.1: if one server's current term is smaller than the other's, it updates to the larger value."""
    bench = Bench()
    bench.become_leader()
    assert bench.node.epoch == 1
    bench.ask(vote(2, epoch=7, end=OffsetAndEpoch(0, 0)))
    assert bench.role is RoleName.UNATTACHED
    assert bench.disk == ElectionState(7)


def test_a_request_of_an_earlier_epoch_is_refused_with_ours() -> None:
    """Raft 5.1: a request with a stale term is rejected."""
    bench = Bench(election=ElectionState(5))
    answers = [
        bench.ask(vote(2, epoch=4)),
        bench.ask(BeginQuorumEpoch(0, LeaderHint(4, 2, voter(2).endpoints), key(1))),
        bench.ask(EndQuorumEpoch(0, LeaderHint(4, 2), ())),
        bench.ask(Fetch(0, key(2), 4, 0, 0)),
    ]
    assert [answer.error for answer in answers] == [ErrorCode.FENCED_LEADER_EPOCH] * 4
    assert [answer.leader.epoch for answer in answers] == [5] * 4


def test_an_answer_of_an_earlier_epoch_changes_nothing() -> None:
    bench = Bench(election=ElectionState(5))
    bench.become_candidate()
    request = bench.sent_to(2, Vote)
    bench.step(VoteReply(request.request_id, ErrorCode.NONE, LeaderHint(3), granted=True))
    assert bench.role is RoleName.CANDIDATE


# Votes (5.2, 5.4.1).


def test_a_vote_is_on_disk_with_the_answer() -> None:
    """Raft 5.2 and figure 2: votedFor is updated on stable storage before responding."""
    bench = Bench()
    answer = bench.ask(vote(2, epoch=1))
    assert isinstance(answer, VoteReply)
    assert answer.granted
    assert bench.ready.election == ElectionState(1, NO_LEADER, key(2))


def test_a_node_votes_for_one_candidate_an_epoch() -> None:
    """Raft 5.2: each server votes for at most one candidate in a given term, first come first served."""
    bench = Bench()
    votes = [bench.ask(vote(2, epoch=1)), bench.ask(vote(3, epoch=1)), bench.ask(vote(2, epoch=1))]
    assert [isinstance(each, VoteReply) and each.granted for each in votes] == [True, False, True]


def test_a_vote_outlives_a_restart() -> None:
    """Raft 5.2: a server that forgot its vote could give it twice."""
    before = Bench()
    before.ask(vote(2, epoch=1))
    after = Bench(election=before.disk)
    answer = after.ask(vote(3, epoch=1))
    assert isinstance(answer, VoteReply)
    assert not answer.granted


@pytest.mark.parametrize(
    ("end", "granted"),
    [
        (OffsetAndEpoch(3, 2), True),
        (OffsetAndEpoch(4, 2), True),
        (OffsetAndEpoch(1, 3), True),
        (OffsetAndEpoch(2, 2), False),
        (OffsetAndEpoch(9, 1), False),
    ],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_only_a_log_that_is_as_up_to_date_gets_the_vote(
    end: OffsetAndEpoch, granted: bool, pre_vote: bool
) -> None:
    """Raft 5.4.1: the later last term is more up to date; of equal terms, the longer log."""
    bench = Bench(log=log_of(1, 1, 2), election=ElectionState(4))
    answer = bench.ask(vote(2, epoch=5, end=end, pre_vote=pre_vote))
    assert isinstance(answer, VoteReply)
    assert answer.granted is granted


def test_a_follower_does_not_vote_in_the_epoch_of_its_leader() -> None:
    bench = Bench()
    bench.become_follower(leader_id=2, epoch=3)
    answer = bench.ask(vote(3, epoch=3, end=OffsetAndEpoch(9, 2)))
    assert isinstance(answer, VoteReply)
    assert not answer.granted
    assert answer.leader.leader_id == 2


def test_a_vote_meant_for_another_directory_is_refused() -> None:
    """KIP-853: a node whose disk was replaced does not answer for the old one."""
    bench = Bench()
    lost = ReplicaKey(1, voter(1, life=3).key.directory_id)
    answer = bench.ask(vote(2, epoch=1)._replace(voter=lost))
    assert answer.error is ErrorCode.INVALID_VOTER_KEY
    assert bench.disk == ElectionState(0)


def test_a_replica_outside_the_voters_votes_all_the_same() -> None:
    """Raft thesis 4.2.2, KIP-853: it may be a voter in a set that has not reached it yet."""
    bench = Bench(node_id=4)
    answer = bench.ask(vote(2, epoch=1, voter_id=4))
    assert isinstance(answer, VoteReply)
    assert answer.granted


@pytest.mark.parametrize(
    "request_",
    [
        vote(2, epoch=1, end=OffsetAndEpoch(-1, 0)),
        vote(2, epoch=1, end=OffsetAndEpoch(5, 1)),
        vote(2, epoch=1, end=OffsetAndEpoch(5, 2), pre_vote=True),
        vote(2, epoch=1)._replace(candidate=ReplicaKey(-1)),
        vote(1, epoch=1),
    ],
)
def test_a_vote_that_cannot_be_meant_is_refused(request_: Vote) -> None:
    """A candidate's last record is older than its epoch; nobody asks in our own name."""
    assert Bench().ask(request_).error is ErrorCode.INVALID_REQUEST


# Standing for election (5.2).


def test_a_majority_makes_a_candidate_the_leader() -> None:
    """Raft 5.2: votes from a majority of the full cluster for the same term win."""
    bench = Bench(voters=voter_set(1, 2, 3, 4, 5))
    bench.become_prospective()
    bench.ready = bench.grant(2, 3)
    assert bench.role is RoleName.CANDIDATE
    assert bench.disk == ElectionState(1, NO_LEADER, key(1))
    asked = bench.ready
    bench.grant(2)
    assert bench.role is RoleName.CANDIDATE
    bench.ready = asked
    bench.grant(3)
    assert bench.node.is_leader


def test_the_leader_appends_its_own_entry_before_it_serves() -> None:
    """KIP-595: an epoch begins with a leader change record, which also names who voted."""
    bench = Bench(log=log_of(1, 1), election=ElectionState(1))
    ready = bench.become_leader()
    (append,) = ready.appends
    assert (append.base_offset, append.epoch) == (2, 2)
    assert append.entry == LeaderChange(1, (key(1), key(2), key(3)), (key(1), key(2)))
    assert ready.election == ElectionState(2, 1, None)
    assert [each.to.id for each in ready.requests] == [2, 3]
    assert all(isinstance(each.request, BeginQuorumEpoch) for each in ready.requests)
    assert ready.roles[-1].epoch_start_offset == 2


def test_a_candidate_that_hears_of_the_leader_of_its_epoch_follows_it() -> None:
    """Raft 5.2: a leader whose term is at least as large is legitimate."""
    bench = Bench()
    bench.become_candidate()
    bench.become_follower(leader_id=3, epoch=1)
    assert bench.role is RoleName.FOLLOWER
    assert bench.disk == ElectionState(1, 3, key(1))


def test_a_candidate_without_a_majority_canvasses_again_after_its_timeout() -> None:
    """Raft 5.2, KIP-996: a split vote times out; only a new majority of pre-votes starts another epoch."""
    bench = Bench()
    bench.become_candidate()
    request = bench.sent_to(2, Vote)
    bench.step(VoteReply(request.request_id, ErrorCode.NONE, LeaderHint(1), granted=False))
    bench.become_prospective()
    assert bench.node.epoch == 1
    assert bench.node.role.voted == key(1)


def test_election_timeouts_are_spread() -> None:
    """Raft 5.2: randomised timeouts, here one to two election timeouts."""
    bench = Bench()
    timeouts = {bench.node.election_timeout() for _ in range(200)}
    assert min(timeouts) >= 1000
    assert max(timeouts) < 2000
    assert len(timeouts) > 50


def test_an_observer_never_stands() -> None:
    bench = Bench(node_id=9)
    for _ in range(50):
        bench.later(1000)
        assert bench.role is RoleName.UNATTACHED
        assert bench.node.epoch == 0


# Pre-votes (KIP-996).


def test_a_voter_canvasses_before_it_raises_the_epoch() -> None:
    """KIP-996: prospective asks with PreVote in its current epoch and persists nothing."""
    bench = Bench(election=ElectionState(4))
    ready = bench.become_prospective()
    assert {
        (each.request.epoch, each.request.pre_vote)
        for each in ready.requests
        if isinstance(each.request, Vote)
    } == {(4, True)}
    assert bench.disk == ElectionState(4)


def test_pre_votes_are_not_binding() -> None:
    """KIP-996: granted pre-votes are not persisted, and any number may be given."""
    bench = Bench(election=ElectionState(4))
    answers = [bench.ask(vote(each, epoch=4, pre_vote=True)) for each in (2, 3, 2)]
    assert all(isinstance(each, VoteReply) and each.granted for each in answers)
    assert bench.disk == ElectionState(4)


def test_a_follower_grants_pre_votes_while_its_leader_is_hearsay() -> None:
    """KIP-996: before the first successful fetch, or two nodes could send each other to a dead leader for ever."""
    bench = Bench()
    bench.become_follower(leader_id=2, epoch=1)
    answer = bench.ask(vote(3, epoch=1, end=OffsetAndEpoch(5, 1), pre_vote=True))
    assert isinstance(answer, VoteReply)
    assert answer.granted


def test_a_follower_refuses_pre_votes_once_it_has_fetched() -> None:
    """KIP-996: a node that was cut off must not unseat a leader that serves the others."""
    bench = Bench()
    request = fetch_of(bench, leader_id=2)
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, LeaderHint(1, 2, voter(2).endpoints), 0))
    answer = bench.ask(vote(3, epoch=1, end=OffsetAndEpoch(5, 1), pre_vote=True))
    assert isinstance(answer, VoteReply)
    assert not answer.granted


def test_a_leader_refuses_pre_votes() -> None:
    bench = Bench()
    bench.become_leader()
    answer = bench.ask(vote(3, epoch=1, end=OffsetAndEpoch(9, 1), pre_vote=True))
    assert isinstance(answer, VoteReply)
    assert not answer.granted
    assert bench.node.is_leader


def test_a_prospective_that_loses_returns_to_the_leader_it_knew() -> None:
    """KIP-996: after a lost or timed-out round it follows again, in the same epoch."""
    bench = Bench()
    bench.become_follower(leader_id=2, epoch=1)
    ready = bench.become_prospective()
    for outbound in ready.requests:
        bench.step(VoteReply(outbound.request.request_id, ErrorCode.NONE, LeaderHint(1, 2), granted=False))
    assert bench.role is RoleName.FOLLOWER
    assert (bench.node.epoch, bench.node.leader_id) == (1, 2)


# Handing over (KIP-595).


def fetch_of(bench: Bench, leader_id: int, epoch: int = 1) -> Fetch:
    ready = bench.become_follower(leader_id, epoch)
    (request,) = [each.request for each in ready.requests if isinstance(each.request, Fetch)]
    return request


def test_a_resigning_leader_names_the_most_complete_follower_first() -> None:
    """KIP-595: EndQuorumEpoch with preferred successors by how far they have fetched."""
    bench = Bench()
    bench.become_leader()
    bench.propose("a", "b")
    bench.ask(bench.fetch(2, 1))
    bench.ask(bench.fetch(3, 3, wait_ms=0))
    bench.node.resign(bench.now_ms)
    bench._carry_out()
    ends = bench.sent(EndQuorumEpoch)
    assert [end.successors for end in ends] == [(key(3), key(2))] * 2
    assert bench.role is RoleName.RESIGNED


@pytest.mark.parametrize(("place", "wait_ms"), [(0, 0), (1, 250), (2, 500)])
def test_successors_wait_by_their_place(place: int, wait_ms: int) -> None:
    """KIP-595: the first stands at once, the others after an exponential backoff."""
    bench = Bench()
    fetch_of(bench, leader_id=2)
    successors = [key(3), key(4)]
    successors.insert(place, key(1))
    bench.ask(EndQuorumEpoch(0, LeaderHint(1, 2, voter(2).endpoints), tuple(successors)))
    if wait_ms:
        bench.later(wait_ms - 1)
        assert bench.role is RoleName.FOLLOWER
        bench.later(1)
    assert bench.role is RoleName.PROSPECTIVE


def test_a_follower_whose_leader_resigned_grants_pre_votes() -> None:
    """KAFKA-20895: else the named successor loses in a quorum of five."""
    bench = Bench(voters=voter_set(1, 2, 3, 4, 5))
    request = fetch_of(bench, leader_id=2)
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, LeaderHint(1, 2, voter(2).endpoints), 0))
    successors = (key(3), key(1), key(4))
    bench.ask(EndQuorumEpoch(0, LeaderHint(1, 2, voter(2).endpoints), successors))
    answer = bench.ask(vote(3, epoch=1, end=OffsetAndEpoch(0, 0), pre_vote=True))
    assert isinstance(answer, VoteReply)
    assert answer.granted


def test_a_resigned_leader_moves_an_epoch_on_if_nobody_follows() -> None:
    """KIP-595, resigned: it never leads or votes in the epoch it gave up."""
    bench = Bench()
    bench.become_leader()
    bench.node.resign(bench.now_ms)
    bench._carry_out()
    refused = bench.ask(vote(3, epoch=1, end=OffsetAndEpoch(9, 0)))
    assert isinstance(refused, VoteReply)
    assert not refused.granted
    bench.become_prospective()
    assert bench.node.epoch == 2


def test_a_leader_that_went_down_starts_resigned() -> None:
    """KIP-595: what it served without flushing may be gone, so it must not lead that epoch again."""
    bench = Bench(log=log_of(1, 2), election=ElectionState(2, 1))
    assert bench.role is RoleName.RESIGNED
    assert bench.node.epoch == 2


def test_a_closing_leader_hands_over_and_stands_no_more() -> None:
    bench = Bench()
    bench.become_leader()
    bench.node.close(bench.now_ms)
    bench._carry_out()
    for _ in range(60):
        bench.later(500)
    assert bench.role is RoleName.RESIGNED
    bench.become_follower(leader_id=2, epoch=2)
    for _ in range(60):
        bench.later(500)
    assert bench.role is RoleName.FOLLOWER


# Timeouts.


def test_a_follower_without_a_served_fetch_canvasses() -> None:
    """KIP-595: after the fetch timeout. An answer that brings nothing counts as served."""
    bench = Bench()
    request = fetch_of(bench, leader_id=2)
    bench.later(1500)
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, LeaderHint(1, 2, voter(2).endpoints), 0))
    bench.later(1999)
    assert bench.role is RoleName.FOLLOWER
    bench.later(1)
    assert bench.role is RoleName.PROSPECTIVE


def test_a_follower_whose_leader_refuses_connections_does_not_wait() -> None:
    """Ours: a process that is gone is not waited for; pre-votes keep a wrong guess harmless."""
    bench = Bench()
    request = fetch_of(bench, leader_id=2)
    bench.step(RequestFailed(request.request_id, refused=True))
    bench.later(250)
    assert bench.role is RoleName.PROSPECTIVE


def test_a_leader_without_a_majority_of_fetches_resigns() -> None:
    """Check quorum (KAFKA-15489): within one and a half fetch timeouts, each majority's fetch counting anew."""
    bench = Bench()
    bench.become_leader()
    for _ in range(10):
        bench.later(2900)
        assert bench.node.is_leader
        bench.ask(bench.fetch(3, 1))
    bench.later(2999)
    assert bench.node.is_leader
    bench.later(1)
    assert bench.role is RoleName.RESIGNED


def test_observers_do_not_keep_a_leader_in_office() -> None:
    bench = Bench()
    bench.become_leader()
    for _ in range(3):
        bench.later(1000)
        if bench.node.is_leader:
            bench.ask(bench.fetch(8, 1))
    assert bench.role is RoleName.RESIGNED


def test_a_leader_reminds_voters_that_do_not_fetch() -> None:
    """KIP-853: BeginQuorumEpoch again every half fetch timeout to those who have not fetched meanwhile."""
    bench = Bench(config=replace(RaftConfig(), request_timeout_ms=100))
    bench.become_leader()
    bench.ask(bench.fetch(2, 1))
    bench.later(999)
    assert not bench.ready.requests
    bench.ask(bench.fetch(2, 1))
    bench.later(1)
    assert [each.to.id for each in bench.ready.requests] == [3]


# Finding the leader.


def test_a_node_without_a_leader_asks_the_voters_with_a_fetch() -> None:
    """KIP-595: whoever is asked and does not lead says who does."""
    bench = Bench(node_id=9)
    (outbound,) = bench.ready.requests
    assert outbound.to.id in (1, 2, 3)
    assert isinstance(outbound.request, Fetch)
    hint = LeaderHint(6, 3, voter(3).endpoints)
    bench.step(FetchReply(outbound.request.request_id, ErrorCode.FENCED_LEADER_EPOCH, hint))
    assert (bench.node.role.name, bench.node.leader_id) == (RoleName.FOLLOWER, 3)
    assert bench.sent_to(3, Fetch).epoch == 6


def test_a_node_without_voters_asks_its_bootstrap_servers() -> None:
    """KIP-853: their ids are not known before they answer."""
    bench = Bench(node_id=9, voters=voter_set(), bootstrap=voter(2).endpoints)
    (outbound,) = bench.ready.requests
    assert outbound.to.id < -1
    assert outbound.to.endpoints == voter(2).endpoints
    hint = LeaderHint(6, 2, voter(2).endpoints)
    bench.step(FetchReply(outbound.request.request_id, ErrorCode.FENCED_LEADER_EPOCH, hint))
    assert bench.sent_to(2, Fetch).epoch == 6


def test_a_node_whose_voters_have_all_moved_finds_the_leader_through_its_bootstrap_servers() -> None:
    """Kafka's `maybeSendFetchToAnyBootstrap`: what the log says of the voters may be old."""
    bench = Bench(node_id=9, voters=voter_set(1, 2), bootstrap=voter(3).endpoints)
    asked = set()
    waiting = list(bench.ready.requests)
    for _ in range(50):
        while waiting:
            peer, request = waiting.pop()
            asked.add(peer.id)
            waiting += bench.step(RequestFailed(request.request_id, refused=True)).requests
        waiting += bench.later(100).requests
    assert {1, 2} < asked
    assert min(asked) < -1


def test_a_leader_without_an_address_is_remembered_but_not_followed() -> None:
    """KIP-853: an epoch's leader is never forgotten, or its voters could elect another."""
    bench = Bench(node_id=9, voters=voter_set(), bootstrap=voter(2).endpoints)
    (outbound,) = bench.ready.requests
    bench.step(FetchReply(outbound.request.request_id, ErrorCode.FENCED_LEADER_EPOCH, LeaderHint(6, 4)))
    assert bench.disk == ElectionState(6, 4)
    assert bench.role is RoleName.UNATTACHED


def test_a_node_that_led_on_a_lost_disk_learns_its_epoch_but_does_not_lead_it() -> None:
    bench = Bench()
    outbound = bench.ready.requests[0]
    hint = LeaderHint(5, 1, voter(1).endpoints)
    bench.step(FetchReply(outbound.request.request_id, ErrorCode.FENCED_LEADER_EPOCH, hint))
    assert bench.disk == ElectionState(5, 1)
    assert bench.role is RoleName.UNATTACHED
    refused = bench.ask(vote(3, epoch=5, end=OffsetAndEpoch(9, 4)))
    assert isinstance(refused, VoteReply)
    assert not refused.granted


def test_a_follower_whose_leader_leads_no_more_does_not_wait() -> None:
    """Ours: a leader that was restarted says itself that it is none."""
    bench = Bench()
    request = fetch_of(bench, leader_id=2)
    hint = LeaderHint(1, 2, voter(2).endpoints)
    bench.step(FetchReply(request.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, hint))
    bench.later(250)
    assert bench.role is RoleName.PROSPECTIVE


def test_two_leaders_of_one_epoch_are_rejected() -> None:
    """Raft 5.2: there is at most one, so the second message is wrong."""
    bench = Bench()
    bench.become_follower(leader_id=2, epoch=1)
    answer = bench.ask(BeginQuorumEpoch(0, LeaderHint(1, 3, voter(3).endpoints), key(1)))
    assert isinstance(answer, BeginQuorumEpochReply)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert bench.node.leader_id == 2


# One voter.


def test_one_voter_leads_at_once() -> None:
    """A quorum of one: at the start, an epoch on, without a message."""
    bench = Bench(voters=voter_set(1), auto_flush=False)
    assert bench.node.is_leader
    assert bench.disk == ElectionState(1, 1)
    assert not bench.ready.requests
    assert bench.ready.high_watermark is None
    assert bench.flush().high_watermark == 1
    assert bench.node.next_deadline() is None


def test_one_voter_leads_again_after_a_restart() -> None:
    bench = Bench(voters=voter_set(1), log=log_of(1, 1, 1), election=ElectionState(1, 1))
    assert bench.node.is_leader
    assert bench.disk == ElectionState(2, 1)
    assert bench.ready.high_watermark == 4


def test_one_voter_commits_what_it_has_flushed() -> None:
    bench = Bench(voters=voter_set(1))
    bench.auto_flush = False
    assert bench.propose("a", "b").high_watermark is None
    assert bench.flush().high_watermark == 3
