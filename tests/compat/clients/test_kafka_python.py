"""What only kafka-python's administration client can ask for."""

from uuid import UUID

import pytest
from tests.compat.clients.driver import Record, Refused, Sending
from tests.compat.clients.kafkapython import (
    ConfigResource,
    ConfigResourceType,
    KafkaPythonDriver,
    TopicPartition,
)
from tests.compat.clients.servers import Server


@pytest.fixture
def python(server: Server) -> KafkaPythonDriver:
    return KafkaPythonDriver(server.bootstrap)


def test_log_directories_tell_the_size_of_each_partition(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(name, partitions=2)
    python.produce(name, [Record(b"x" * 1000)])
    with python.admin() as admin:
        [broker] = admin.describe_log_dirs({name: [0, 1]})
    [directory] = broker["log_dirs"]
    assert directory["error_code"] == 0
    [topic] = directory["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in topic["partitions"]}
    assert sizes[0] > 1000
    assert sizes[1] == 0
    assert all(each["offset_lag"] == 0 and not each["is_future_key"] for each in topic["partitions"])
    assert directory["total_bytes"] >= directory["usable_bytes"] > 0


def test_the_quorum_is_described(python: KafkaPythonDriver) -> None:
    [broker] = python.brokers()
    with python.admin() as admin:
        [topic] = admin.describe_metadata_quorum()["topics"]
    assert topic["topic_name"] == "__cluster_metadata"
    [partition] = topic["partitions"]
    assert partition["error"] is None
    assert partition["leader_id"] == broker
    assert partition["leader_epoch"] > 0
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [broker]
    assert partition["high_watermark"] > 0


def test_features_are_described(python: KafkaPythonDriver) -> None:
    with python.admin() as admin:
        features = admin.describe_features()
    low, high = features["metadata.version"]["supported"]
    finalized, _ = features["metadata.version"]["finalized"]
    assert low <= finalized <= high


def test_a_feature_level_that_does_not_exist_is_refused(python: KafkaPythonDriver) -> None:
    with pytest.raises(Refused), python.admin() as admin:
        admin.update_features({"metadata.version": 30_000})


def test_producers_of_a_partition_are_described(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(name)
    python.produce(name, [Record(b"v")] * 5, Sending(is_idempotent=True, linger_ms=100))
    place = TopicPartition(name, 0)
    with python.admin() as admin:
        state = admin.describe_producers([place])[place]
    [producer] = state.active_producers
    assert producer.producer_id >= 0
    assert producer.producer_epoch == 0
    assert producer.last_sequence == 4


def test_partitions_of_topics_are_described_page_by_page(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(f"{name}-a", partitions=3)
    python.create_topic(f"{name}-b", partitions=2)
    seen: list[tuple[str, int]] = []
    cursor = None
    with python.admin() as admin:
        for _ in range(5):
            page = admin.describe_topic_partitions([f"{name}-a", f"{name}-b"], 2, cursor)
            for topic in page["topics"]:
                assert topic["error_code"] == 0
                seen += [(topic["name"], each["partition_index"]) for each in topic["partitions"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert cursor is None
    assert seen == [(f"{name}-a", 0), (f"{name}-a", 1), (f"{name}-a", 2), (f"{name}-b", 0), (f"{name}-b", 1)]


def test_resources_that_can_have_settings_are_listed(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(name)
    [broker] = python.brokers()
    with python.admin() as admin:
        found = admin.list_config_resources(["TOPIC", "BROKER"])
    assert name in found["topic"]
    assert str(broker) in found["broker"]


def test_settings_come_with_types_and_synonyms(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(name, configs={"max.message.bytes": "60000"})
    resource = ConfigResource(
        ConfigResourceType.TOPIC, name, {"max.message.bytes": None, "cleanup.policy": None}
    )
    with python.admin() as admin:
        found = admin.describe_configs([resource], include_synonyms=True, config_filter="all")["topic"][name]
    assert set(found) == {"max.message.bytes", "cleanup.policy"}, "only those that were named"
    assert found["max.message.bytes"]["config_type"] == "INT"
    assert found["cleanup.policy"]["config_type"] == "LIST"
    synonyms = [(each["name"], each["source"]) for each in found["max.message.bytes"]["synonyms"]]
    assert synonyms[0] == ("max.message.bytes", "DYNAMIC_TOPIC_CONFIG")
    assert synonyms[-1] == ("message.max.bytes", "DEFAULT_CONFIG")


def test_topics_are_described_by_id(python: KafkaPythonDriver, name: str) -> None:
    python.create_topic(name, partitions=2)
    with python.admin() as admin:
        [by_name] = admin.describe_topics([name])
        [by_id] = admin.describe_topics([UUID(by_name["topic_id"])])
    assert by_id["name"] == name
    assert len(by_id["partitions"]) == 2


def test_topics_are_created_with_chosen_replicas(python: KafkaPythonDriver, name: str) -> None:
    [broker] = python.brokers()
    with python.admin() as admin:
        admin.create_topics({name: {"assignments": {0: [broker], 1: [broker]}}})
        [found] = admin.describe_topics([name])
    assert [each["replica_nodes"] for each in found["partitions"]] == [[broker], [broker]]
    with pytest.raises(Refused) as refused, python.admin() as admin:
        admin.create_topics({f"{name}-nowhere": {"assignments": {0: [broker + 1000]}}})
    assert refused.value.code == 39  # INVALID_REPLICA_ASSIGNMENT


def test_a_topic_without_numbers_gets_the_brokers_defaults(python: KafkaPythonDriver, name: str) -> None:
    with python.admin() as admin:
        admin.create_topics([name])
    assert python.partition_count(name) == 3
