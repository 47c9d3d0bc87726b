"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders and UnregisterBroker, over the wire."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.wire import Api


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=(1, 2, 3))
    cluster.create("t", (1, 2), (2, 3))
    return cluster


def alter(cluster: Cluster, *partitions: dict[str, Any], version: int = 1, **values: Any) -> Any:
    topics = [{"name": "t", "partitions": list(partitions)}]
    values = {"allow_replication_factor_change": True, **values}
    return cluster.call(Api.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, **values)


def elect(cluster: Cluster, kind: int, *numbers: int, version: int = 2) -> Any:
    asked = [{"topic": "t", "partitions": list(numbers)}] if numbers else None
    return cluster.call(Api.ELECT_LEADERS, version, election_type=kind, topic_partitions=asked)


def rows(reply: Any) -> dict[int, ErrorCode]:
    return {
        each.partition_id: each.error_code
        for topic in reply.replica_election_results
        for each in topic.partition_result
    }


def test_a_move_is_begun_listed_and_taken_back(cluster: Cluster) -> None:
    reply = alter(cluster, {"partition_index": 0, "replicas": [3, 2]})
    assert (reply.error_code, reply.error_message) == (ErrorCode.none, None)
    assert reply.allow_replication_factor_change is True
    [topic] = reply.responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, ErrorCode.none)]

    [told] = cluster.call(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None).topics
    [moving] = told.partitions
    assert (told.name, moving.partition_index) == ("t", 0)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 2, 1), (3,), (1,))
    asked = [{"name": "t", "partition_indexes": [1, 7]}, {"name": "gone", "partition_indexes": [0]}]
    assert cluster.call(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=asked).topics == ()

    reply = alter(cluster, {"partition_index": 0, "replicas": None})
    assert reply.responses[0].partitions[0].error_code is ErrorCode.none
    assert cluster.call(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None).topics == ()


def test_each_partition_has_its_own_answer(cluster: Cluster) -> None:
    reply = alter(
        cluster,
        {"partition_index": 0, "replicas": [9]},
        {"partition_index": 1, "replicas": [3, 2]},
        {"partition_index": 2, "replicas": [1]},
    )
    [topic] = reply.responses
    assert [each.error_code for each in topic.partitions] == [
        ErrorCode.invalid_replica_assignment,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert "9" in topic.partitions[0].error_message
    assert cluster.image.topics["t"].partitions[1].replicas == (3, 2)


def test_a_partition_that_is_named_twice_is_answered_twice(cluster: Cluster) -> None:
    reply = alter(
        cluster, {"partition_index": 0, "replicas": [3]}, {"partition_index": 0, "replicas": [2, 3]}
    )
    [topic] = reply.responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.invalid_request] * 2


def test_version_0_always_allows_another_replication_factor(cluster: Cluster) -> None:
    asked = {"partition_index": 0, "replicas": [1, 2, 3]}
    reply = alter(cluster, asked, allow_replication_factor_change=False)
    assert reply.allow_replication_factor_change is False
    assert reply.responses[0].partitions[0].error_code is ErrorCode.invalid_replication_factor
    reply = alter(cluster, asked, version=0)
    assert reply.responses[0].partitions[0].error_code is ErrorCode.none


def test_the_preferred_leader_is_elected_where_it_may_lead(cluster: Cluster) -> None:
    cluster.fence(1)
    assert cluster.image.topics["t"].partitions[0].leader == 2
    assert rows(elect(cluster, 0, 0, 1, 7)) == {
        0: ErrorCode.preferred_leader_not_available,
        1: ErrorCode.election_not_needed,
        7: ErrorCode.unknown_topic_or_partition,
    }
    assert rows(elect(cluster, 0)) == {0: ErrorCode.preferred_leader_not_available}


@pytest.mark.parametrize("version", range(3))
def test_any_version_elects(cluster: Cluster, version: int) -> None:
    alter(cluster, {"partition_index": 0, "replicas": [2, 1]})
    assert rows(elect(cluster, 0, version=version)) == {0: ErrorCode.none}
    assert cluster.image.topics["t"].partitions[0].leader == 2


def test_a_replica_that_is_alive_leads_where_that_is_asked_for(cluster: Cluster) -> None:
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.image.topics["t"].partitions[0].leader == -1
    assert rows(elect(cluster, 1, 0)) == {0: ErrorCode.eligible_leaders_not_available}
    cluster.start(2)
    assert rows(elect(cluster, 1, 0)) == {0: ErrorCode.none}
    assert cluster.image.topics["t"].partitions[0].leader == 2


def test_a_kind_of_election_that_there_is_not_is_refused(cluster: Cluster) -> None:
    reply = elect(cluster, 7, 0)
    assert reply.error_code is ErrorCode.invalid_request
    assert rows(reply) == {0: ErrorCode.invalid_request}


def test_a_broker_is_forgotten_once(cluster: Cluster) -> None:
    assert cluster.call(Api.UNREGISTER_BROKER, 0, broker_id=3).error_code is ErrorCode.none
    assert 3 not in cluster.image.brokers
    assert cluster.image.topics["t"].partitions[1].isr == (2,)
    reply = cluster.call(Api.UNREGISTER_BROKER, 0, broker_id=3)
    assert (reply.error_code, reply.error_message) == (
        ErrorCode.broker_id_not_registered,
        "broker 3 is not registered",
    )
