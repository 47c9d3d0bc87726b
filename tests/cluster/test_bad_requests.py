"""What no node of this cluster would say, said to its nodes over real sockets: Kafka's codes, and nothing changes.

Which code a handler gives in which version is in `tests/handlers`; here the whole way is walked, and the cluster must
go on afterwards, with the same leaders and every replica in sync.
"""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import TopicCollection, Uuid
from tests.cluster.views import Seen
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until
from tests.handlers.cluster import make_request
from tests.server.raw import RawClient, fetch_request, produce_request

from penstock.base.errors import ErrorCode
from penstock.base.ids import uuid_from_text, uuid_text
from penstock.handlers.support.dispatch import CONTROLLER_RANGES
from penstock.metadata.versions import SUPPORTED
from penstock.testing import Cluster
from penstock.wire import KAFKA_RANGES, Api

METADATA = "__cluster_metadata"
METADATA_ID = UUID(int=1)
OTHER_CLUSTER = uuid_text(bytes(range(16)))
STRANGER = 77
"""No node has this id."""


class Target:
    """A cluster, where each request goes to the node that it is meant for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seen = Seen(cluster.bootstrap)
        cluster.create_topic("orders", partitions=3, replication_factor=3, min_insync_replicas=2)
        cluster.nodes[self.seen.leader("orders")].restart()  # there is an epoch to be behind of
        wait_until(self.seen.is_whole)
        self.topic_id = self._topic_id("orders")
        self.cluster_id = str(self.seen.driver.admin.describe_cluster().result(SECONDS_MAX).cluster_id)

    def _topic_id(self, topic: str) -> UUID:
        [future] = self.seen.driver.admin.describe_topics(TopicCollection([topic])).values()
        found: Uuid = future.result(SECONDS_MAX).topic_id
        return UUID(bytes=uuid_from_text(str(found)))

    def quorum(self) -> tuple[int, int]:
        """The active controller and its epoch."""
        request = make_request(
            Api.DESCRIBE_QUORUM, 2, topics=[{"topic_name": METADATA, "partitions": [{"partition_index": 0}]}]
        )
        with RawClient(self.cluster.brokers[0].port) as client:
            [[told]] = [each.partitions for each in client.ask(Api.DESCRIBE_QUORUM, 2, request).topics]
        return told.leader_id, told.leader_epoch

    def controller(self, is_active: bool = True) -> int:
        """The port of the active controller, or of one that is not."""
        active = self.quorum()[0]
        number = active if is_active else active % 3 + 1
        return self.cluster.nodes[number].controller_port

    def ask(self, port: int, api: Api, version: int | None = None, **values: Any) -> Any:
        if version is None:
            version = CONTROLLER_RANGES.get(api, KAFKA_RANGES[api]).max
        with RawClient(port) as client:
            return client.ask(api, version, make_request(api, version, **values))

    def assert_goes_on(self) -> None:
        for partition in range(3):
            self.seen.send("orders", [b"goes on"], partition=partition, acks="all")
        wait_until(self.seen.is_whole)


@pytest.fixture(scope="module")
def shared() -> Iterator[Target]:
    # A machine that is busy is no reason for an election here: whoever is elected was voted for by a bad request.
    settings = {"controller.quorum.fetch.timeout.ms": 30_000, "broker.session.timeout.ms": 30_000}
    with Cluster(brokers=3, settings=settings) as cluster:
        yield Target(cluster)


@pytest.fixture
def target(shared: Target) -> Iterator[Target]:
    before = shared.quorum()
    yield shared
    shared.assert_goes_on()
    assert shared.quorum() == before, "nobody was elected"


# -- the quorum ------------------------------------------------------------------------------------------

VOTE = {
    "replica_id": 2,
    "replica_epoch": 0,
    "replica_directory_id": UUID(int=5),
    "voter_directory_id": UUID(int=0),
    "last_offset": 10**9,
    "last_offset_epoch": 0,
    "pre_vote": False,
}
QUORUM_REQUESTS: dict[Api, dict[str, Any]] = {
    Api.VOTE: VOTE,
    Api.BEGIN_QUORUM_EPOCH: {"leader_id": 2, "leader_epoch": 0, "voter_directory_id": UUID(int=0)},
    Api.END_QUORUM_EPOCH: {"leader_id": 2, "leader_epoch": 0, "preferred_candidates": []},
}


def about_the_log(api: Api, **changes: Any) -> list[dict[str, Any]]:
    said = {"partition_index": 0, **QUORUM_REQUESTS[api], **changes}
    return [{"topic_name": METADATA, "partitions": [said]}]


@pytest.mark.parametrize("api", QUORUM_REQUESTS, ids=lambda api: api.label)
def test_who_is_of_another_cluster_gets_no_vote_and_is_no_leader(target: Target, api: Api) -> None:
    for is_active in (True, False):
        reply = target.ask(
            target.controller(is_active),
            api,
            cluster_id=OTHER_CLUSTER,
            topics=about_the_log(api),
            voter_id=-1,
        )
        assert (reply.error_code, reply.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, ())


@pytest.mark.parametrize("api", QUORUM_REQUESTS, ids=lambda api: api.label)
def test_a_request_of_an_earlier_epoch_gets_the_current_one(target: Target, api: Api) -> None:
    leader, epoch = target.quorum()
    reply = target.ask(
        target.controller(), api, cluster_id=target.cluster_id, topics=about_the_log(api), voter_id=-1
    )
    [[told]] = [each.partitions for each in reply.topics]
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (told.leader_id, told.leader_epoch) == (leader, epoch)
    assert not getattr(told, "vote_granted", False)


def test_a_vote_for_another_voter_is_not_given_in_its_place(target: Target) -> None:
    leader, epoch = target.quorum()
    topics = about_the_log(Api.VOTE, replica_id=leader % 3 + 1, replica_epoch=epoch, pre_vote=True)
    reply = target.ask(
        target.controller(), Api.VOTE, cluster_id=target.cluster_id, topics=topics, voter_id=STRANGER
    )
    [[told]] = [each.partitions for each in reply.topics]
    assert told.error_code == ErrorCode.INVALID_VOTER_KEY


def test_a_follower_that_still_hears_its_leader_gives_nobody_a_pre_vote(target: Target) -> None:
    """Raft 9.6, KIP-996: a node that was cut off does not depose a leader that the others hear."""
    leader, epoch = target.quorum()
    topics = about_the_log(
        Api.VOTE, replica_id=leader, replica_epoch=epoch, last_offset_epoch=epoch, pre_vote=True
    )
    follower = leader % 3 + 1
    reply = target.ask(
        target.controller(is_active=False),
        Api.VOTE,
        cluster_id=target.cluster_id,
        topics=topics,
        voter_id=follower,
    )
    [[told]] = [each.partitions for each in reply.topics]
    assert (told.error_code, told.vote_granted) == (ErrorCode.NONE, False)


@pytest.mark.parametrize(
    ("changes", "epoch_of", "code"),
    [
        ({"cluster_id": OTHER_CLUSTER}, lambda now: now, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({}, lambda now: now - 1, ErrorCode.FENCED_LEADER_EPOCH),
        ({}, lambda now: now + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=["another cluster", "the past", "the future"],
)
def test_the_metadata_log_is_fetched_by_those_who_know_the_cluster_and_its_epoch(
    target: Target, changes: dict[str, Any], epoch_of: Any, code: ErrorCode
) -> None:
    _, epoch = target.quorum()
    asked = {
        "partition": 0,
        "current_leader_epoch": epoch_of(epoch),
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "partition_max_bytes": 1000,
    }
    reply = target.ask(
        target.controller(),
        Api.FETCH,
        **{
            "cluster_id": target.cluster_id,
            "max_wait": timedelta(0),
            "min_bytes": 1,
            "replica_state": {"replica_id": STRANGER, "replica_epoch": -1},
            "topics": [{"topic_id": METADATA_ID, "partitions": [asked]}],
            **changes,
        },
    )
    rows = [row.error_code for topic in reply.responses for row in topic.partitions]
    assert code in (reply.error_code, *rows)


# -- the active controller -------------------------------------------------------------------------------


def registration(target: Target, **changes: Any) -> dict[str, Any]:
    return {
        "broker_id": STRANGER,
        "cluster_id": target.cluster_id,
        "incarnation_id": UUID(int=900),
        "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}],
        "features": [
            {
                "name": each.name,
                "min_supported_version": each.min_level,
                "max_supported_version": each.max_level,
            }
            for each in SUPPORTED
        ],
        "log_dirs": (UUID(int=2**100),),
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": OTHER_CLUSTER}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": 1}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
    ],
    ids=["another cluster", "an id that is taken", "no features"],
)
def test_without_the_permission_a_registration_fails_with_the_reason(
    target: Target, changes: dict[str, Any], code: ErrorCode
) -> None:
    reply = target.ask(target.controller(), Api.BROKER_REGISTRATION, **registration(target, **changes))
    assert reply.error_code == code
    assert target.seen.driver.brokers() == {1, 2, 3}


@pytest.mark.parametrize("broker", [1, STRANGER])
def test_a_stale_broker_epoch_is_refused_by_the_active_controller(target: Target, broker: int) -> None:
    mine = {"broker_id": broker, "broker_epoch": 10**12}
    port = target.controller()
    beat = target.ask(port, Api.BROKER_HEARTBEAT, **mine, want_shut_down=True)
    assert beat.error_code == ErrorCode.STALE_BROKER_EPOCH
    change = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr_with_epochs": [{"broker_id": 1}],
        "partition_epoch": 0,
    }
    altered = target.ask(
        port, Api.ALTER_PARTITION, **mine, topics=[{"topic_id": target.topic_id, "partitions": [change]}]
    )
    assert altered.error_code == ErrorCode.STALE_BROKER_EPOCH
    ids = target.ask(port, Api.ALLOCATE_PRODUCER_IDS, **mine)
    assert ids.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_controller_that_is_not_active_says_so(target: Target) -> None:
    port = target.controller(is_active=False)
    reply = target.ask(port, Api.BROKER_HEARTBEAT, broker_id=1, broker_epoch=1)
    assert reply.error_code == ErrorCode.NOT_CONTROLLER
    reply = target.ask(port, Api.BROKER_REGISTRATION, **registration(target))
    assert reply.error_code == ErrorCode.NOT_CONTROLLER


# -- replication -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replica", "epoch_of", "code"),
    [
        (STRANGER, lambda now: now, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (STRANGER, lambda _: -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (None, lambda now: now - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (None, lambda now: now + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=["no replica", "no replica, no epoch", "the past", "the future"],
)
def test_a_partition_is_fetched_by_its_replicas_in_its_epoch(
    target: Target, replica: int | None, epoch_of: Any, code: ErrorCode
) -> None:
    """Kafka's `Partition.followerReplicaOrThrow` and `checkCurrentLeaderEpoch`."""
    target.seen.send("orders", [b"committed"], acks="all")
    leader, epoch = leader_of(target)
    high = target.seen.driver.watermarks("orders", 0)[1]
    asked = {
        "partition": 0,
        "current_leader_epoch": epoch_of(epoch),
        "fetch_offset": high + 10**6,  # were it believed, everything would count as replicated
        "last_fetched_epoch": epoch,
        "partition_max_bytes": 1000,
    }
    reply = target.ask(
        target.cluster.nodes[leader].port,
        Api.FETCH,
        max_wait=timedelta(0),
        min_bytes=1,
        replica_state={"replica_id": leader % 3 + 1 if replica is None else replica, "replica_epoch": -1},
        topics=[{"topic_id": target.topic_id, "partitions": [asked]}],
    )
    [[row]] = [each.partitions for each in reply.responses]
    assert row.error_code == code
    assert not row.records
    assert target.seen.driver.watermarks("orders", 0)[1] == high


def leader_of(target: Target) -> tuple[int, int]:
    """Of partition 0: the leader and its epoch."""
    reply = target.ask(
        target.cluster.brokers[0].port, Api.METADATA, 12, topics=[{"name": "orders", "topic_id": None}]
    )
    row = next(row for topic in reply.topics for row in topic.partitions if row.partition_index == 0)
    return row.leader_id, row.leader_epoch


# -- the wrong door, and no protocol at all --------------------------------------------------------------


def test_a_controllers_listener_takes_no_records_and_a_brokers_no_votes(target: Target) -> None:
    """As Kafka does with an API that a listener has not: the connection ends, unanswered."""
    for api, version, request in (
        (Api.PRODUCE, 9, produce_request("orders", b"")),
        (Api.FIND_COORDINATOR, 4, make_request(Api.FIND_COORDINATOR, 4, coordinator_keys=("g",))),
    ):
        with RawClient(target.controller()) as client:
            client.send_request(api, version, request)
            assert client.receive_frame() is None, api
    for api in (Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.BROKER_HEARTBEAT, Api.BROKER_REGISTRATION):
        version = CONTROLLER_RANGES.get(api, KAFKA_RANGES[api]).max
        values = (
            registration(target) if api is Api.BROKER_REGISTRATION else {"broker_id": 1, "broker_epoch": 1}
        )
        values |= {"cluster_id": target.cluster_id, "topics": []}
        with RawClient(target.cluster.brokers[0].port) as client:
            client.send_request(api, version, make_request(api, version, **values))
            assert client.receive_frame() is None, api


def test_records_are_not_fetched_from_a_controllers_listener(target: Target) -> None:
    with RawClient(target.controller()) as client:
        reply = client.ask(Api.FETCH, 12, fetch_request("orders", 0))
    rows = [row.error_code for topic in reply.responses for row in topic.partitions]
    assert {reply.error_code, *rows} & {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not any(row.records for topic in reply.responses for row in topic.partitions)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x7f\xff\xff\xff" + b"x" * 100,
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x10" + b"\x00\x34\x00\x02" + b"\xff" * 12,
        b"\x00\x00\x00\x40" + b"\x00\x3f\x00\x01" + b"\x00" * 60,
    ],
    ids=["http", "2 GB", "negative", "empty", "a vote of garbage", "a heartbeat of zeros"],
)
def test_bytes_of_no_protocol_end_their_own_connection_alone(target: Target, data: bytes) -> None:
    port = target.controller()
    with closing(RawClient(port).socket) as bystander, RawClient(port) as client:
        client.send(data)
        client.finish()
        with RawClient(port) as another:
            reply = another.ask(Api.API_VERSIONS, 0, make_request(Api.API_VERSIONS, 0))
            assert reply.error_code == ErrorCode.NONE
        bystander.setblocking(False)
        with pytest.raises(BlockingIOError):
            bystander.recv(1)
