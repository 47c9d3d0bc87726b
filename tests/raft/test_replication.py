"""Replication by pull: fetches, divergence and the high watermark (Raft 5.3, 5.4.2; KIP-595, KIP-1166)."""

import pytest
from tests.raft.bench import Bench, key, log_of, voter_set
from tests.raft.memlog import Record
from tests.raft.sim import voter

from penstock.base.errors import ErrorCode
from penstock.raft.election import ElectionState
from penstock.raft.errors import LostCommit, Misuse, NotLeader
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import Fetch, FetchReply, LeaderHint, LogSlice, RequestFailed
from penstock.raft.ready import Data
from penstock.raft.voters import ReplicaKey


def leader(*epochs: int, voters: int = 3) -> Bench:
    """A leader whose log has records of these epochs and then its own first entry."""
    last = max(epochs, default=0)
    bench = Bench(voters=voter_set(*range(1, voters + 1)), log=log_of(*epochs), election=ElectionState(last))
    bench.become_prospective()
    bench.grant(*range(2, voters // 2 + 2))
    bench.grant(*range(2, voters // 2 + 2))
    assert bench.node.is_leader
    return bench


def fetched(bench: Bench, request: Fetch) -> FetchReply:
    reply = bench.ask(request)
    assert isinstance(reply, FetchReply)
    return reply


# The leader answers (5.3).


def test_a_fetch_that_fits_gets_what_follows() -> None:
    """KIP-595: the core names the offsets, the driver reads the bytes."""
    bench = leader(1, 1, 3)
    reply = fetched(bench, bench.fetch(2, 2))
    assert reply.error is ErrorCode.NONE
    assert reply.records == LogSlice(2, 4, 1 << 20)
    assert reply.leader == LeaderHint(4, 1, voter(1).endpoints)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (6, 3, OffsetAndEpoch(5, 3)),  # longer than our epoch 3
        (4, 2, OffsetAndEpoch(3, 1)),  # an epoch that we do not have
        (9, 1, OffsetAndEpoch(3, 1)),
    ],
)
def test_a_fetch_that_does_not_fit_gets_where_the_logs_part(
    offset: int, epoch: int, diverging: OffsetAndEpoch
) -> None:
    """Raft 5.3, KIP-595: the largest epoch that is not later than the follower's, and its end."""
    bench = leader(1, 1, 1, 3, 3)
    reply = fetched(bench, bench.fetch(2, offset, last_epoch=epoch))
    assert (reply.diverging, reply.records) == (diverging, None)
    assert bench.node.describe(bench.now_ms).voters[1].log_end_offset == -1


def test_a_fetch_waits_for_news_and_not_longer_than_it_says() -> None:
    bench = leader()
    assert not bench.step(bench.fetch(2, 1, wait_ms=500)._replace(request_id=50)).replies
    (reply,) = bench.propose("a").replies
    assert isinstance(reply, FetchReply)
    assert (reply.request_id, reply.records) == (50, LogSlice(1, 2, 1 << 20))

    bench.step(bench.fetch(2, 2, wait_ms=500, high_watermark=2)._replace(request_id=51))
    assert not bench.later(499).replies
    (reply,) = bench.later(1).replies
    assert isinstance(reply, FetchReply)
    assert (reply.request_id, reply.records, reply.error) == (51, None, ErrorCode.NONE)


def test_a_fetch_does_not_wait_for_a_high_watermark_that_moved() -> None:
    """KIP-1166: the follower says what it knows, and the leader what it does not."""
    bench = leader()
    bench.propose("a")
    bench.step(bench.fetch(3, 2, wait_ms=500, high_watermark=0)._replace(request_id=60))
    reply = fetched(bench, bench.fetch(2, 2, wait_ms=500, high_watermark=0))
    assert reply.high_watermark == 2


def test_waiting_fetches_learn_of_the_next_leader() -> None:
    bench = leader()
    bench.step(bench.fetch(2, 1, wait_ms=500)._replace(request_id=70))
    ready = bench.become_follower(leader_id=3, epoch=9)
    reply = next(each for each in ready.replies if each.request_id == 70)
    assert reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (reply.leader.epoch, reply.leader.leader_id) == (9, 3)


def test_only_the_leader_of_the_epoch_answers_fetches() -> None:
    bench = leader()
    assert fetched(bench, bench.fetch(2, 1, epoch=0, last_epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert fetched(bench, bench.fetch(2, 1, epoch=8)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    bench.become_follower(leader_id=3, epoch=9)
    assert fetched(bench, bench.fetch(2, 1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    "change",
    [{"fetch_offset": -1}, {"last_fetched_epoch": -1}, {"last_fetched_epoch": 9}, {"replica": key(1)}],
)
def test_a_fetch_that_cannot_be_meant_is_refused(change: dict[str, int]) -> None:
    bench = leader()
    request = bench.fetch(2, 1)._replace(**change)  # type: ignore[arg-type]
    assert fetched(bench, request).error is ErrorCode.INVALID_REQUEST


# The high watermark (5.3, 5.4.2).


def test_an_entry_is_committed_once_a_majority_has_it() -> None:
    """Raft 5.3: the leader counts itself, and of five needs two more."""
    bench = leader(voters=5)
    bench.propose("a", "b")
    bench.ask(bench.fetch(2, 3))
    assert bench.node.high_watermark == 0
    reply = fetched(bench, bench.fetch(3, 2))
    assert reply.high_watermark == 2
    bench.ask(bench.fetch(4, 3))
    assert bench.node.high_watermark == 3


def test_entries_of_older_epochs_are_committed_along_with_one_of_ours() -> None:
    """Raft 5.4.2: only log entries from the leader's current term are committed by counting replicas."""
    bench = leader(1, 1, 2, 2)
    for offset in (1, 4):
        assert fetched(bench, bench.fetch(2, offset)).high_watermark == -1
    assert fetched(bench, bench.fetch(2, 5)).high_watermark == 5


def test_the_leader_counts_for_itself_only_what_it_has_flushed() -> None:
    """DESIGN 6: what is promised is on disk first."""
    bench = leader()
    bench.auto_flush = False
    bench.propose("a")
    bench.step(bench.fetch(2, 2))
    assert bench.node.high_watermark == 1
    assert bench.flush().high_watermark == 2


def test_a_majority_without_the_leader_commits() -> None:
    """Raft thesis 10.2.1: the leader's own disk may be the slowest."""
    bench = leader()
    bench.auto_flush = False
    bench.propose("a")
    bench.step(bench.fetch(2, 2))
    assert bench.step(bench.fetch(3, 2)).high_watermark == 2


def test_observers_do_not_count() -> None:
    bench = leader()
    for observer in (7, 8, 9):
        bench.ask(bench.fetch(observer, 1))
    assert bench.node.high_watermark == 0


def test_a_replaced_disk_does_not_count_for_the_lost_one() -> None:
    """KIP-853: the same id in another directory is an observer until the voters are changed."""
    bench = Bench(log=log_of(formatted=voter_set(1, 2, 3)))
    bench.become_leader()
    replaced = ReplicaKey(2, voter(2, life=1).key.directory_id)
    bench.ask(bench.fetch(2, 3)._replace(replica=replaced))
    assert bench.node.high_watermark == 0
    assert [each.key for each in bench.node.describe(bench.now_ms).observers] == [replaced]


def test_configured_voters_are_known_by_id_alone() -> None:
    """kraft.version 0: `controller.quorum.voters` names no directories."""
    configured = voter_set()
    for each in (1, 2, 3):
        configured = configured.with_voter(voter(each)._replace(key=ReplicaKey(each)))
    bench = Bench(voters=configured)
    bench.become_leader()
    bench.ask(bench.fetch(2, 1))
    assert bench.node.high_watermark == 1


def test_the_high_watermark_does_not_go_back_with_a_late_fetch() -> None:
    bench = leader()
    bench.propose("a")
    bench.ask(bench.fetch(2, 2))
    assert fetched(bench, bench.fetch(2, 0)).high_watermark == 2
    assert bench.node.high_watermark == 2


def test_a_leader_proposes_only_in_its_epoch() -> None:
    bench = leader()
    assert bench.node.propose(["a", "b"], epoch=1, now_ms=bench.now_ms) == 2
    (append,) = bench.node.ready().appends
    assert append.entry == Data(("a", "b"))
    with pytest.raises(NotLeader):
        bench.node.propose(["c"], epoch=2, now_ms=bench.now_ms)
    with pytest.raises(NotLeader):
        Bench().node.propose(["c"], epoch=0, now_ms=0)


# The follower (5.3).


def follower(*epochs: int, epoch: int = 5, auto_flush: bool = True) -> tuple[Bench, Fetch]:
    bench = Bench(log=log_of(*epochs), auto_flush=auto_flush, election=ElectionState(max(epochs, default=0)))
    bench.become_follower(leader_id=2, epoch=epoch)
    return bench, bench.sent_to(2, Fetch)


def answer(request: Fetch, **fields: object) -> FetchReply:
    hint = LeaderHint(request.epoch, 2, voter(2).endpoints)
    return FetchReply(request.request_id, ErrorCode.NONE, hint)._replace(**fields)  # type: ignore[arg-type]


def test_a_follower_fetches_from_its_logs_end() -> None:
    _, request = follower(1, 1, 3)
    assert (request.fetch_offset, request.last_fetched_epoch, request.epoch) == (3, 3, 5)


def test_a_follower_asks_on_only_when_what_came_is_flushed() -> None:
    """DESIGN 6: the fetch position covers what is on disk and nothing else."""
    bench, request = follower(1, auto_flush=False)
    ready = bench.step(answer(request, records=(Record(5, "x"),), high_watermark=2))
    assert ready.fetched is not None
    assert (ready.requests, ready.high_watermark) == ([], None)
    ready = bench.flush()
    assert bench.sent_to(2, Fetch).fetch_offset == 2
    assert ready.high_watermark == 2


def test_a_follower_commits_no_further_than_its_log() -> None:
    bench, request = follower(1)
    bench.step(answer(request, records=(Record(5, "x"),), high_watermark=40))
    assert bench.node.high_watermark == 2


def test_a_follower_truncates_where_the_leader_says_that_logs_part() -> None:
    """Raft 5.3: conflicting entries are overwritten with the leader's."""
    bench, request = follower(1, 1, 1, 2, 2)
    ready = bench.step(answer(request, diverging=OffsetAndEpoch(4, 1)))
    assert ready.truncate_to == 3
    again = bench.sent_to(2, Fetch)
    assert (again.fetch_offset, again.last_fetched_epoch) == (3, 1)


def test_a_follower_does_not_give_up_what_is_committed() -> None:
    """Raft 5.4: it cannot happen unless a disk lied; then stopping is better than forgetting."""
    bench, request = follower(1, 1, 1)
    bench.step(answer(request, high_watermark=3))
    with pytest.raises(LostCommit, match=r"truncation to 1, below the high watermark 3"):
        bench.step(answer(bench.sent_to(2, Fetch), diverging=OffsetAndEpoch(1, 1)))


def test_records_that_cannot_be_appended_are_fetched_again() -> None:
    bench, request = follower(1, auto_flush=False)
    bench.node.step(answer(request, records=b"damaged"), bench.now_ms)
    assert bench.node.ready().fetched is not None
    bench.node.append_failed(bench.now_ms)
    bench._carry_out()
    assert not bench.ready.requests
    bench.later(20)
    assert bench.sent_to(2, Fetch).fetch_offset == 1


def test_a_fetch_that_failed_is_sent_again_after_a_pause() -> None:
    bench, request = follower()
    bench.step(RequestFailed(request.request_id))
    assert not bench.later(19).requests
    bench.later(1)
    assert bench.sent_to(2, Fetch)


def test_an_answer_counts_once_and_only_in_the_role_that_asked() -> None:
    bench, request = follower(1)
    late = answer(request, records=(Record(5, "x"),))
    bench.step(late)
    bench.step(late)
    assert bench.log.end_offset == 2
    bench, request = follower(1)
    bench.become_follower(leader_id=3, epoch=6)
    bench.step(answer(request, records=(Record(5, "x"),)))
    assert bench.log.end_offset == 1


# The driver's turn.


def test_the_log_is_changed_before_the_next_call() -> None:
    bench, request = follower(1, 1)
    bench.node.step(answer(request, diverging=OffsetAndEpoch(1, 1)), bench.now_ms)
    with pytest.raises(Misuse, match="carry out the last ready"):
        bench.node.tick(bench.now_ms)


def test_no_more_is_flushed_than_there_is() -> None:
    bench, _ = follower(1, 1)
    with pytest.raises(Misuse, match="beyond"):
        bench.node.flushed(3, bench.now_ms)


def test_between_its_deadlines_a_node_is_idle() -> None:
    """`next_deadline` is neither late nor busy: a tick before it brings nothing, one at it brings something or
    names a later one."""
    observer = Bench(node_id=9)
    observer.become_follower(leader_id=2, epoch=1)
    for bench in (leader(), follower(1)[0], Bench(), Bench(node_id=9), observer):
        for _ in range(50):
            deadline = bench.node.next_deadline()
            assert deadline is not None
            assert deadline > bench.now_ms
            assert bench.later(deadline - bench.now_ms - 1).is_empty
            bench.later(1)


def test_of_two_fetches_in_flight_only_the_last_is_appended() -> None:
    """An observer that looks for the leader elsewhere while it fails to reply may have two, from the same offset."""
    bench = Bench(node_id=9, bootstrap=voter(3).endpoints)
    bench.become_follower(leader_id=2, epoch=1)
    bench.step(RequestFailed(bench.sent_to(2, Fetch).request_id))
    [elsewhere] = bench.sent(Fetch)
    bench.later(bench.node.config.retry_backoff_ms)
    last = bench.sent_to(2, Fetch)
    hint = LeaderHint(1, 2, voter(2).endpoints)
    for request in (elsewhere, last):
        bench.step(FetchReply(request.request_id, ErrorCode.NONE, hint, 0, 0, records=(Record(1, "a"),)))
    assert bench.log.end_offset == 1


# What DescribeQuorum shows.


def test_describe_shows_who_is_how_far() -> None:
    """KIP-836: log end, last fetch and last caught-up time of every replica."""
    bench = leader()
    bench.later(100)
    bench.ask(bench.fetch(2, 1))
    bench.propose("a", "b")
    bench.later(100)
    bench.ask(bench.fetch(2, 2))
    bench.ask(bench.fetch(9, 3))
    quorum = bench.node.describe(bench.now_ms)
    assert (quorum.leader_id, quorum.epoch, quorum.high_watermark) == (1, 1, 2)
    rows = [
        (each.key.id, each.log_end_offset, each.last_fetch_ms, each.last_caught_up_ms)
        for each in quorum.voters
    ]
    now = bench.now_ms
    assert rows == [(1, 3, now, now), (2, 2, now, now - 100), (3, -1, -1, -1)]
    assert [(each.key.id, each.log_end_offset) for each in quorum.observers] == [(9, 3)]
    assert quorum.voters[1].endpoints == voter(2).endpoints


def test_observers_that_left_are_no_longer_described() -> None:
    bench = Bench(voters=voter_set(1))
    bench.ask(bench.fetch(9, 1))
    assert bench.node.describe(bench.now_ms + 299_999).observers
    assert not bench.node.describe(bench.now_ms + 300_000).observers
