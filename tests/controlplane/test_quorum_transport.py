"""Quorums joined by frames: elections, replication, snapshots and changes of voters through Kafka's own requests."""

import errno
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.controlplane.quorum_bench import ALONE, Bench, setting
from tests.controlplane.quorum_network import LISTENER, Quorums, dispatched, voter

from penstock.base.errors import ErrorCode
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.promise import Promise
from penstock.controlplane.quorum_transport import PeerTransport
from penstock.controlplane.quorum_wire import Refused
from penstock.raft.config import RaftConfig
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    Fetch,
    FetchReply,
    LeaderHint,
    Message,
    RemoveVoter,
    RequestFailed,
    Vote,
    VoteReply,
)
from penstock.raft.ready import Outbound
from penstock.raft.voters import Endpoint, Peer, ReplicaKey
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api
from penstock.wire.peers import Address, PeerFailed
from penstock.wire.request import Request, through_kio


def test_followers_have_what_the_leader_commits_and_know_where_it_is() -> None:
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    for name in "abc":
        leader.propose(setting(name))
    quorums.settle()
    assert quorums.check_alike() == dict.fromkeys("abc", "1")
    leader_id = quorums.id_of(leader)
    assert leader.quorum.leader_address is None
    for each in quorums.others(leader):
        quorum = quorums.benches[each].quorum
        assert (quorum.leader_id, quorum.leader_address) == (leader_id, quorums.address(leader_id))


def test_a_vote_is_not_asked_for_behind_a_fetch_that_waits() -> None:
    quorums = Quorums()
    quorums.wait_for_leader()
    quorums.settle()
    purposes: dict[str, set[Api]] = {}
    for _, purpose, request in quorums.network.asked:
        purposes.setdefault(purpose, set()).add(request.api)
    assert purposes == {"raft-fetch": {Api.FETCH}, "raft": {Api.VOTE, Api.BEGIN_QUORUM_EPOCH}}


def test_another_leads_soon_after_a_leader_was_killed() -> None:
    """Its port refuses: nobody waits for `controller.quorum.fetch.timeout.ms`."""
    quorums = Quorums()
    old = quorums.wait_for_leader()
    old.propose(setting("kept"))
    quorums.settle()
    old_id, epoch = quorums.id_of(old), old.quorum.epoch
    quorums.kill(old_id)
    began = quorums.world.now_ms()
    new = quorums.wait_for_leader()
    assert quorums.world.now_ms() - began < 1000
    assert new.quorum.epoch > epoch
    new.propose(setting("new"))
    quorums.start(old_id)
    quorums.settle()
    assert quorums.check_alike() == {"kept": "1", "new": "1"}
    assert quorums.benches[old_id].quorum.leader_id == quorums.id_of(new)


def test_a_leader_that_is_cut_off_loses_what_only_it_had() -> None:
    """Raft 5.3: the follower truncates where a diverging epoch says."""
    quorums = Quorums()
    old = quorums.wait_for_leader()
    old.propose(setting("kept"))
    quorums.settle()
    quorums.network.cut.add(quorums.address(quorums.id_of(old)))
    old.propose(setting("lost"))
    quorums.world.run_until(lambda: quorums.leader is not old)
    new = quorums.wait_for_leader()
    new.propose(setting("new"))
    quorums.settle()
    quorums.network.cut.clear()
    quorums.settle()
    assert quorums.check_alike() == {"kept": "1", "new": "1"}


def test_a_follower_that_was_away_too_long_fetches_a_snapshot() -> None:
    """KIP-630, in pieces that are smaller than the snapshot."""
    quorums = Quorums()
    small = replace(RaftConfig(), snapshot_bytes_max=500)
    quorums.settings = replace(
        quorums.settings, raft=small, segment_bytes=2000, snapshot_bytes=1000, retention_bytes=3000
    )
    for node_id in list(quorums.benches):
        quorums.kill(node_id)
        quorums.start(node_id)
    leader = quorums.wait_for_leader()
    away = quorums.others(leader)[0]
    quorums.kill(away)
    for number in range(60):
        leader.propose(setting(f"s{number % 9}", f"{number}{'x' * 100}"))
        quorums.world.advance(100)
    assert leader.quorum.start_offset > 0
    quorums.network.asked.clear()
    behind = quorums.start(away)
    quorums.settle()
    assert [each[0] for each in behind.hearer.heard].count("loaded") == 2
    assert behind.quorum.start_offset > 0
    assert len(quorums.check_alike()) == 9
    pieces = [request for _, _, request in quorums.network.asked if request.api is Api.FETCH_SNAPSHOT]
    assert len(pieces) > 1


def test_a_node_of_another_cluster_is_kept_out(caplog: pytest.LogCaptureFixture) -> None:
    quorums = Quorums((1, 2))
    leader = quorums.wait_for_leader()
    quorums.settle()
    epoch = leader.quorum.epoch
    voters = [*quorums.settings.voters, voter(3)._replace(key=ReplicaKey(3))]
    with caplog.at_level(logging.WARNING):
        strange = quorums.start(
            3,
            replace(quorums.settings, voters=type(quorums.settings.voters).of(voters)),
            cluster_id="another-cluster-000000",
        )
        quorums.world.advance(20_000)
    assert strange.quorum.leader_id == -1
    assert (leader.quorum.epoch, leader.quorum.is_leader) == (epoch, True)
    complaints = [each for each in caplog.messages if "it belongs to another cluster" in each]
    assert len(complaints) == 2, "once for each that it asked"


def test_a_leader_that_stops_hands_over_and_leaves_nobody_waiting() -> None:
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    quorums.settle()
    done: list[int] = []
    began = quorums.world.now_ms()
    leader.quorum.stop(lambda: done.append(quorums.world.now_ms()))
    quorums.world.run_until(lambda: bool(done))
    assert done[0] - began < 1000
    key = ReplicaKey(9)
    answer = leader.quorum.receive(Vote(0, 99, key, ReplicaKey(1), OffsetAndEpoch(0, 0)))
    assert isinstance(answer.value, VoteReply)
    assert (answer.value.error, answer.value.granted) == (ErrorCode.BROKER_NOT_AVAILABLE, False)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_requests_fail_when_the_quorums_disk_fails(operation: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    bench = Bench(disk).start()
    quorum, epoch = bench.quorum, bench.quorum.epoch
    waiting = quorum.receive(
        Fetch(0, ReplicaKey(7), epoch, quorum.end_offset, epoch, quorum.high_watermark, 60_000)
    )
    change = quorum.receive(RemoveVoter(0, ReplicaKey(8), 60_000))
    bench.world.advance(50)
    assert (waiting.is_settled, change.value.error) == (False, ErrorCode.VOTER_NOT_FOUND)
    disk.fail(operation, path="*quorum-state*", error=errno.EIO)  # type: ignore[arg-type]
    vote = quorum.receive(Vote(0, epoch + 5, ReplicaKey(7), ReplicaKey(1), OffsetAndEpoch(99, epoch)))
    bench.world.advance(50)
    assert bench.hearer.failure is not None
    for answer in (waiting, vote):
        assert answer.value.error is ErrorCode.BROKER_NOT_AVAILABLE, "nothing is promised that is not on disk"


# Voters.


def add_voter(node_id: int, host: str | None = None) -> Request[Any]:
    key, endpoints, _ = voter(node_id)

    def build(make: Any) -> Any:
        return make.AddRaftVoterRequest(
            cluster_id=None,
            timeout=timedelta(seconds=5),
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=tuple(
                make.Listener(name=each.listener, host=host or each.host, port=each.port)
                for each in endpoints
            ),
            ack_when_committed=True,
        )

    return through_kio(Api.ADD_RAFT_VOTER, build)


def remove_voter(node_id: int) -> Request[Any]:
    directory = voter(node_id).key.directory_id

    def build(make: Any) -> Any:
        return make.RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory)

    return through_kio(Api.REMOVE_RAFT_VOTER, build)


def asked(quorums: Quorums, broker: int, request: Request[Any]) -> Any:
    answer = dispatched(quorums.brokers[broker], request)
    quorums.settle()
    return answer.value


def test_a_voter_is_added_and_removed_through_any_broker() -> None:
    """KIP-853: what a broker is asked it passes on to the active controller."""
    quorums = Quorums((1,), ALONE)
    quorums.wait_for_leader().propose(setting("a"))
    joining = replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints)
    quorums.start(2, joining)
    quorums.start(3, joining)
    quorums.settle()
    assert quorums.check_alike() == {"a": "1"}
    assert int(asked(quorums, 3, add_voter(2)).error_code) == ErrorCode.NONE
    assert int(asked(quorums, 3, add_voter(3)).error_code) == ErrorCode.NONE
    assert int(asked(quorums, 2, add_voter(3)).error_code) == ErrorCode.DUPLICATE_VOTER
    for bench in quorums.benches.values():
        assert [each.key.id for each in bench.quorum.voters] == [1, 2, 3]
    assert int(asked(quorums, 2, remove_voter(3)).error_code) == ErrorCode.NONE
    assert int(asked(quorums, 2, remove_voter(3)).error_code) == ErrorCode.VOTER_NOT_FOUND
    for bench in quorums.benches.values():
        assert [each.key.id for each in bench.quorum.voters] == [1, 2]


def test_a_voter_that_comes_back_elsewhere_tells_the_leader() -> None:
    """KIP-853's UpdateRaftVoter."""
    quorums = Quorums((1,), ALONE)
    quorums.wait_for_leader()
    joining = replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints)
    quorums.start(2, joining)
    quorums.settle()
    dispatchers = quorums.network.dispatchers
    dispatchers[Address("elsewhere", 9093)] = dispatchers[quorums.address(2)]
    assert int(asked(quorums, 1, add_voter(2, "elsewhere")).error_code) == ErrorCode.NONE
    quorums.settle()
    assert [each.endpoints for each in quorums.benches[1].quorum.voters] == [
        (Endpoint(LISTENER, "n1", 9093),),
        (Endpoint(LISTENER, "n2", 9093),),
    ]
    assert Api.UPDATE_RAFT_VOTER in {request.api for _, _, request in quorums.network.asked}


def test_a_voter_that_does_not_answer_at_its_address_is_not_added() -> None:
    quorums = Quorums((1,), ALONE)
    quorums.wait_for_leader()
    quorums.start(2, replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints))
    quorums.settle()
    refused = asked(quorums, 1, add_voter(2, "nowhere"))
    assert int(refused.error_code) == ErrorCode.REQUEST_TIMED_OUT
    assert refused.error_message.endswith("does not respond at nowhere:9093")
    assert [each.key.id for each in quorums.benches[1].quorum.voters] == [1]


def describe_quorum() -> Request[Any]:
    def build(make: Any) -> Any:
        partitions = (make.PartitionData(partition_index=0),)
        topics = (make.TopicData(topic_name=METADATA_TOPIC, partitions=partitions),)
        return make.DescribeQuorumRequest(topics=topics)

    return through_kio(Api.DESCRIBE_QUORUM, build)


def test_any_broker_describes_the_quorum_and_of_the_controllers_the_leader() -> None:
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    quorums.settle()
    for node_id in quorums.benches:
        reply = asked(quorums, node_id, describe_quorum())
        (partition,) = reply.topics[0].partitions
        assert partition.leader_id == quorums.id_of(leader)
        assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
        assert {each.log_end_offset for each in partition.current_voters} == {leader.quorum.end_offset}
    for node_id in quorums.benches:
        at = quorums.network.dispatchers[quorums.address(node_id)]
        answer = dispatched(at, describe_quorum())
        quorums.world.run_until(lambda answer=answer: answer.is_settled)
        leads = quorums.benches[node_id] is leader
        assert int(answer.value.error_code) == (ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert [each.error_message for topic in answer.value.topics for each in topic.partitions] == (
            [None] if leads else []
        )


def test_a_controller_without_a_majority_describes_the_quorum_and_says_that_it_may_be_deposed() -> None:
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    quorums.settle()
    leader_id = quorums.id_of(leader)
    for other in quorums.others(leader):
        quorums.kill(other)
    began_ms = quorums.world.now_ms()
    answer = dispatched(quorums.network.dispatchers[quorums.address(leader_id)], describe_quorum())
    quorums.world.run_until(lambda: answer.is_settled)
    assert quorums.world.now_ms() - began_ms <= 1000
    (partition,) = answer.value.topics[0].partitions
    assert (int(partition.error_code), partition.leader_id) == (ErrorCode.NONE, leader_id)
    assert "could not confirm" in partition.error_message


def test_a_broker_whose_controller_is_gone_says_so() -> None:
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    quorums.settle()
    other = quorums.others(leader)[0]
    quorums.kill(quorums.id_of(leader))
    answer = dispatched(quorums.brokers[other], describe_quorum())
    quorums.world.run_until(lambda: answer.is_settled)
    assert int(answer.value.error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "refused the connection" in answer.value.error_message


# The transport alone.


class OnePeer:
    """Answers as it is told, in the same call."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Address, float]] = []

    def ask(
        self, to: Address, request: Request[Any], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[Any]:
        self.asked.append((to, timeout_ms))
        later: Promise[Any] = Promise()
        if isinstance(self.answer, PeerFailed):
            later.fail(self.answer)
        else:
            later.resolve(self.answer)
        return later


FETCH = Fetch(5, ReplicaKey(1), 2, 0, 0, wait_ms_max=500)
PEER = Peer(2, (Endpoint("OTHER", "a", 1), Endpoint(LISTENER, "b", 2)))
REPLY = FetchReply(5, ErrorCode.NONE, LeaderHint(2, 2))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (REPLY, REPLY),
        (Refused(ErrorCode.INCONSISTENT_CLUSTER_ID), RequestFailed(5)),
        (PeerFailed("silence"), RequestFailed(5)),
        (PeerFailed("nobody", refused=True), RequestFailed(5, refused=True)),
    ],
    ids=["reply", "refusal", "failure", "nobody there"],
)
def test_each_request_is_answered_once(answer: Any, told: Message) -> None:
    peers = OnePeer(answer)
    heard: list[Message] = []
    PeerTransport(peers, "c", RaftConfig(), LISTENER)(Outbound(PEER, FETCH), heard.append)
    assert heard == [told]
    assert peers.asked == [(Address("b", 2), 2500)], "a fetch may wait at the leader, and then take its time"


def test_a_peer_that_listens_nowhere_is_not_asked() -> None:
    peers = OnePeer(REPLY)
    heard: list[Message] = []
    PeerTransport(peers, "c", RaftConfig(), LISTENER)(Outbound(Peer(2, ()), FETCH), heard.append)
    assert (heard, peers.asked) == ([RequestFailed(5)], [])
