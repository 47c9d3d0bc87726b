"""The settings of the quorum, each in a test in which it changes what happens: from a node's own settings to what
controllers ask each other, and when."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.controlplane.quorum_bench import ALONE, setting
from tests.controlplane.quorum_network import Quorums, voter

from penstock.controlplane.quorum_settings import QuorumSettings
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.server.config import config_from
from penstock.server.control_plane import quorum_settings_of
from penstock.wire import Api

PREFIX = "controller.quorum."

SHOWN = {
    f"{PREFIX}{name}": f"tests/controlplane/test_quorum_settings.py::{test}"
    for name, test in (
        ("auto.join.enable", "test_controllers_add_themselves_where_they_are_told_to"),
        ("election.timeout.ms", "test_the_first_election_waits_for_its_timeout"),
        ("fetch.timeout.ms", "test_a_leader_that_is_cut_off_is_given_up_after_the_fetch_timeout"),
        ("election.backoff.max.ms", "test_the_last_successor_waits_as_long_as_it_is_told"),
        ("request.timeout.ms", "test_a_voter_that_is_silent_is_asked_again_after_the_request_timeout"),
        ("retry.backoff.ms", "test_a_voter_that_refuses_is_asked_again_after_the_backoff"),
        ("fetch.max.bytes", "test_a_follower_asks_for_no_more_than_it_may"),
        ("fetch.snapshot.max.bytes", "test_a_snapshot_comes_in_pieces_of_the_size_that_is_set"),
    )
}
"""By setting, its test; `test_settings` looks whether all are there."""


def told(**values: int | str) -> QuorumSettings:
    """What a node with these settings runs its quorum by; three voters."""
    own = {PREFIX + name.replace("_", "."): str(value) for name, value in values.items()}
    raft = quorum_settings_of(config_from("/data", own), 1).raft
    voters = VoterSet.of(Voter(ReplicaKey(each), voter(each).endpoints) for each in (1, 2, 3))
    return replace(ALONE, voters=voters, raft=raft)


def asked(quorums: Quorums, api: Api, node_id: int) -> int:
    """How often a node was asked for something."""
    to = quorums.address(node_id)
    return sum(each == to and request.api is api for each, _, request in quorums.network.asked)


def ms_until_leader(quorums: Quorums) -> int:
    began_ms = quorums.world.now_ms()
    quorums.wait_for_leader()
    return quorums.world.now_ms() - began_ms


@pytest.mark.parametrize(("timeout_ms", "low", "high"), [(1000, 1000, 2100), (200, 200, 500)])
def test_the_first_election_waits_for_its_timeout(timeout_ms: int, low: int, high: int) -> None:
    """Between one timeout and two, by chance, so that not all stand at once."""
    assert low <= ms_until_leader(Quorums(settings=told(election_timeout_ms=timeout_ms))) < high


@pytest.mark.parametrize("timeout_ms", [2000, 500])
def test_a_leader_that_is_cut_off_is_given_up_after_the_fetch_timeout(timeout_ms: int) -> None:
    """A follower counts from the last answer that it had, at most half a second ago."""
    quorums = Quorums(settings=told(fetch_timeout_ms=timeout_ms, election_timeout_ms=100))
    old = quorums.wait_for_leader()
    quorums.settle()
    began_ms, epoch = quorums.world.now_ms(), old.quorum.epoch
    quorums.network.cut.add(quorums.address(quorums.id_of(old)))
    rest = [quorums.benches[each] for each in quorums.others(old)]
    quorums.world.run_until(lambda: any(each.quorum.is_leader for each in rest))
    assert timeout_ms - 500 <= quorums.world.now_ms() - began_ms < timeout_ms + 500
    assert max(each.quorum.epoch for each in rest) > epoch


@pytest.mark.parametrize("backoff_ms", [1000, 100])
def test_the_last_successor_waits_as_long_as_it_is_told(backoff_ms: int) -> None:
    """A leader that stops names both others, which have the same log. Where the first does not hear of it, the second
    stands after half of the longest wait."""
    quorums = Quorums(settings=told(election_backoff_max_ms=backoff_ms, fetch_timeout_ms=60_000))
    old = quorums.wait_for_leader()
    quorums.settle()
    first, second = sorted(quorums.others(old))
    quorums.network.cut.add(quorums.address(first))
    began_ms = quorums.world.now_ms()
    votes = asked(quorums, Api.VOTE, first)
    old.quorum.stop(lambda: None)
    quorums.world.run_until(lambda: asked(quorums, Api.VOTE, first) > votes)
    assert backoff_ms // 2 <= quorums.world.now_ms() - began_ms < backoff_ms // 2 + 50
    assert quorums.benches[second].quorum.leader_id != second


@pytest.mark.parametrize("timeout_ms", [2000, 250])
def test_a_voter_that_is_silent_is_asked_again_after_the_request_timeout(timeout_ms: int) -> None:
    quorums = Quorums(settings=told(request_timeout_ms=timeout_ms))
    leader = quorums.wait_for_leader()
    quorums.settle()
    [silent, _] = quorums.others(leader)
    quorums.network.cut.add(quorums.address(silent))
    before = asked(quorums, Api.BEGIN_QUORUM_EPOCH, silent)
    quorums.world.advance(8000)
    again = asked(quorums, Api.BEGIN_QUORUM_EPOCH, silent) - before
    assert 8000 // max(timeout_ms, 1000) - 1 <= again <= 8000 // max(timeout_ms, 1000) + 1


@pytest.mark.parametrize("backoff_ms", [20, 500])
def test_a_voter_that_refuses_is_asked_again_after_the_backoff(backoff_ms: int) -> None:
    """Nobody listens where the other two are to be: in a round of pre-votes each of them is asked again and again."""
    quorums = Quorums(settings=told(retry_backoff_ms=backoff_ms))
    for each in (2, 3):
        quorums.kill(each)
    quorums.world.advance(10_000)
    assert (asked(quorums, Api.VOTE, 2) > 100) is (backoff_ms == 20)


@pytest.mark.parametrize(("bytes_max", "is_many"), [(1 << 20, False), (2000, True)])
def test_a_follower_asks_for_no_more_than_it_may(bytes_max: int, is_many: bool) -> None:
    quorums = Quorums(settings=told(fetch_max_bytes=bytes_max))
    leader = quorums.wait_for_leader()
    quorums.settle()
    [behind, _] = quorums.others(leader)
    quorums.kill(behind)
    for number in range(30):
        leader.commit(setting("much", str(number) * 1000))
    before = asked(quorums, Api.FETCH, quorums.id_of(leader))
    quorums.start(behind)
    quorums.world.advance(300)
    assert quorums.check_alike()["much"].startswith("29")
    assert (asked(quorums, Api.FETCH, quorums.id_of(leader)) - before > 15) is is_many


@pytest.mark.parametrize(("bytes_max", "is_many"), [(1 << 20, False), (1000, True)])
def test_a_snapshot_comes_in_pieces_of_the_size_that_is_set(bytes_max: int, is_many: bool) -> None:
    often = replace(
        told(fetch_snapshot_max_bytes=bytes_max),
        snapshot_bytes=3000,
        segment_bytes=1000,
        retention_bytes=1000,
    )
    quorums = Quorums(settings=often)
    leader = quorums.wait_for_leader()
    quorums.settle()
    [behind, _] = quorums.others(leader)
    quorums.kill(behind)
    for number in range(40):
        leader.commit(setting(f"much-{number}", "x" * 500))
    quorums.settle()
    quorums.disks[behind] = type(quorums.disks[behind])()
    quorums.start(behind)
    quorums.settle()
    assert len(quorums.check_alike()) == 40
    pieces = asked(quorums, Api.FETCH_SNAPSHOT, quorums.id_of(leader))
    assert pieces
    assert (pieces > 10) is is_many


@pytest.mark.parametrize("auto_join", [True, False])
def test_controllers_add_themselves_where_they_are_told_to(auto_join: bool) -> None:
    """Nobody has to be told, neither of a new node nor of one whose disk was replaced (KIP-853)."""
    quorums = Quorums((1,), ALONE)
    quorums.wait_for_leader().propose(setting("a"))
    raft = told(auto_join_enable=str(auto_join).lower()).raft
    joining = replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints, raft=raft)
    for node_id in (2, 3):
        quorums.start(node_id, joining)
    quorums.world.advance(15_000)
    wanted = (1, 2, 3) if auto_join else (1,)
    for bench in quorums.benches.values():
        assert [each.key for each in bench.quorum.voters] == [voter(each).key for each in wanted]
    if not auto_join:
        return
    quorums.kill(3)
    del quorums.disks[3]
    other = UUID(int=4711)
    quorums.start(3, joining, directory=other)
    quorums.world.advance(15_000)
    for bench in quorums.benches.values():
        assert [each.key for each in bench.quorum.voters][2] == ReplicaKey(3, other)
    assert quorums.check_alike() == {"a": "1"}
