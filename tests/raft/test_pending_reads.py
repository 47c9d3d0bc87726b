"""ReadIndex: a leader's committed end counts once a majority has confirmed that it still leads (Raft thesis 6.4)."""

from collections.abc import Callable

import pytest
from tests.planting import plant
from tests.raft.bench import Bench, voter_set
from tests.raft.checkers import Violation
from tests.raft.sim import CALM, Cluster
from tests.raft.test_replication import leader

from penstock.base.errors import ErrorCode
from penstock.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    LeaderHint,
    ReadIndex,
    ReadIndexReply,
    RequestFailed,
)
from penstock.raft.pending_reads import READ_INDEX_MS_MAX, PendingReads


def committed_leader(voters: int = 3) -> Bench:
    """A leader at high watermark 1, to which nothing is in flight."""
    bench = leader(voters=voters)
    for request in bench.sent(BeginQuorumEpoch):
        acknowledge(bench, request)
    for other in range(2, voters // 2 + 2):
        bench.ask(bench.fetch(other, 1))
    assert bench.node.high_watermark == 1
    return bench


def acknowledge(bench: Bench, request: BeginQuorumEpoch) -> list[ReadIndexReply]:
    hint = LeaderHint(bench.node.epoch, 1)
    bench.step(BeginQuorumEpochReply(request.request_id, ErrorCode.NONE, hint))
    return replies(bench)


def replies(bench: Bench) -> list[ReadIndexReply]:
    return [each for each in bench.ready.replies if isinstance(each, ReadIndexReply)]


def test_a_read_waits_for_a_majority() -> None:
    bench = committed_leader(voters=5)
    bench.step(ReadIndex(50))
    begins = bench.sent(BeginQuorumEpoch)
    assert len(begins) == 4
    assert replies(bench) == []
    assert acknowledge(bench, begins[0]) == []
    assert acknowledge(bench, begins[3]) == [
        ReadIndexReply(50, ErrorCode.NONE, bench.node.role.hint, high_watermark=1)
    ]
    assert acknowledge(bench, begins[1]) == []


def test_a_reply_to_an_earlier_request_confirms_nothing() -> None:
    """The voter may have voted for another leader after it replied."""
    bench = leader()
    bench.ask(bench.fetch(2, 1))
    bench.later(2000)
    early = bench.sent_to(2, BeginQuorumEpoch)
    bench.step(ReadIndex(50))
    assert bench.sent(BeginQuorumEpoch) == []
    assert acknowledge(bench, early) == []
    assert [each.error for each in acknowledge(bench, bench.sent_to(2, BeginQuorumEpoch))] == [ErrorCode.NONE]


def test_reads_share_requests_and_without_reads_there_are_none() -> None:
    bench = committed_leader()
    bench.step(ReadIndex(50))
    first, other = bench.sent(BeginQuorumEpoch)
    for number in range(51, 151):
        assert bench.step(ReadIndex(number)).requests == []
    assert [each.request_id for each in acknowledge(bench, first)] == [50]
    [second] = bench.sent(BeginQuorumEpoch)
    assert [each.request_id for each in acknowledge(bench, second)] == list(range(51, 151))
    acknowledge(bench, other)
    assert bench.sent(BeginQuorumEpoch) == []


def test_a_voter_of_a_later_epoch_ends_the_reads() -> None:
    bench = committed_leader()
    bench.step(ReadIndex(50))
    begin = bench.sent_to(3, BeginQuorumEpoch)
    hint = LeaderHint(bench.node.epoch + 1)
    bench.step(BeginQuorumEpochReply(begin.request_id, ErrorCode.FENCED_LEADER_EPOCH, hint))
    assert [(each.request_id, each.error) for each in replies(bench)] == [
        (50, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ]


def test_without_a_majority_a_read_fails_in_time() -> None:
    bench = committed_leader()
    bench.step(ReadIndex(50))
    assert bench.node.next_deadline() == bench.now_ms + READ_INDEX_MS_MAX
    bench.later(READ_INDEX_MS_MAX - 1)
    assert replies(bench) == []
    bench.later(1)
    assert [each.error for each in replies(bench)] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_request_that_failed_is_sent_again_while_reads_wait() -> None:
    bench = committed_leader()
    bench.step(ReadIndex(50))
    begins = bench.sent(BeginQuorumEpoch)
    for each in begins:
        bench.step(RequestFailed(each.request_id))
    bench.later(bench.node.config.retry_backoff_ms)
    again = bench.sent(BeginQuorumEpoch)
    assert len(again) == 2
    assert [each.error for each in acknowledge(bench, again[0])] == [ErrorCode.NONE]
    bench.step(RequestFailed(again[1].request_id))
    bench.later(bench.node.config.retry_backoff_ms)
    assert bench.sent(BeginQuorumEpoch) == []


def test_a_single_voter_replies_at_once() -> None:
    bench = Bench(voters=voter_set(1))
    reply = bench.ask(ReadIndex(0))
    assert isinstance(reply, ReadIndexReply)
    assert (reply.error, reply.high_watermark) == (ErrorCode.NONE, bench.log.end_offset)
    assert bench.ready.requests == []


def test_a_leader_without_a_commit_of_its_epoch_waits_for_one() -> None:
    """Raft thesis 6.4, step 1: its predecessor may have committed more than it knows of."""
    bench = leader(1, 1)
    for request in bench.sent(BeginQuorumEpoch):
        acknowledge(bench, request)
    bench.step(ReadIndex(50))
    for request in bench.sent(BeginQuorumEpoch):
        assert acknowledge(bench, request) == []
    bench.step(bench.fetch(2, 3))
    assert [(each.error, each.high_watermark) for each in replies(bench)] == [(ErrorCode.NONE, 3)]


def test_only_a_leader_reads() -> None:
    bench = Bench()
    bench.become_follower(leader_id=2, epoch=3)
    assert bench.ask(ReadIndex(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def read_at_a_deposed_leader(cluster: Cluster) -> Callable[[], int]:
    """Cut the leader off until another one has committed more, and read at the old one. Returns a count of the reads
    that succeeded."""
    cluster.run(1500)
    old = cluster.leader()
    assert old is not None
    others = [each for each in cluster.hosts if each != old.id]
    cluster.cut = {(old.id, each) for each in others} | {(each, old.id) for each in others}
    for _ in range(1000):
        cluster.run(1)
        new = cluster.leader()
        assert new is not None
        if new is not old and len(cluster.committed.records) > old.applied:
            break
    assert old.node is not None
    assert old.node.is_leader
    cluster.read(old)
    cluster.run(50)
    return lambda: cluster.reads.answered


def test_a_deposed_leader_does_not_reply_with_its_old_end() -> None:
    cluster = Cluster(seed=1, faults=CALM)
    answered = read_at_a_deposed_leader(cluster)
    assert answered() == 0
    cluster.cut.clear()
    cluster.settle()
    leader = cluster.leader()
    assert leader is not None
    cluster.read(leader)
    cluster.run(50)
    assert answered() == 1


def test_a_deposed_leader_that_asks_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, PendingReads._confirmed, lambda reads: reads._last_read)
    with pytest.raises(Violation, match="ReadsAreCurrent"):
        read_at_a_deposed_leader(Cluster(seed=1, faults=CALM))
