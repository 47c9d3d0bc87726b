"""What controllers are asked at their listeners: bad input, old versions, and what is served there at all."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import CLUSTER_ID, Cluster

from penstock.base.errors import ErrorCode as Code
from penstock.base.promise import Promise
from penstock.handlers.raft import METADATA_TOPIC_ID
from penstock.handlers.support.api_table import SERVED_BY_CONTROLLERS
from penstock.handlers.support.context import Session
from penstock.handlers.support.dispatch import CONTROLLER_RANGES, RANGES, Dispatcher
from penstock.metadata.acls import AclResourceType, Operation
from penstock.raft.describe import QuorumDescription
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    FetchReply,
    FetchSnapshotReply,
    LeaderHint,
    RemoveVoter,
    Reply,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from penstock.raft.voters import Endpoint, ReplicaKey, Voter
from penstock.wire import (
    CONTROLLER_APIS,
    Api,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    UnsupportedVersion,
    parse_response_header,
    request_frame,
)
from penstock.wire.fetch_client import FetchResponse, fetch_body, read_fetch_response

METADATA = "__cluster_metadata"
DIRECTORY = UUID(int=77)
HINT = LeaderHint(5, 2, (Endpoint("CONTROLLER", "a", 65_000),))


@pytest.fixture
def controller(cluster: Cluster) -> Cluster:
    """The same cluster, asked at the controllers' listener."""
    cluster.served = SERVED_BY_CONTROLLERS
    cluster.session = Session("127.0.0.1", 9093, "127.0.0.1:50000", "CONTROLLER")
    return cluster


def answering(cluster: Cluster, reply: Reply) -> None:
    cluster.quorum.answer = Promise()
    cluster.quorum.answer.resolve(reply)


ASKED: dict[Api, dict[str, Any]] = {
    Api.VOTE: {
        "replica_epoch": 6,
        "replica_id": 2,
        "replica_directory_id": DIRECTORY,
        "voter_directory_id": None,
        "last_offset_epoch": 4,
        "last_offset": 100,
        "pre_vote": False,
    },
    Api.BEGIN_QUORUM_EPOCH: {"voter_directory_id": None, "leader_id": 2, "leader_epoch": 6},
    Api.END_QUORUM_EPOCH: {
        "leader_id": 2,
        "leader_epoch": 6,
        "preferred_candidates": [{"candidate_id": 3, "candidate_directory_id": DIRECTORY}],
        "preferred_successors": [3],
    },
}
REPLIES: dict[Api, Reply] = {
    Api.VOTE: VoteReply(0, Code.NONE, HINT, True),
    Api.BEGIN_QUORUM_EPOCH: BeginQuorumEpochReply(0, Code.FENCED_LEADER_EPOCH, HINT),
    Api.END_QUORUM_EPOCH: EndQuorumEpochReply(0, Code.NONE, HINT),
}


def topics(api: Api, name: str = METADATA, *partitions: int) -> list[dict[str, Any]]:
    numbers = partitions or (0,)
    return [{"topic_name": name, "partitions": [{"partition_index": each, **ASKED[api]} for each in numbers]}]


# Elections.


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in ASKED for version in range(CONTROLLER_RANGES[api].max + 1)],
    ids=lambda each: str(getattr(each, "label", each)),
)
def test_voters_are_answered_in_every_version(api: Api, version: int, controller: Cluster) -> None:
    answering(controller, REPLIES[api])
    reply = controller.call(api, version, topics=topics(api), cluster_id=CLUSTER_ID, voter_id=1)
    (told,) = reply.topics[0].partitions
    assert (told.partition_index, int(told.error_code)) == (0, REPLIES[api].error)
    assert (told.leader_id, told.leader_epoch) == (2, 5)
    assert getattr(told, "vote_granted", True)
    if version >= 1:
        (endpoint,) = reply.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "a", 65_000)
    (asked,) = controller.quorum.received
    directory = DIRECTORY if version >= 1 else UUID(int=0)
    match asked:
        case Vote():
            assert asked.candidate == ReplicaKey(2, directory)
            assert (asked.voter, asked.end) == (ReplicaKey(1), OffsetAndEpoch(100, 4))
        case BeginQuorumEpoch():
            assert (asked.leader, asked.voter) == (LeaderHint(6, 2), ReplicaKey(1))
        case EndQuorumEpoch():
            assert asked.successors == (ReplicaKey(3, directory),)


def test_a_vote_that_names_no_voter_is_for_whoever_gets_it(controller: Cluster) -> None:
    answering(controller, REPLIES[Api.VOTE])
    controller.call(Api.VOTE, 2, topics=topics(Api.VOTE), voter_id=-1)
    controller.call(Api.VOTE, 2, topics=topics(Api.VOTE), voter_id=9)
    assert [each.voter for each in controller.quorum.received if isinstance(each, Vote)] == [
        ReplicaKey(controller.context.node_id),
        ReplicaKey(9),
    ]


@pytest.mark.parametrize("api", list(ASKED), ids=lambda api: api.label)
def test_what_is_not_for_this_quorum_does_not_reach_it(api: Api, controller: Cluster) -> None:
    """Wrong clusters and wrong partitions are told at the top, as Kafka does it."""
    version = CONTROLLER_RANGES[api].max
    bad: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"cluster_id": "another"}, ErrorCode.inconsistent_cluster_id),
        ({"topics": topics(api, "t")}, ErrorCode.invalid_request),
        ({"topics": topics(api, METADATA, 1)}, ErrorCode.invalid_request),
        ({"topics": topics(api, METADATA, 0, 1)}, ErrorCode.invalid_request),
        ({"topics": topics(api) * 2}, ErrorCode.invalid_request),
        ({"topics": []}, ErrorCode.invalid_request),
    ]
    for values, code in bad:
        reply = controller.call(api, version, **{"topics": topics(api), **values})
        assert (reply.error_code, reply.topics) == (code, ())
    controller.deny(Operation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    reply = controller.call(api, version, topics=topics(api))
    assert reply.error_code is ErrorCode.cluster_authorization_failed
    assert controller.quorum.received == []


def test_a_new_directory_follows_a_leader_of_any_cluster_and_votes_for_none(controller: Cluster) -> None:
    """It does not know its cluster yet. Else a voter with a directory of an earlier cluster would lead the new one."""
    controller.context.cluster_id = ""
    heard: dict[str, Any] = {}
    for api in ASKED:
        answering(controller, REPLIES[api])
        asked = {"topics": topics(api), "cluster_id": "earlier"}
        heard[api.label] = controller.call(api, CONTROLLER_RANGES[api].max, **asked).error_code
    assert heard == {
        "Vote": ErrorCode.broker_not_available,
        "BeginQuorumEpoch": ErrorCode.none,
        "EndQuorumEpoch": ErrorCode.broker_not_available,
    }
    assert snapshot(controller, cluster_id="earlier").error_code is ErrorCode.broker_not_available

    answering(controller, REPLIES[Api.VOTE])
    assert controller.call(Api.VOTE, 2, topics=topics(Api.VOTE)).error_code is ErrorCode.none, "new as well"
    controller.quorum.cluster_id_in_log = "ours"
    for named, code in (("ours", ErrorCode.none), ("earlier", ErrorCode.broker_not_available)):
        reply = controller.call(Api.VOTE, 2, topics=topics(Api.VOTE), cluster_id=named)
        assert reply.error_code is code


# Replication.


def fetch(
    cluster: Cluster, version: int, topic: str | bytes, *, partition: int = 0, wait_ms: int = 0
) -> FetchResponse:
    asked = FetchPartition(partition, 5, 10, 4, -1, 1000, DIRECTORY.bytes, 7)
    request = FetchRequest(
        wait_ms, 0, 2000, 0, 0, -1, [FetchTopic(topic, [asked])], [], "", 3, -1, CLUSTER_ID
    )
    frame = request_frame(Api.FETCH, version, 9, None, fetch_body(version, request))
    buffers = Dispatcher.for_controllers(cluster.context).dispatch(cluster.session, memoryview(frame)[4:])
    assert isinstance(buffers, list)
    whole = memoryview(b"".join(bytes(each) for each in buffers))[4:]
    _, at = parse_response_header(whole, Api.FETCH, version)
    return read_fetch_response(whole[at:], version)


def test_a_leader_is_named_at_the_listener_that_was_asked_or_not_at_all(controller: Cluster) -> None:
    """While listeners change, the address of another one would have another protocol."""
    controller.quorum.second_listeners = frozenset({"SECURE"})
    controller.session = Session("127.0.0.1", 9193, "127.0.0.1:50000", "SECURE")

    def named(leader: LeaderHint) -> list[str]:
        answering(controller, FetchReply(0, Code.NONE, leader, 12, 3, records=b"a batch"))
        return [each.host for each in fetch(controller, 18, METADATA_TOPIC_ID).node_endpoints]

    assert named(HINT) == []
    both = HINT._replace(endpoints=(*HINT.endpoints, Endpoint("SECURE", "b", 9193)))
    assert named(both) == ["b"]
    controller.quorum.second_listeners = frozenset()
    assert named(HINT) == ["a"], "listeners of one cluster may have different names"


@pytest.mark.parametrize("version", range(4, 19))
def test_the_metadata_log_is_fetched_in_every_version(version: int, controller: Cluster) -> None:
    reply = FetchReply(0, Code.NONE, HINT, 12, 3, records=b"a batch")
    answering(controller, reply)
    told = fetch(controller, version, METADATA_TOPIC_ID if version >= 13 else METADATA)
    assert told.error_code == 0
    ((_, (result,)),) = told.topics
    assert (result.error_code, bytes(result.records or b""), result.high_watermark) == (0, b"a batch", 12)
    if version >= 12:
        assert result.current_leader == (2, 5)
    assert [each.host for each in told.node_endpoints] == (["a"] if version >= 16 else [])
    (asked,) = controller.quorum.received
    assert asked.replica.id == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("version", "topic", "partition"),
    [(18, bytes(16), 0), (18, METADATA_TOPIC_ID, 1), (12, "t", 0), (12, METADATA, -1)],
)
def test_no_other_partition_is_fetched_from_a_controller(
    version: int, topic: str | bytes, partition: int, controller: Cluster
) -> None:
    told = fetch(controller, version, topic, partition=partition)
    assert (told.error_code, told.topics) == (Code.INVALID_REQUEST, [])
    assert controller.quorum.received == []


def test_negative_waits_are_zero(controller: Cluster) -> None:
    ((_, (result,)),) = fetch(controller, 18, METADATA_TOPIC_ID, wait_ms=-1).topics
    assert result.error_code == Code.INVALID_REQUEST
    assert controller.quorum.received == []


def snapshot(cluster: Cluster, version: int = 1, name: str = METADATA, number: int = 0, **more: Any) -> Any:
    asked = {
        "partition": number,
        "current_leader_epoch": 5,
        "snapshot_id": {"end_offset": 10, "epoch": 4},
        "position": 100,
    }
    whole = {"topics": [{"name": name, "partitions": [asked]}], "cluster_id": CLUSTER_ID, **more}
    return cluster.call(Api.FETCH_SNAPSHOT, version, **whole)


@pytest.mark.parametrize("version", [0, 1])
def test_a_snapshot_is_fetched_in_every_version(version: int, controller: Cluster) -> None:
    snapshot_id = OffsetAndEpoch(10, 4)
    answering(controller, FetchSnapshotReply(0, Code.NONE, HINT, snapshot_id, 500, 100, b"piece"))
    (told,) = snapshot(controller, version).topics[0].partitions
    assert (told.size, told.position, bytes(told.unaligned_records)) == (500, 100, b"piece")
    answering(controller, FetchSnapshotReply(0, Code.SNAPSHOT_NOT_FOUND, HINT))
    (told,) = snapshot(controller, version).topics[0].partitions
    assert (told.error_code, bytes(told.unaligned_records)) == (ErrorCode.snapshot_not_found, b"")
    assert told.current_leader.leader_epoch == 5


def test_a_snapshot_of_something_else_is_not_there(controller: Cluster) -> None:
    for name, number in (("t", 0), (METADATA, 1)):
        reply = snapshot(controller, name=name, number=number)
        (told,) = reply.topics[0].partitions
        assert (reply.topics[0].name, told.index) == (name, number)
        assert told.error_code is ErrorCode.unknown_topic_or_partition
    assert snapshot(controller, topics=[]).error_code is ErrorCode.invalid_request
    assert snapshot(controller, cluster_id="x").error_code is ErrorCode.inconsistent_cluster_id
    assert controller.quorum.received == []


# Voters.


def add(cluster: Cluster, version: int = 1, **values: Any) -> Any:
    whole = {
        "cluster_id": CLUSTER_ID,
        "voter_id": 4,
        "voter_directory_id": DIRECTORY,
        "listeners": [{"name": "CONTROLLER", "host": "d", "port": 9093}],
        **values,
    }
    return cluster.call(Api.ADD_RAFT_VOTER, version, **whole)


def remove(cluster: Cluster, **values: Any) -> Any:
    whole = {"cluster_id": CLUSTER_ID, "voter_id": 4, "voter_directory_id": DIRECTORY, **values}
    return cluster.call(Api.REMOVE_RAFT_VOTER, 0, **whole)


def update(cluster: Cluster, **values: Any) -> Any:
    whole = {
        "cluster_id": CLUSTER_ID,
        "current_leader_epoch": 5,
        "voter_id": 4,
        "voter_directory_id": DIRECTORY,
        "listeners": [{"name": "CONTROLLER", "host": "d", "port": 9093}],
        "k_raft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        **values,
    }
    return cluster.call(Api.UPDATE_RAFT_VOTER, 0, **whole)


@pytest.mark.parametrize("version", [0, 1])
def test_a_voter_is_added(version: int, controller: Cluster) -> None:
    answering(controller, VoterChangeReply(0, Code.NONE, HINT))
    reply = add(controller, version, ack_when_committed=False)
    assert (reply.error_code, reply.error_message) == (ErrorCode.none, None)
    new = Voter(ReplicaKey(4, DIRECTORY), (Endpoint("CONTROLLER", "d", 9093),))
    assert controller.quorum.received == [AddVoter(-1, new, 60_000, version == 0)]


def test_a_voter_is_removed(controller: Cluster) -> None:
    answering(controller, VoterChangeReply(0, Code.VOTER_NOT_FOUND, HINT, "nobody of that name"))
    reply = remove(controller)
    assert (reply.error_code, reply.error_message) == (ErrorCode.voter_not_found, "nobody of that name")
    assert controller.quorum.received == [RemoveVoter(-1, ReplicaKey(4, DIRECTORY), 2000)]


def test_a_controller_that_does_not_lead_replies_with_the_leader(controller: Cluster) -> None:
    answering(controller, VoterChangeReply(0, Code.NOT_LEADER_OR_FOLLOWER, HINT))
    reply = add(controller)
    assert (reply.error_code, reply.error_message) == (
        ErrorCode.not_leader_or_follower,
        "Node 2 leads the metadata quorum; send the request there.",
    )


def test_changes_that_make_no_sense_do_not_reach_the_quorum(controller: Cluster) -> None:
    for call in (add, remove, update):
        assert call(controller, cluster_id="another").error_code is ErrorCode.inconsistent_cluster_id
        assert call(controller, voter_id=-1).error_code is ErrorCode.invalid_request
        assert call(controller, voter_directory_id=None).error_code is ErrorCode.invalid_request
    for call in (add, update):
        assert call(controller, listeners=[]).error_code is ErrorCode.invalid_request
    impossible = {"min_supported_version": 2, "max_supported_version": 1}
    assert update(controller, k_raft_version_feature=impossible).error_code is ErrorCode.invalid_request
    assert controller.quorum.received == []


def test_who_may_not_alter_the_cluster_changes_no_voters(controller: Cluster) -> None:
    controller.deny(Operation.ALTER, AclResourceType.CLUSTER)
    controller.deny(Operation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    for call in (add, remove, update):
        assert call(controller).error_code is ErrorCode.cluster_authorization_failed
    assert controller.quorum.received == []


def test_a_broker_that_knows_no_controller_cannot_pass_a_change_on(cluster: Cluster) -> None:
    cluster.quorum.description = QuorumDescription(-1, 5, 90)
    for reply in (add(cluster), remove(cluster)):
        assert reply.error_code is ErrorCode.not_leader_or_follower
        assert "does not know the active controller" in reply.error_message
    assert cluster.quorum.received == []


# The listener.


def test_controllers_are_described_at_their_own_endpoint(controller: Cluster) -> None:
    """KIP-919."""
    reply = controller.call(Api.DESCRIBE_CLUSTER, 2, endpoint_type=2)
    assert [(each.broker_id, each.host, each.port) for each in reply.brokers] == [(1, "localhost", 9093)]
    assert (reply.controller_id, reply.cluster_id, reply.endpoint_type) == (1, CLUSTER_ID, 2)
    for version, kind, code in (
        (2, 1, ErrorCode.mismatched_endpoint_type),
        (0, None, ErrorCode.mismatched_endpoint_type),
        (1, 7, ErrorCode.unsupported_endpoint_type),
    ):
        reply = controller.call(Api.DESCRIBE_CLUSTER, version, **({"endpoint_type": kind} if kind else {}))
        assert (reply.error_code, reply.brokers) == (code, ())


def test_a_controller_serves_what_kafkas_do_and_a_broker_what_kafkas_do() -> None:
    assert set(CONTROLLER_RANGES) <= CONTROLLER_APIS
    assert {Api.VOTE, Api.FETCH, Api.FETCH_SNAPSHOT, Api.UPDATE_RAFT_VOTER, Api.CREATE_TOPICS} <= set(
        CONTROLLER_RANGES
    )
    assert {Api.BROKER_REGISTRATION, Api.BROKER_HEARTBEAT, Api.ALTER_PARTITION} <= set(CONTROLLER_RANGES)
    assert not {Api.VOTE, Api.UPDATE_RAFT_VOTER, Api.BROKER_HEARTBEAT} & set(RANGES)


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.METADATA, Api.JOIN_GROUP], ids=lambda api: api.label)
def test_a_controller_takes_no_clients(api: Api, controller: Cluster) -> None:
    frame = request_frame(api, 9, 1, None, bytes(100))
    with pytest.raises(UnsupportedVersion, match=f"{api.label} is not supported"):
        Dispatcher.for_controllers(controller.context).dispatch(controller.session, memoryview(frame)[4:])


def test_a_broker_takes_no_votes(cluster: Cluster) -> None:
    frame = request_frame(Api.VOTE, 2, 1, None, bytes(100))
    with pytest.raises(UnsupportedVersion, match="Vote is not supported"):
        Dispatcher(cluster.context).dispatch(cluster.session, memoryview(frame)[4:])


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_listener_advertises_what_it_serves_and_nothing_else(is_controller: bool, cluster: Cluster) -> None:
    frame = request_frame(Api.API_VERSIONS, 0, 1, None, b"")
    dispatcher = Dispatcher.for_controllers(cluster.context) if is_controller else Dispatcher(cluster.context)
    buffers = dispatcher.dispatch(cluster.session, memoryview(frame)[4:])
    assert isinstance(buffers, list)
    body = b"".join(bytes(each) for each in buffers)[8:]
    keys = [int.from_bytes(body[at : at + 2], "big") for at in range(6, len(body), 6)]
    assert sorted(keys) == sorted(CONTROLLER_RANGES if is_controller else RANGES)
