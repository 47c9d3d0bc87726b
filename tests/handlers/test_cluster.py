"""The cluster described, its quorum, and its features moved."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode as OurCode
from penstock.base.promise import Promise
from penstock.handlers.support.api_table import SERVED_BY_CONTROLLERS
from penstock.handlers.support.response_fields import OPERATIONS_NOT_REQUESTED
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.versions import METADATA_VERSION_LATEST
from penstock.raft.describe import QuorumDescription, ReplicaDescription
from penstock.raft.messages import LeaderHint, ReadIndex, ReadIndexReply, Reply
from penstock.raft.voters import Endpoint, ReplicaKey
from penstock.wire import Api

# Brokers.


def test_the_cluster_is_its_living_brokers_and_on_request_the_fenced(three: Cluster) -> None:
    """KIP-1073."""
    three.start(4, rack="north")
    three.fence(2)
    reply = three.call(Api.DESCRIBE_CLUSTER, 2)
    assert [(each.broker_id, each.rack, each.is_fenced) for each in reply.brokers] == [
        (1, None, False),
        (3, None, False),
        (4, "north", False),
    ]
    assert (reply.cluster_id, reply.controller_id) == (three.context.cluster_id, 1)
    assert reply.cluster_authorized_operations == OPERATIONS_NOT_REQUESTED
    reply = three.call(Api.DESCRIBE_CLUSTER, 2, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in reply.brokers] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
    ]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (1, ErrorCode.none),
        (2, ErrorCode.mismatched_endpoint_type),
        (0, ErrorCode.unsupported_endpoint_type),
        (-3, ErrorCode.unsupported_endpoint_type),
    ],
)
def test_this_is_a_brokers_endpoint(kind: int, code: ErrorCode, cluster: Cluster) -> None:
    """KIP-919."""
    reply = cluster.call(Api.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
    assert (reply.error_code, bool(reply.brokers)) == (code, code is ErrorCode.none)
    assert (reply.error_message is None) == (code is ErrorCode.none)


def test_the_clusters_operations_are_told_to_those_who_may_describe_it(cluster: Cluster) -> None:
    def told() -> int:
        reply = cluster.call(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True)
        operations: int = reply.cluster_authorized_operations
        return operations

    assert told() == 0b1_1111_1010_0000
    cluster.deny(Operation.ALTER, AclResourceType.CLUSTER)
    assert told() == 0b1_1111_0010_0000
    cluster.deny(Operation.DESCRIBE, AclResourceType.CLUSTER)
    assert told() == 0


# The quorum.


def quorum(cluster: Cluster, topic: str = "__cluster_metadata", partition: int = 0, version: int = 2) -> Any:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]
    return cluster.call(Api.DESCRIBE_QUORUM, version, topics=topics)


def test_the_quorum_is_reported_with_how_far_everyone_is(cluster: Cluster) -> None:
    """KIP-595, KIP-836, KIP-853."""
    here, there = UUID(int=7), UUID(int=8)
    cluster.quorum.description = QuorumDescription(
        1,
        5,
        90,
        (
            ReplicaDescription(ReplicaKey(1, here), 100, 10, 10, (Endpoint("CONTROLLER", "a", 65_000),)),
            ReplicaDescription(ReplicaKey(2, there), 90, 9, 8, (Endpoint("CONTROLLER", "b", 2),)),
        ),
        (ReplicaDescription(ReplicaKey(3), 80, 7, -1),),
    )
    reply = quorum(cluster)
    (partition,) = reply.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 5, 90)
    told = [
        (
            each.replica_id,
            each.replica_directory_id,
            each.log_end_offset,
            each.last_fetch_timestamp,
            each.last_caught_up_timestamp,
        )
        for each in (*partition.current_voters, *partition.observers)
    ]
    assert told == [(1, here, 100, 10, 10), (2, there, 90, 9, 8), (3, None, 80, 7, -1)]
    assert [(node.node_id, node.listeners[0].host, node.listeners[0].port) for node in reply.nodes] == [
        (1, "a", 65_000),
        (2, "b", 2),
    ]


def test_another_partition_than_the_quorums_is_unknown(cluster: Cluster) -> None:
    for topic, number in (("t", 0), ("__cluster_metadata", 1)):
        reply = quorum(cluster, topic, number)
        assert reply.error_code is ErrorCode.none
        (told,) = reply.topics[0].partitions
        assert told.error_code is ErrorCode.unknown_topic_or_partition
        assert (told.partition_index, told.current_voters) == (number, ())


def test_only_the_leader_describes_the_quorum(cluster: Cluster) -> None:
    cluster.quorum.description = QuorumDescription(3, 5, 90)
    reply = quorum(cluster)
    assert (reply.error_code, reply.topics) == (ErrorCode.not_leader_or_follower, ())
    assert "3" in reply.error_message


def test_who_may_not_describe_the_cluster_sees_no_quorum(cluster: Cluster) -> None:
    cluster.deny(Operation.DESCRIBE, AclResourceType.CLUSTER)
    reply = quorum(cluster)
    assert (reply.error_code, reply.topics) == (ErrorCode.cluster_authorization_failed, ())


def read_reply(error: OurCode) -> Promise[Reply]:
    promise: Promise[Reply] = Promise()
    promise.resolve(ReadIndexReply(0, error, LeaderHint(1, 1), 5))
    return promise


def test_a_controller_tells_other_nodes_whether_it_still_leads(cluster: Cluster) -> None:
    cluster.served = SERVED_BY_CONTROLLERS
    cluster.quorum.answer = read_reply(OurCode.NONE)
    (told,) = quorum(cluster).topics[0].partitions
    assert (told.error_code, told.error_message) == (ErrorCode.none, None)
    cluster.quorum.answer = read_reply(OurCode.REQUEST_TIMED_OUT)
    (told,) = quorum(cluster).topics[0].partitions
    assert told.error_code is ErrorCode.none, "operators see the quorum all the same"
    assert "could not confirm" in told.error_message
    assert [each.replica_id for each in told.current_voters] == [1]
    assert [type(each) for each in cluster.quorum.received] == [ReadIndex] * 2


def test_others_than_nodes_do_not_wait_for_the_quorum(cluster: Cluster) -> None:
    """`answer` is never settled here. Versions 0 and 1 have no field for the message."""
    quorum(cluster)
    cluster.served = SERVED_BY_CONTROLLERS
    quorum(cluster, version=1)
    quorum(cluster, "t")
    cluster.deny(Operation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    quorum(cluster)
    assert cluster.quorum.received == []


# Features.


def update(cluster: Cluster, *updates: tuple[str, int, int], version: int = 2, **values: Any) -> Any:
    asked = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind > 1}
        for name, level, kind in updates
    ]
    return cluster.call(Api.UPDATE_FEATURES, version, feature_updates=asked, **values)


def test_features_go_down_when_asked_to_and_up(cluster: Cluster) -> None:
    """KIP-584, KIP-778: 1 is an upgrade, 2 a safe downgrade."""
    assert update(cluster, ("transaction.version", 1, 2)).error_code is ErrorCode.none
    assert cluster.image.features["transaction.version"] == 1
    assert update(cluster, ("transaction.version", 2, 1)).error_code is ErrorCode.none
    assert cluster.image.features["transaction.version"] == 2
    assert update(cluster, ("transaction.version", 1, 2), version=0).error_code is ErrorCode.none
    assert cluster.image.features["transaction.version"] == 1


def test_all_features_are_changed_or_none(cluster: Cluster) -> None:
    before = cluster.image
    refused = update(cluster, ("transaction.version", 1, 2), ("nonsense", 7, 1))
    assert refused.error_code is ErrorCode.invalid_update_version
    assert "nonsense" in refused.error_message
    assert update(cluster, ("group.version", 0, 1)).error_code is ErrorCode.invalid_update_version
    assert update(cluster, ("group.version", 0, 2), validate_only=True).error_code is ErrorCode.none
    assert cluster.image is before


def test_what_is_not_served_cannot_be_turned_on(cluster: Cluster) -> None:
    for name in ("share.version", "streams.version"):
        refused = update(cluster, (name, 1, 1))
        assert refused.error_code is ErrorCode.invalid_update_version
        assert "not supported" in refused.error_message
        assert update(cluster, (name, 0, 1)).error_code is ErrorCode.none


def test_versions_0_and_1_have_a_row_for_each_feature_that_was_changed(cluster: Cluster) -> None:
    latest = ("metadata.version", METADATA_VERSION_LATEST, 1)
    for version in (0, 1):
        told = update(cluster, latest, version=version)
        assert [(row.feature, row.error_code) for row in told.results] == [
            ("metadata.version", ErrorCode.none)
        ]
        assert update(cluster, ("nonsense", 7, 1), version=version).results == ()


def test_features_are_changed_by_those_who_may_alter_the_cluster(cluster: Cluster) -> None:
    cluster.deny(Operation.ALTER, AclResourceType.CLUSTER)
    assert update(cluster, ("group.version", 0, 2)).error_code is ErrorCode.cluster_authorization_failed
    assert not cluster.port.asked
