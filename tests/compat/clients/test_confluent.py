"""What only confluent-kafka's administration client can ask for."""

import pytest
from confluent_kafka import (
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX, Record, Refused, Sending
from tests.compat.clients.servers import Server

START_MS = 1_600_000_000_000


@pytest.fixture
def confluent(server: Server) -> ConfluentDriver:
    return ConfluentDriver(server.bootstrap)


def test_offsets_are_listed_by_every_kind_of_question(confluent: ConfluentDriver, name: str) -> None:
    confluent.create_topic(name)
    times = [START_MS, START_MS + 5000, START_MS + 1000]
    for each in times:
        confluent.produce(name, [Record(b"v", timestamp_ms=each)], Sending(linger_ms=0))
    place = TopicPartition(name, 0)

    def ask(spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> tuple[int, int]:
        found = confluent.settle(confluent.admin.list_offsets({place: spec}, isolation_level=isolation))
        return found.offset, found.timestamp

    assert ask(OffsetSpec.earliest())[0] == 0
    assert ask(OffsetSpec.latest())[0] == 3
    assert ask(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)[0] == 3
    assert ask(OffsetSpec.max_timestamp()) == (1, START_MS + 5000)
    assert ask(OffsetSpec.for_timestamp(START_MS + 1)) == (1, START_MS + 5000)
    assert ask(OffsetSpec.for_timestamp(START_MS + 9000))[0] == -1


def test_a_topic_is_described_with_its_id_and_its_replicas(confluent: ConfluentDriver, name: str) -> None:
    confluent.create_topic(name, partitions=2)
    found = confluent.settle(confluent.admin.describe_topics(TopicCollection([name])))
    [broker] = confluent.brokers()
    assert found.name == name
    assert not found.is_internal
    assert len(str(found.topic_id)) == 22
    assert [(each.id, each.leader.id) for each in found.partitions] == [(0, broker), (1, broker)]
    assert [[node.id for node in each.isr] for each in found.partitions] == [[broker], [broker]]
    assert [[node.id for node in each.replicas] for each in found.partitions] == [[broker], [broker]]


def test_a_topic_that_is_not_there_is_described_with_an_error(confluent: ConfluentDriver, name: str) -> None:
    with pytest.raises(Refused) as refused:
        confluent.settle(confluent.admin.describe_topics(TopicCollection([name])))
    assert refused.value.code == 3
    assert name not in confluent.topics(), "to describe is not to create"


def test_the_cluster_tells_its_id_its_controller_and_its_nodes(
    confluent: ConfluentDriver, server: Server
) -> None:
    found = confluent.admin.describe_cluster(include_authorized_operations=True).result(SECONDS_MAX)
    [node] = found.nodes
    assert len(found.cluster_id) == 22
    assert f"{node.host}:{node.port}" == server.bootstrap
    assert found.controller.id == node.id
    assert found.authorized_operations


def test_a_topic_may_only_be_validated(confluent: ConfluentDriver, name: str) -> None:
    confluent.settle(confluent.admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in confluent.topics()


def test_settings_tell_where_they_come_from(confluent: ConfluentDriver, name: str) -> None:
    confluent.create_topic(name, configs={"max.message.bytes": "5000"})
    topic = ConfigResource(ResourceType.TOPIC, name)
    found = confluent.settle(confluent.admin.describe_configs([topic]))
    ours = found["max.message.bytes"]
    assert (ours.value, ours.source, ours.is_default) == (
        "5000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
        False,
    )
    assert found["segment.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["segment.ms"].is_default
    assert found["retention.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert not any(each.is_sensitive for each in found.values())
    assert "message.max.bytes" in ours.synonyms


def test_settings_of_the_broker_are_described(confluent: ConfluentDriver) -> None:
    [broker] = confluent.brokers()
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    found = confluent.settle(confluent.admin.describe_configs([resource]))
    assert found["num.partitions"].value == "3"
    assert found["auto.create.topics.enable"].value == "true"
    assert found["node.id"].is_read_only
    assert found["node.id"].value == str(broker)


def test_a_preferred_leader_that_leads_needs_no_election(confluent: ConfluentDriver, name: str) -> None:
    confluent.create_topic(name)
    place = TopicPartition(name, 0)
    try:
        found = confluent.admin.elect_leaders(ElectionType.PREFERRED, [place]).result(SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE:
            pytest.skip("ElectLeaders is not served: docs/compatibility.md says when")
        raise
    assert found[place].code() == 84  # ELECTION_NOT_NEEDED


def test_an_idempotent_producer_goes_on_over_many_partitions(confluent: ConfluentDriver, name: str) -> None:
    """Sequences count for each partition by itself."""
    confluent.create_topic(name, partitions=6)
    producer = confluent.producer(Sending(is_idempotent=True, linger_ms=0))
    seen: dict[int, list[tuple[int, bytes | None]]] = {}

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        seen.setdefault(message.partition(), []).append((message.offset(), message.value()))  # type: ignore[attr-defined]

    for number in range(600):
        producer.produce(name, b"%d" % number, partition=number % 6, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    for partition, acknowledged in seen.items():
        assert acknowledged == [(each, b"%d" % (each * 6 + partition)) for each in range(100)]
