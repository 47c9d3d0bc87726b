"""CreateTopics, DeleteTopics and CreatePartitions, over the wire and into the image."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.configs import Source
from penstock.metadata.image import Resource, ResourceType
from penstock.wire import Api


def create(cluster: Cluster, *topics: dict[str, Any], version: int = 7, **values: Any) -> Any:
    asked = [{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics]
    return cluster.call(Api.CREATE_TOPICS, version, topics=asked, **values).topics


def delete(cluster: Cluster, *names: str, version: int = 6) -> Any:
    topics = [{"name": name} for name in names]
    return cluster.call(Api.DELETE_TOPICS, version, topics=topics, topic_names=list(names)).responses


def grow(cluster: Cluster, name: str, count: int, assignments: Any = None, **values: Any) -> Any:
    topics = [{"name": name, "count": count, "assignments": assignments}]
    (result,) = cluster.call(Api.CREATE_PARTITIONS, 3, topics=topics, **values).results
    return result


def codes(results: Any) -> list[ErrorCode]:
    return [result.error_code for result in results]


# Created.


def test_a_created_topic_is_reported_with_id_partitions_and_settings(cluster: Cluster) -> None:
    """KIP-525: the settings of a new topic, those that were asked for and the defaults."""
    cluster.set_all_brokers(log_retention_ms="77")
    asked = {"name": "t", "num_partitions": 3, "configs": [{"name": "segment.bytes", "value": "2000"}]}
    (told,) = create(cluster, asked)
    assert (told.error_code, told.error_message) == (ErrorCode.none, None)
    assert (told.num_partitions, told.replication_factor) == (3, 1)
    assert told.topic_id == cluster.topic_id("t")
    settings = {each.name: (each.value, each.config_source) for each in told.configs}
    assert list(settings) == sorted(settings)
    assert settings["segment.bytes"] == ("2000", Source.TOPIC)
    assert settings["retention.ms"] == ("77", Source.DYNAMIC_DEFAULT_BROKER)
    assert settings["cleanup.policy"] == ("delete", Source.DEFAULT)
    assert cluster.image.config(Resource(ResourceType.TOPIC, "t")) == {"segment.bytes": "2000"}


def test_defaults_stand_in_for_minus_one(cluster: Cluster) -> None:
    """KIP-464."""
    (told,) = create(cluster, {"name": "t", "num_partitions": -1, "replication_factor": -1}, version=4)
    assert told.error_code is ErrorCode.none
    assert len(cluster.image.topics["t"].partitions) == 2


def test_a_client_may_place_replicas_itself(three: Cluster) -> None:
    asked = {
        "name": "t",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": 1, "broker_ids": [3, 1]},
            {"partition_index": 0, "broker_ids": [2, 3]},
        ],
    }
    (told,) = create(three, asked)
    assert (told.num_partitions, told.replication_factor) == (2, 2)
    assert [three.image.topics["t"].partitions[each].replicas for each in (0, 1)] == [(2, 3), (3, 1)]


def test_what_is_only_validated_is_answered_alike_and_not_created(cluster: Cluster) -> None:
    asked = {"name": "t", "configs": [{"name": "retention.ms", "value": "5"}]}
    (told,) = create(cluster, asked, validate_only=True)
    assert (told.error_code, told.num_partitions) == (ErrorCode.none, 1)
    assert ("retention.ms", "5") in {(each.name, each.value) for each in told.configs}
    assert "t" not in cluster.image.topics
    (told,) = create(cluster, {"name": "not a name"}, validate_only=True)
    assert told.error_code is ErrorCode.invalid_topic_exception


def test_each_topic_is_created_or_says_why_not(cluster: Cluster) -> None:
    """ControllerApis.createTopics: one that is named twice is refused once."""
    cluster.create("there")
    told = create(
        cluster,
        {"name": "there"},
        {"name": "good"},
        {"name": "twice"},
        {"name": "twice"},
        {"name": "a/b"},
        {"name": "none", "num_partitions": 0},
        {"name": "many", "replication_factor": 2},
        {"name": "odd", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"name": "null", "configs": [{"name": "retention.ms", "value": None}]},
        {"name": "tiered", "configs": [{"name": "remote.storage.enable", "value": "true"}]},
        {"name": "__cluster_metadata"},
    )
    assert codes(told) == [
        ErrorCode.topic_already_exists,
        ErrorCode.none,
        ErrorCode.invalid_request,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_replication_factor,
        ErrorCode.invalid_config,
        ErrorCode.invalid_config,
        ErrorCode.invalid_config,
        ErrorCode.invalid_request,
    ]
    assert [each.name for each in told].count("twice") == 1
    assert all((each.error_message is None) == (each.error_code is ErrorCode.none) for each in told)
    assert sorted(cluster.image.topics) == ["good", "there"]


def test_a_creation_needs_the_cluster_or_the_topic_and_its_settings_their_own_right(cluster: Cluster) -> None:
    cluster.deny(Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    cluster.deny(Operation.CREATE, AclResourceType.TOPIC, "theirs")
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, "mine")
    theirs, mine = create(cluster, {"name": "theirs"}, {"name": "mine"})
    assert theirs.error_code is ErrorCode.topic_authorization_failed
    assert mine.error_code is ErrorCode.none
    assert mine.topic_config_error_code == ErrorCode.topic_authorization_failed.value
    assert (mine.num_partitions, mine.replication_factor, mine.configs) == (-1, -1, ())
    assert sorted(cluster.image.topics) == ["mine"]


def test_topics_that_are_set_alike_are_described_once_for_all(cluster: Cluster) -> None:
    plain = [{"name": f"t{number}"} for number in range(40)]
    odd = {"name": "odd", "configs": [{"name": "retention.ms", "value": "5"}]}
    *told, last = create(cluster, *plain, odd)
    assert len({each.configs for each in told}) == 1
    assert last.configs != told[0].configs


@pytest.mark.parametrize("wait_ms", [0, -5, 1000])
def test_a_client_waits_as_long_as_it_said(wait_ms: int, cluster: Cluster) -> None:
    cluster.port.hold()
    topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
    later = cluster.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=timedelta(milliseconds=wait_ms))
    cluster.world.advance(max(wait_ms, 0) - 0.5)
    assert not later.is_settled
    cluster.world.advance(1)
    assert codes(later.value.topics) == [ErrorCode.request_timed_out]
    cluster.port.release()  # decided all the same, and nobody is answered twice
    assert "t" in cluster.image.topics


# Deleted.


def test_topics_are_deleted_by_name_and_by_id(cluster: Cluster) -> None:
    for name in "abc":
        cluster.create(name)
    ids = {name: cluster.topic_id(name) for name in "abc"}
    told = cluster.call(
        Api.DELETE_TOPICS,
        6,
        topics=[{"topic_id": ids["b"], "name": None}, {"name": "a"}, {"topic_id": ids["c"], "name": None}],
    ).responses
    assert [(each.name, each.topic_id, each.error_code.name) for each in told] == [
        ("b", ids["b"], "none"),
        ("a", ids["a"], "none"),
        ("c", ids["c"], "none"),
    ]
    assert not cluster.image.topics


def test_what_cannot_be_deleted_says_why(cluster: Cluster) -> None:
    """ControllerApis.deleteTopics."""
    for name in ("twice", "both", "good"):
        cluster.create(name)
    told = cluster.call(
        Api.DELETE_TOPICS,
        6,
        topics=[
            {"name": "missing"},
            {"topic_id": UUID(int=77), "name": None},
            {"name": "twice"},
            {"topic_id": cluster.topic_id("twice"), "name": None},
            {"name": "both", "topic_id": cluster.topic_id("both")},
            {"name": None},
            {"name": "good"},
        ],
    ).responses
    assert [(each.name, each.error_code.name) for each in told] == [
        ("missing", "unknown_topic_or_partition"),
        (None, "unknown_topic_id"),
        ("twice", "invalid_request"),
        ("both", "invalid_request"),
        (None, "invalid_request"),
        ("good", "none"),
    ]
    assert told[2].topic_id == cluster.topic_id("twice")
    assert sorted(cluster.image.topics) == ["both", "twice"]


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_topic_that_is_named_twice_is_refused_once_there_or_not(cluster: Cluster, version: int) -> None:
    """ControllerApis.deleteTopics: the words are looked at before the topics."""
    cluster.create("there")
    told = delete(cluster, "gone", "there", "gone", "there", "gone", "other", version=version)
    assert [(each.name, each.error_code.name) for each in told] == [
        ("gone", "invalid_request"),
        ("there", "invalid_request"),
        ("other", "unknown_topic_or_partition"),
    ]
    assert "there" in cluster.image.topics


def test_an_id_that_is_named_twice_is_refused_once_and_its_topic_not_told(cluster: Cluster) -> None:
    cluster.create("there")
    ids = [cluster.topic_id("there"), UUID(int=77)] * 2
    rows = [{"topic_id": each, "name": None} for each in ids] + [{"name": None}] * 2
    told = cluster.call(Api.DELETE_TOPICS, 6, topics=rows).responses
    assert [(each.name, each.topic_id) for each in told[:2]] == [(None, each) for each in ids[:2]]
    assert codes(told) == [ErrorCode.invalid_request] * 4, "and rows that name nothing are not the same topic"
    assert "there" in cluster.image.topics


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.invalid_request),
        (2, ErrorCode.invalid_request),
        (3, ErrorCode.topic_deletion_disabled),
        (6, ErrorCode.topic_deletion_disabled),
    ],
)
@pytest.mark.parametrize("text", ["false", "False "])
def test_deletion_can_be_turned_off(version: int, code: ErrorCode, text: str) -> None:
    """KIP-322."""
    cluster = Cluster(static={"delete.topic.enable": text})
    cluster.create("t")
    assert codes(delete(cluster, "t", "missing", version=version)) == [code, code]
    assert "t" in cluster.image.topics


def test_a_deletion_leaks_nothing(cluster: Cluster) -> None:
    cluster.deny(Operation.DELETE, AclResourceType.CLUSTER)
    for name in ("secret", "seen", "mine"):
        cluster.create(name)
    for name in ("secret", "absent"):
        cluster.deny(Operation.DESCRIBE, AclResourceType.TOPIC, name)
    for name in ("secret", "seen", "gone"):
        cluster.deny(Operation.DELETE, AclResourceType.TOPIC, name)
    told = delete(cluster, "secret", "absent", "seen", "gone", "mine")
    assert codes(told) == [
        *[ErrorCode.topic_authorization_failed] * 3,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
    ]
    assert [each.topic_id for each in told[:3]] == [None] * 3
    ids = [{"topic_id": cluster.topic_id(name), "name": None} for name in ("secret", "seen")]
    told = cluster.call(Api.DELETE_TOPICS, 6, topics=ids).responses
    assert [(each.name, each.error_code) for each in told] == [
        (None, ErrorCode.topic_authorization_failed),
        ("seen", ErrorCode.topic_authorization_failed),
    ]
    assert sorted(cluster.image.topics) == ["secret", "seen"]


# Grown.


def test_a_topic_grows_to_a_number_of_partitions(three: Cluster) -> None:
    three.create("t", (1, 2))
    assert grow(three, "t", 3).error_code is ErrorCode.none
    assert len(three.image.topics["t"].partitions) == 3
    placed = [{"broker_ids": [3, 2]}]
    assert grow(three, "t", 4, placed).error_code is ErrorCode.none
    assert three.image.topics["t"].partitions[3].replicas == (3, 2)


def test_a_topic_does_not_shrink_and_must_be_there(three: Cluster) -> None:
    three.create("t", (1, 2), (2, 3))
    assert grow(three, "t", 2).error_code is ErrorCode.invalid_partitions
    assert grow(three, "missing", 2).error_code is ErrorCode.unknown_topic_or_partition
    assert grow(three, "t", 4, [{"broker_ids": [1, 2]}]).error_code is ErrorCode.invalid_replica_assignment
    assert grow(three, "t", 3, validate_only=True).error_code is ErrorCode.none
    twice = [{"name": "t", "count": each, "assignments": None} for each in (3, 4)]
    told = three.call(Api.CREATE_PARTITIONS, 3, topics=twice).results
    assert codes(told) == [ErrorCode.invalid_request] * 2
    assert len(three.image.topics["t"].partitions) == 2


def test_growing_is_altering(cluster: Cluster) -> None:
    cluster.create("t")
    cluster.deny(Operation.ALTER, AclResourceType.TOPIC, "t")
    assert grow(cluster, "t", 2).error_code is ErrorCode.topic_authorization_failed
    assert len(cluster.image.topics["t"].partitions) == 1
