"""Voters are added, removed and moved, one at a time (KIP-853; Raft thesis 4)."""

import pytest
from tests.raft.bench import Bench, key, log_of, voter_set
from tests.raft.sim import voter

from penstock.base.errors import ErrorCode
from penstock.raft.config import RaftConfig
from penstock.raft.election import ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    AskVersions,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    LeaderHint,
    RemoveVoter,
    RequestFailed,
    UpdateVoter,
    VersionsReply,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from penstock.raft.ready import KRaftVersion, LeaderChange, RoleName, Voters
from penstock.raft.voters import Endpoint, VoterSet


def leader(*ids: int) -> Bench:
    """A leader of voters that are in its log, with its epoch's start committed by all of them."""
    voters = voter_set(*(ids or (1, 2, 3)))
    bench = Bench(voters=voter_set(), log=log_of(formatted=voters))
    if not bench.node.is_leader:
        bench.become_leader()
    for each in voters:
        if each.key.id != 1:
            bench.ask(bench.fetch(each.key.id, bench.log.end_offset))
    assert bench.node.high_watermark == bench.log.end_offset
    return bench


def change(
    bench: Bench, request: AddVoter | RemoveVoter | UpdateVoter, token: int = 77
) -> VoterChangeReply | None:
    """The answer, if it comes at once."""
    ready = bench.step(request._replace(request_id=token))
    replies = [each for each in ready.replies if each.request_id == token]
    assert len(replies) <= 1
    reply = replies[0] if replies else None
    assert reply is None or isinstance(reply, VoterChangeReply)
    return reply


def add(
    bench: Bench, request: AddVoter, versions: tuple[int, int] | None = (0, 1)
) -> VoterChangeReply | None:
    """The same for a voter that is added, which says which versions it understands when it is asked."""
    reply = change(bench, request)
    if reply is not None:
        return reply
    if not bench.ready.requests:
        bench.later(bench.node.config.request_timeout_ms)  # what it was asked before is given up
    (asked,) = bench.sent(AskVersions)
    ready = bench.step(VersionsReply(asked.request_id, ErrorCode.NONE, kraft_versions=versions))
    replies = [each for each in ready.replies if isinstance(each, VoterChangeReply)]
    return replies[0] if replies else None


def error_of(reply: VoterChangeReply | None) -> ErrorCode | None:
    return None if reply is None else reply.error


def test_the_first_leader_copies_the_formatted_voters_into_the_log() -> None:
    """KIP-853: for those who join later and have no such snapshot."""
    bench = Bench(voters=voter_set(), log=log_of(formatted=voter_set(1, 2, 3)))
    ready = bench.become_leader()
    kinds = [type(append.entry) for append in ready.appends]
    assert kinds == [LeaderChange, KRaftVersion, Voters]
    again = Bench(voters=voter_set(), log=bench.log, election=ElectionState(1, 1))
    ready = again.become_leader()
    assert [type(append.entry) for append in ready.appends] == [LeaderChange]


def test_a_voter_that_has_caught_up_is_added() -> None:
    """KIP-853: in force as soon as it is in the log, answered when it is committed by the new majority."""
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    assert add(bench, AddVoter(0, voter(4), 1000)) is None
    assert bench.node.voters == voter_set(1, 2, 3, 4)
    (append,) = bench.ready.appends
    assert append.entry == Voters(voter_set(1, 2, 3, 4))
    bench.ask(bench.fetch(2, 4))
    assert bench.node.high_watermark == 3
    replies = bench.step(bench.fetch(4, 4)).replies
    assert [each.error for each in replies if isinstance(each, VoterChangeReply)] == [ErrorCode.NONE]
    assert bench.node.high_watermark == 4


def test_a_caller_may_choose_not_to_wait_for_the_commit() -> None:
    """KIP-1186: AckWhenCommitted."""
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    assert error_of(add(bench, AddVoter(0, voter(4), 1000, ack_when_committed=False))) is ErrorCode.NONE
    assert bench.node.voters == voter_set(1, 2, 3, 4)


def test_a_replica_that_has_not_caught_up_is_not_added() -> None:
    bench = leader()
    assert error_of(change(bench, AddVoter(0, voter(4), 1000))) is ErrorCode.REQUEST_TIMED_OUT
    bench.ask(bench.fetch(4, 1))
    assert error_of(change(bench, AddVoter(0, voter(4), 1000))) is ErrorCode.REQUEST_TIMED_OUT


def test_nothing_changes_before_the_new_voter_has_said_what_it_understands() -> None:
    """KIP-853: its kraft.version is asked for with ApiVersions, where the others will look for it."""
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    assert change(bench, AddVoter(0, voter(4), 1000)) is None
    (asked,) = bench.ready.requests
    assert (asked.to.id, asked.to.endpoints) == (4, voter(4).endpoints)
    assert isinstance(asked.request, AskVersions)
    assert bench.node.voters == voter_set(1, 2, 3)
    second = change(bench, AddVoter(0, voter(5), 1000), token=78)
    assert error_of(second) is ErrorCode.REQUEST_TIMED_OUT, "one at a time"


@pytest.mark.parametrize("versions", [(0, 0), (2, 3), None])
def test_a_replica_that_does_not_understand_the_quorums_records_is_not_added(
    versions: tuple[int, int] | None,
) -> None:
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    assert error_of(add(bench, AddVoter(0, voter(4), 1000), versions)) is ErrorCode.INVALID_REQUEST
    assert bench.node.voters == voter_set(1, 2, 3)
    assert add(bench, AddVoter(0, voter(4), 1000)) is None, "the next one is taken"
    assert bench.node.voters == voter_set(1, 2, 3, 4)


def test_what_a_new_voter_understands_is_kept() -> None:
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    add(bench, AddVoter(0, voter(4), 1000), (1, 7))
    known = bench.node.voters.by_id(4)
    assert known is not None
    assert known.kraft_versions == (1, 7)


@pytest.mark.parametrize("endpoints", [(), (Endpoint("OTHER", "node4", 9093),)])
def test_a_voter_must_listen_where_the_leader_does(endpoints: tuple[Endpoint, ...]) -> None:
    """By the name of the listener: all voters reach each other through that one."""
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    there = voter(4)._replace(endpoints=endpoints)
    assert error_of(change(bench, AddVoter(0, there, 1000))) is ErrorCode.INVALID_REQUEST


def test_a_replica_that_does_not_answer_is_not_added() -> None:
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    change(bench, AddVoter(0, voter(4), 1000))
    asked = bench.sent_to(4, AskVersions)
    (reply,) = bench.step(RequestFailed(asked.request_id)).replies
    assert isinstance(reply, VoterChangeReply)
    assert (reply.request_id, reply.error) == (77, ErrorCode.REQUEST_TIMED_OUT)
    assert "does not respond at" in reply.message
    assert bench.node.voters == voter_set(1, 2, 3)
    assert change(bench, AddVoter(0, voter(4), 1000), token=78) is None
    assert bench.sent(AskVersions) == [], "it has just not answered"
    bench.later(bench.node.config.retry_backoff_ms)
    assert len(bench.sent(AskVersions)) == 1


def test_a_replica_that_answers_too_late_is_not_added() -> None:
    bench = leader()
    bench.ask(bench.fetch(4, 3))
    change(bench, AddVoter(0, voter(4), 100))
    asked = bench.sent_to(4, AskVersions)
    replies = bench.later(100).replies
    assert [each.error for each in replies] == [ErrorCode.REQUEST_TIMED_OUT]
    bench.step(VersionsReply(asked.request_id, ErrorCode.NONE, kraft_versions=(0, 1)))
    assert bench.node.voters == voter_set(1, 2, 3)


def test_a_voter_that_moved_and_forgot_the_quorums_records_stays_where_it_was() -> None:
    bench = leader()
    old = voter(2)._replace(kraft_versions=(0, 0))
    assert error_of(change(bench, UpdateVoter(0, bench.node.epoch, old, 1000))) is ErrorCode.INVALID_REQUEST


def test_an_id_votes_once() -> None:
    """KIP-853: a replaced disk joins only after the lost one was removed."""
    bench = leader()
    replaced = voter(3, life=1)
    bench.ask(bench.fetch(3, 3)._replace(replica=replaced.key))
    assert error_of(change(bench, AddVoter(0, replaced, 1000))) is ErrorCode.DUPLICATE_VOTER
    change(bench, RemoveVoter(0, key(3), 1000))
    bench.ask(bench.fetch(2, 4))
    assert add(bench, AddVoter(0, replaced, 3000)) is None
    assert bench.node.voters.find(replaced.key) is not None
    assert bench.node.voters.find(key(3)) is None


def test_a_second_change_waits_for_the_first() -> None:
    """Raft thesis 4.1: sets that differ by one voter share a majority's member; sets that differ by two need not."""
    bench = leader()
    assert change(bench, RemoveVoter(0, key(3), 1000)) is None
    assert error_of(change(bench, RemoveVoter(0, key(2), 1000), token=78)) is ErrorCode.REQUEST_TIMED_OUT
    bench.ask(bench.fetch(2, 4))
    assert error_of(change(bench, RemoveVoter(0, key(2), 1000), token=79)) is ErrorCode.NONE


def test_a_leader_changes_nothing_before_it_has_committed_in_its_epoch() -> None:
    """The flaw of 2015 in single-server changes: an older leader's change may still be under way."""
    bench = Bench(voters=voter_set(), log=log_of(formatted=voter_set(1, 2, 3)))
    bench.become_leader()
    assert error_of(change(bench, RemoveVoter(0, key(3), 1000))) is ErrorCode.REQUEST_TIMED_OUT


def test_configured_voters_cannot_be_changed() -> None:
    """kraft.version 0."""
    bench = Bench()
    bench.become_leader()
    bench.ask(bench.fetch(2, 1))
    assert error_of(change(bench, RemoveVoter(0, key(3), 1000))) is ErrorCode.UNSUPPORTED_VERSION


def test_who_is_not_there_is_not_removed() -> None:
    bench = leader()
    for absent in (key(9), voter(3, life=1).key):
        assert error_of(change(bench, RemoveVoter(0, absent, 1000))) is ErrorCode.VOTER_NOT_FOUND
    alone = leader(1)
    assert error_of(change(alone, RemoveVoter(0, key(1), 1000))) is ErrorCode.VOTER_NOT_FOUND


def test_a_removed_leader_goes_once_its_removal_is_committed() -> None:
    """KIP-853, Raft thesis 4.2.2: until then it leads without counting itself."""
    bench = leader()
    assert change(bench, RemoveVoter(0, key(1), 1000)) is None
    bench.ask(bench.fetch(2, 4))
    assert bench.node.is_leader
    assert bench.node.high_watermark == 3
    ready = bench.step(bench.fetch(3, 4))
    assert bench.role is RoleName.RESIGNED
    assert [each.error for each in ready.replies if isinstance(each, VoterChangeReply)] == [ErrorCode.NONE]
    assert {each.to.id for each in ready.requests if isinstance(each.request, EndQuorumEpoch)} == {2, 3}
    for _ in range(40):
        bench.later(500)
    assert bench.role is RoleName.UNATTACHED


def test_a_change_that_is_not_committed_in_time_is_answered_so() -> None:
    bench = leader()
    change(bench, RemoveVoter(0, key(3), 1000))
    (reply,) = bench.later(1000).replies
    assert reply.error is ErrorCode.REQUEST_TIMED_OUT
    assert bench.node.voters == voter_set(1, 2)


def test_a_leader_that_steps_down_fails_waiting_requests() -> None:
    bench = leader()
    change(bench, RemoveVoter(0, key(3), 1000))
    replies = bench.become_follower(leader_id=2, epoch=9).replies
    assert replies[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_truncated_change_is_no_longer_in_force() -> None:
    """Raft thesis 4.1: a server falls back to the configuration before it."""
    bench = leader()
    change(bench, RemoveVoter(0, key(3), 1000))
    assert bench.node.voters == voter_set(1, 2)
    bench.become_follower(leader_id=2, epoch=9)
    hint = LeaderHint(9, 2, voter(2).endpoints)
    fetch = bench.sent_to(2, Fetch)
    bench.step(FetchReply(fetch.request_id, ErrorCode.NONE, hint, diverging=OffsetAndEpoch(3, 1)))
    assert bench.node.voters == voter_set(1, 2, 3)


def test_one_voter_becomes_two() -> None:
    """The quorum of one is no special case: from now on the second must have it too."""
    bench = leader(1)
    bench.ask(bench.fetch(2, 3))
    assert add(bench, AddVoter(0, voter(2), 1000)) is None
    assert bench.node.high_watermark == 3
    bench.step(bench.fetch(2, 4))
    assert bench.node.high_watermark == 4


# A controller that wants to vote.


def outside(node_id: int, *, life: int = 0, auto_join: bool = True) -> Bench:
    """A follower of leader 2 that has everything and is none of the voters 1, 2 and 3, or has another disk."""
    config = RaftConfig(auto_join=auto_join)
    local = voter(node_id, life=life)
    bench = Bench(node_id, voter_set(), leader().log, election=ElectionState(1), local=local, config=config)
    bench.become_follower(leader_id=2, epoch=2)
    fetched(bench)
    return bench


def fetched(bench: Bench) -> None:
    """There was nothing more to fetch."""
    fetch = bench.sent_to(2, Fetch)
    hint = LeaderHint(2, 2, voter(2).endpoints)
    bench.step(FetchReply(fetch.request_id, ErrorCode.NONE, hint, high_watermark=bench.log.end_offset))


def test_a_controller_adds_itself_when_it_has_caught_up() -> None:
    """`controller.quorum.auto.join.enable`; the answer comes at once, since only its own fetches commit it."""
    bench = outside(4)
    wish = bench.sent_to(2, AddVoter)
    assert (wish.voter, wish.ack_when_committed) == (voter(4), False)
    bench.step(VoterChangeReply(wish.request_id, ErrorCode.NONE, LeaderHint(-1)))
    fetched(bench)
    assert bench.sent_to(2, Fetch), "it asks no more often than it would look for another leader"
    bench.later(bench.node.config.fetch_timeout_ms - 1)


def test_a_controller_whose_disk_was_replaced_has_the_lost_one_removed_first() -> None:
    bench = outside(3, life=1)
    wish = bench.sent_to(2, RemoveVoter)
    assert wish.voter == key(3)


@pytest.mark.parametrize("node_id", [3, 4])
def test_a_controller_adds_itself_only_if_it_is_told_to(node_id: int) -> None:
    bench = outside(node_id, life=1, auto_join=False)
    assert bench.sent_to(2, Fetch)


def test_a_voter_does_not_add_itself() -> None:
    assert outside(3).sent_to(2, Fetch)


# A voter that moved.


def moved(node_id: int) -> tuple[Bench, VoterSet]:
    voters = voter_set(1, 2, 3)
    elsewhere = voter(node_id)._replace(endpoints=(Endpoint("CONTROLLER", "elsewhere", 1),))
    log = leader().log
    return Bench(node_id, voter_set(), log, election=ElectionState(1), local=elsewhere), voters


def test_a_voter_that_moved_tells_its_leader() -> None:
    """KIP-853: UpdateRaftVoter, until the voter set has the new address."""
    bench, _ = moved(1)
    bench.become_follower(leader_id=2, epoch=2)
    update = bench.sent_to(2, UpdateVoter)
    assert update.voter == bench.node.local
    hint = LeaderHint(2, 2, voter(2).endpoints)
    bench.step(VoterChangeReply(update.request_id, ErrorCode.NONE, hint))
    assert bench.sent_to(2, Fetch)


def test_a_leader_writes_down_where_a_voter_moved() -> None:
    """Answered at once: the voter asks one thing at a time, and must fetch on for the change to be committed."""
    bench = leader()
    elsewhere = voter(3)._replace(endpoints=(Endpoint("CONTROLLER", "elsewhere", 1),))
    assert error_of(change(bench, UpdateVoter(0, 1, elsewhere, 1000))) is ErrorCode.NONE
    assert bench.node.voters.by_id(3) == elsewhere
    stranger = voter(9)
    bench.ask(bench.fetch(2, 4))
    assert error_of(change(bench, UpdateVoter(0, 1, stranger, 1000))) is ErrorCode.VOTER_NOT_FOUND
    assert error_of(change(bench, UpdateVoter(0, 0, elsewhere, 1000))) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_leader_that_moved_writes_that_down_once_its_epoch_is_committed() -> None:
    """Nobody else knows. One change at a time, as for all others."""
    bench, _ = moved(1)
    bench.become_leader()
    assert bench.node.voters.by_id(1) == voter(1), "nothing of its epoch is committed yet"
    end = bench.log.end_offset
    bench.ask(bench.fetch(2, end))
    bench.later(0)
    assert bench.node.voters.by_id(1) == bench.node.local
    assert bench.log.end_offset == end + 1
    bench.ask(bench.fetch(2, end + 1))
    bench.later(10)
    assert bench.log.end_offset == end + 1, "once is enough"


def test_no_two_voters_share_an_id() -> None:
    with pytest.raises(ValueError, match="no duplicates"):
        VoterSet.of([voter(1), voter(1, life=1)])


# A voter whose disk was lost.


def test_what_a_wiped_voter_fetches_commits_nothing() -> None:
    """KIP-853: the set names the lost disk, and a new one under the same id is an observer."""
    bench = leader()
    bench.propose("a")
    end, before = bench.log.end_offset, bench.node.high_watermark
    bench.ask(bench.fetch(3, end)._replace(replica=voter(3, life=1).key))
    assert bench.node.high_watermark == before
    bench.ask(bench.fetch(3, end))
    assert bench.node.high_watermark == end


def test_a_wiped_voter_does_not_answer_for_the_lost_one() -> None:
    """It may have voted already, and had what it has no more."""
    bench = Bench(1, voter_set(), leader().log, election=ElectionState(1), local=voter(1, life=1))
    asked = Vote(0, 9, key(2), key(1), OffsetAndEpoch(99, 8))
    reply = bench.ask(asked)
    assert isinstance(reply, VoteReply)
    assert (reply.error, reply.granted) == (ErrorCode.INVALID_VOTER_KEY, False)


def test_a_wiped_voter_stands_in_no_election() -> None:
    bench = Bench(1, voter_set(), leader().log, election=ElectionState(1), local=voter(1, life=1))
    for _ in range(100):
        bench.later(100)
        assert bench.role in (RoleName.UNATTACHED, RoleName.FOLLOWER)
        assert not bench.sent(Vote)
