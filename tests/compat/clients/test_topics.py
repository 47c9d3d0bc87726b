"""Topics, partitions and their settings, through every client's administration calls."""

import pytest
from tests.compat.clients.driver import Driver, Record, Refused, Sending, Unsupported, read
from tests.compat.clients.servers import Server, beside_kafka

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
LOCAL_UNKNOWN_PARTITION, LOCAL_UNKNOWN_TOPIC = -190, -188
"""librdkafka's own codes, where it has looked in its metadata before asking."""

UNKNOWN = {UNKNOWN_TOPIC_OR_PARTITION, LOCAL_UNKNOWN_PARTITION, LOCAL_UNKNOWN_TOPIC}


@beside_kafka
def test_a_topic_is_created_listed_described_and_deleted(driver: Driver, name: str) -> None:
    driver.create_topic(name, partitions=4)
    assert name in driver.topics()
    assert driver.partition_count(name) == 4
    driver.delete_topic(name)
    assert name not in driver.topics()
    driver.create_topic(name, partitions=2)
    assert driver.partition_count(name) == 2


def test_a_topic_that_was_deleted_and_made_again_is_empty(driver: Driver, name: str) -> None:
    driver.create_topic(name)
    driver.produce(name, [Record(b"old")] * 5)
    driver.delete_topic(name)
    driver.create_topic(name)
    assert driver.produce(name, [Record(b"new")], Sending(is_idempotent=True)) == [0]
    [got] = read(driver, name, 1)
    assert got.value == b"new"


def test_a_topic_that_exists_is_not_created_again(driver: Driver, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        driver.create_topic(topic)
    assert refused.value.code == TOPIC_ALREADY_EXISTS


def test_a_topic_that_is_not_there_cannot_be_deleted(driver: Driver, name: str) -> None:
    with pytest.raises(Refused) as refused:
        driver.delete_topic(name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", "a b", "a/b", "ü", "x" * 250],
    ids=["empty", "dot", "dots", "space", "slash", "ü", "long"],
)
def test_a_topic_with_a_bad_name_is_refused(driver: Driver, bad: str, server: Server) -> None:
    try:
        with pytest.raises(Refused) as refused:
            driver.create_topic(bad)
    except ValueError as error:
        pytest.skip(f"{driver.name} asks nobody: {error}")
    except Exception as error:
        if type(error).__name__ in ("KafkaException",):
            pytest.skip(f"{driver.name} asks nobody: {error}")
        raise
    assert refused.value.code in (INVALID_TOPIC, -186), "-186: librdkafka asks nobody for an empty name"


def test_numbers_of_partitions_and_replicas_that_cannot_be_are_refused(driver: Driver, name: str) -> None:
    with pytest.raises(Refused) as refused:
        driver.create_topic(name, replicas=2)
    assert refused.value.code == INVALID_REPLICATION_FACTOR
    with pytest.raises(Exception) as refused_too:  # noqa: PT011 - librdkafka refuses it by itself
        driver.create_topic(name, partitions=0)
    if isinstance(refused_too.value, Refused):
        assert refused_too.value.code == INVALID_PARTITIONS
    assert name not in driver.topics()


def test_partitions_are_added_and_never_taken_away(driver: Driver, name: str) -> None:
    driver.create_topic(name, partitions=2)
    driver.produce(name, [Record(b"old", partition=1)])
    driver.create_partitions(name, 5)
    assert driver.partition_count(name) == 5
    assert driver.produce(name, [Record(b"new", partition=4)]) == [0]
    [old, new] = read(driver, name, 1, {1: 0}) + read(driver, name, 1, {4: 0})
    assert (old.value, new.value) == (b"old", b"new")
    for total in (5, 3):
        with pytest.raises(Refused) as refused:
            driver.create_partitions(name, total)
        assert refused.value.code == INVALID_PARTITIONS


def test_a_topic_appears_when_it_is_first_written_to(driver: Driver, name: str) -> None:
    assert driver.produce(name, [Record(b"v")]) == [0]
    assert driver.partition_count(name) == 3, "num.partitions"
    [got] = read(driver, name, 1)
    assert got.value == b"v"


def test_a_partition_that_is_not_there_cannot_be_written_to(driver: Driver, topic: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - each client looks in its metadata first
        driver.produce(topic, [Record(b"v", partition=7)], Sending(give_up_ms=2000))
    assert not isinstance(refused.value, Refused) or refused.value.code in UNKNOWN
    assert driver.produce(topic, [Record(b"v")]) == [0]


def test_settings_of_a_topic_are_described_with_their_defaults(
    driver: Driver, name: str, server: Server
) -> None:
    driver.create_topic(name, configs={"retention.ms": "3600000", "cleanup.policy": "compact"})
    configs = driver.describe_configs(name)
    assert configs["retention.ms"] == "3600000"
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.bytes"] == str(1 << 30)
    assert configs["max.message.bytes"] == "1048588"
    assert configs["compression.type"] == "producer"
    assert configs["message.timestamp.type"] == "CreateTime"
    assert configs["min.insync.replicas"] == "1"
    assert {"flush.messages", "flush.ms", "segment.ms", "index.interval.bytes", "delete.retention.ms"} <= set(
        configs
    )


def test_settings_are_changed_one_by_one(driver: Driver, name: str) -> None:
    driver.create_topic(name, configs={"retention.ms": "3600000"})
    try:
        driver.change_configs(name, {"max.message.bytes": "5000"})
    except Unsupported as reason:
        pytest.skip(str(reason))
    configs = driver.describe_configs(name)
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("3600000", "5000")
    driver.change_configs(name, {"max.message.bytes": None})
    assert driver.describe_configs(name)["max.message.bytes"] == "1048588"


def test_settings_are_replaced_as_a_whole(driver: Driver, name: str) -> None:
    driver.create_topic(name, configs={"retention.ms": "3600000"})
    try:
        driver.replace_configs(name, {"max.message.bytes": "5000"})
    except Unsupported as reason:
        pytest.skip(str(reason))
    configs = driver.describe_configs(name)
    assert configs["max.message.bytes"] == "5000"
    assert configs["retention.ms"] == "-1", "back to the broker's"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("max.message.bytes", "-1"),
        ("no.such.setting", "1"),
    ],
)
def test_a_bad_setting_is_refused_and_nothing_changes(
    driver: Driver, name: str, setting: str, value: str
) -> None:
    with pytest.raises(Refused) as refused:
        driver.create_topic(name, configs={setting: value})
    assert refused.value.code == INVALID_CONFIG
    assert name not in driver.topics()
    driver.create_topic(name)
    try:
        with pytest.raises(Refused) as refused:
            driver.change_configs(name, {setting: value})
    except Unsupported:
        with pytest.raises(Refused) as refused:
            driver.replace_configs(name, {setting: value})
    assert refused.value.code == INVALID_CONFIG


def test_a_changed_limit_counts_at_once(driver: Driver, name: str) -> None:
    driver.create_topic(name)
    driver.produce(name, [Record(b"x" * 20_000)])
    try:
        driver.change_configs(name, {"max.message.bytes": "10000"})
    except Unsupported:
        driver.replace_configs(name, {"max.message.bytes": "10000"})
    with pytest.raises(Refused) as refused:
        driver.produce(name, [Record(b"x" * 20_000)])
    assert refused.value.code == 10


def test_the_cluster_has_one_broker(driver: Driver) -> None:
    assert len(driver.brokers()) == 1
