"""Settings in force: who has the say, what may be set, and what DescribeConfigs is told."""

from dataclasses import fields

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.settings import BadSetting, LogSettings
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigType, Mode
from penstock.metadata.configs import (
    BrokerSettings,
    Source,
    Synonym,
    broker_setting,
    check,
    describe,
    log_defaults,
    log_settings,
    min_insync_replicas,
    topic_setting,
    validate,
    validate_static,
)
from penstock.metadata.image import EMPTY, ClusterImage, Resource, ResourceType
from penstock.metadata.records import ConfigRecord

TOPIC = Resource(ResourceType.TOPIC, "t")
BROKER = Resource(ResourceType.BROKER, "1")
ALL = Resource(ResourceType.BROKER, "")

KAFKA_4_3 = """cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
index.interval.bytes internal.segment.bytes leader.replication.throttled.replicas local.retention.bytes
local.retention.ms max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
unclean.leader.election.enable"""
"""Every topic setting of LogConfig in kafka-storage 4.3.1."""


def image_with(*settings: tuple[Resource, str, str]) -> ClusterImage:
    records = [
        ConfigRecord(resource_type=where.type, resource_name=where.name, name=name, value=value)
        for where, name, value in settings
    ]
    return EMPTY.replay(records, 1, 1)


def test_every_topic_setting_of_kafka_is_known() -> None:
    assert set(TOPIC_SETTINGS) == set(KAFKA_4_3.split()) | {
        "idempotency.keys",
        "record.validation",
        "schema.validation",
        "schema.validation.mode",
        "search.index",
    }


def test_defaults_and_bounds_are_those_that_logs_obey() -> None:
    assert (
        LogSettings.from_text(
            {
                each.metadata["name"]: TOPIC_SETTINGS[each.metadata["name"]].default or ""
                for each in fields(LogSettings)
            }
        )
        == LogSettings()
    )
    for each in fields(LogSettings):
        setting = TOPIC_SETTINGS[each.metadata["name"]]
        if setting.type not in (ConfigType.STRING, ConfigType.LIST):
            assert setting.bounds[0] == each.metadata["low"], setting.name
        assert set(setting.choices) == set(each.metadata["choices"])


def test_every_default_is_allowed_and_every_setting_is_explained() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()):
        if setting.default is not None:
            check(setting, setting.default)
        assert setting.documentation.endswith(".")
        assert all(name in BROKER_SETTINGS for name in setting.brokers)


def test_the_strongest_word_counts() -> None:
    static = BrokerSettings(1, {"log.retention.ms": "40"})
    words = [
        (TOPIC, "retention.ms", "10"),
        (BROKER, "log.retention.ms", "20"),
        (ALL, "log.retention.ms", "30"),
    ]
    for start, expected in enumerate(["10", "20", "30", "40"]):
        assert topic_setting("t", "retention.ms", image_with(*words[start:]), static) == expected
    assert topic_setting("t", "retention.ms", EMPTY) == "604800000"


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_milliseconds_go_before_minutes_before_hours(static: dict[str, str], expected: int) -> None:
    assert log_settings("t", EMPTY, BrokerSettings(1, static)).retention_ms == expected


def test_a_topics_logs_obey_its_settings_over_the_brokers() -> None:
    image = image_with(
        (TOPIC, "segment.bytes", "2000"),
        (TOPIC, "min.insync.replicas", "2"),
        (ALL, "log.cleanup.policy", "compact"),
    )
    broker = BrokerSettings(1, {"log.index.interval.bytes": "99", "log.roll.hours": "1"})
    found = log_settings("t", image, broker)
    assert (found.segment_bytes, found.cleanup_policy) == (2000, ("compact",))
    assert (found.index_interval_bytes, found.segment_ms) == (99, 3_600_000)
    assert log_settings("t", image, broker, log_defaults(image, broker)) == found
    assert log_settings("other", image, broker) == log_defaults(image, broker)
    assert min_insync_replicas("t", image) == 2


def test_kafkas_internal_segment_size_goes_first() -> None:
    image = image_with((TOPIC, "segment.bytes", "1048576"), (TOPIC, "internal.segment.bytes", "1500"))
    assert log_settings("t", image).segment_bytes == 1500


def test_a_topic_is_described_with_everyone_who_has_a_say() -> None:
    image = image_with((TOPIC, "retention.ms", "10"), (ALL, "log.retention.ms", "30"))
    found = {
        each.name: each for each in describe(TOPIC, image, BrokerSettings(1, {"log.retention.hours": "1"}))
    }
    assert "internal.segment.bytes" not in found
    assert len(found) == len(TOPIC_SETTINGS) - 1
    retention = found["retention.ms"]
    assert (retention.value, retention.source, retention.type) == ("10", Source.TOPIC, ConfigType.LONG)
    assert not retention.read_only
    assert retention.synonyms == (
        Synonym("retention.ms", "10", Source.TOPIC),
        Synonym("log.retention.ms", "30", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert found["segment.ms"].value == "604800000"
    assert found["segment.ms"].source is Source.DEFAULT


def test_synonyms_begin_with_the_name_that_a_setting_has_at_brokers() -> None:
    """Kafka 4.3's `ConfigHelper.configSynonyms`: where only the hours have a value, none are listed, and the source is
    the default, whoever has set them."""
    for own in ({}, {"log.retention.hours": "1"}):
        broker = BrokerSettings(1, own)
        of_topic = {each.name: each for each in describe(TOPIC, EMPTY, broker)}["retention.ms"]
        assert (of_topic.synonyms, of_topic.source) == ((), Source.DEFAULT)
        assert of_topic.value == ("3600000" if own else "604800000")
        of_broker = {each.name: each for each in describe(BROKER, EMPTY, broker)}
        assert of_broker["log.retention.ms"].synonyms == ()
        assert of_broker["log.retention.hours"].synonyms[0].name == "log.retention.hours"
    minutes = {
        each.name: each for each in describe(BROKER, EMPTY, BrokerSettings(1, {"log.retention.minutes": "5"}))
    }
    assert minutes["log.retention.minutes"].synonyms == (
        Synonym("log.retention.minutes", "5", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )


def test_a_topics_setting_may_be_given_to_a_broker_and_has_no_effect() -> None:
    """Kafka takes it, as it takes any name that could be a plugin's."""
    validate(BROKER, {"retention.ms": "10"})
    with pytest.raises(BadSetting, match=r"unknown broker setting no\.such\.thing"):
        validate(BROKER, {"no.such.thing": "10"})
    assert topic_setting(
        "t", "retention.ms", image_with((BROKER, "retention.ms", "10")), BrokerSettings(1, {})
    ) == (topic_setting("t", "retention.ms", EMPTY, BrokerSettings(1, {})))


def test_a_broker_is_described_and_all_brokers_by_what_was_set() -> None:
    image = image_with((ALL, "log.retention.ms", "30"), (BROKER, "log.cleaner.threads", "2"))
    broker = BrokerSettings(1, {"node.id": "1"})
    found = {each.name: each for each in describe(BROKER, image, broker)}
    assert set(found) == set(BROKER_SETTINGS)
    assert (found["node.id"].value, found["node.id"].source) == ("1", Source.STATIC_BROKER)
    assert found["node.id"].read_only
    assert (found["log.cleaner.threads"].value, found["log.cleaner.threads"].source) == (
        "2",
        Source.DYNAMIC_BROKER,
    )
    assert found["num.partitions"].value == "3"
    assert [each.name for each in describe(ALL, image, broker)] == ["log.retention.ms"]
    assert [each.name for each in describe(BROKER, image, broker, frozenset({"node.id"}))] == ["node.id"]
    assert broker_setting("node.id", image, broker) == "1"


TOPIC_REFUSALS = [
    ({"nonsense": "1"}, "unknown topic setting nonsense"),
    ({"retention.ms": "abc"}, "retention.ms is 'abc', expected a number"),
    ({"retention.ms": "-2"}, "retention.ms is -2, expected -1 to"),
    ({"segment.bytes": "999"}, "segment.bytes is 999, expected 1000 to"),
    ({"segment.bytes": "2147483648"}, "expected 1000 to 2147483647"),
    ({"cleanup.policy": "delete,shred"}, "expected a list of compact, delete"),
    ({"compression.type": "GZIP"}, "expected one of uncompressed"),
    ({"compression.gzip.level": "0"}, "1 to 9, or -1"),
    ({"min.cleanable.dirty.ratio": "1.5"}, "expected 0 to 1"),
    ({"min.cleanable.dirty.ratio": "nan"}, "expected 0 to 1"),
    ({"preallocate": "yes"}, "expected true or false"),
    ({"leader.replication.throttled.replicas": "1:2,3"}, "partition:broker pairs"),
    ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "more than max.compaction.lag.ms"),
]


@pytest.mark.parametrize(("settings", "sentence"), TOPIC_REFUSALS, ids=lambda each: str(each)[:40])
def test_a_bad_topic_setting_is_refused_in_a_sentence(settings: dict[str, str], sentence: str) -> None:
    """As LogConfig.validate of Kafka 4.3.1, but for the least segment.bytes."""
    with pytest.raises(BadSetting, match=sentence) as refusal:
        validate(TOPIC, settings)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG


def test_what_kafka_takes_is_taken() -> None:
    validate(
        TOPIC,
        {
            "segment.ms": " 5 ",
            "preallocate": " TRUE ",
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "0:1,1:2",
            "cleanup.policy": "compact, delete",
        },
    )


VALUES = (
    *("", " ", ",", "delete", "compact", "compact,delete", " delete , compact ", "delete,delete", "*"),
    *("-9223372036854775808", "-131072", "-2", "-1", "0", "1", " 5 ", "+7", "24", "999", "1000", "1_000"),
    *(
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "0.5",
        "1e-3",
        "nan",
        "inf",
        "x",
    ),
    *(
        "true",
        " FALSE ",
        "CreateTime",
        "LogAppendTime",
        "header",
        "full",
        "both",
        "gzip",
        "producer",
        "uncompressed",
        "\u0663",
    ),
)


def passes(resource: Resource, name: str, value: str) -> bool:
    try:
        validate(resource, {name: value})
    except BadSetting:
        return False
    return True


@pytest.mark.parametrize("name", sorted(TOPIC_SETTINGS))
def test_logs_can_obey_every_topic_setting_that_is_allowed(name: str) -> None:
    allowed = [value for value in VALUES if passes(TOPIC, name, value)]
    assert allowed
    for value in allowed:
        log_settings("t", image_with((TOPIC, name, value)))


@pytest.mark.parametrize("name", sorted(BROKER_SETTINGS))
def test_logs_can_obey_every_broker_setting_that_is_allowed(name: str) -> None:
    for value in VALUES:
        if passes(ALL, name, value):
            log_settings("t", image_with((ALL, name, value)))
        try:
            validate_static({name: value})
        except BadSetting:
            continue
        log_settings("t", EMPTY, BrokerSettings(1, {name: value}))


def test_what_kafka_takes_is_acted_on() -> None:
    """LogConfig of Kafka 4.3.1: no lower bound of retention.bytes, and cleanup.policy may be empty (KIP-1161)."""
    image = image_with(
        (TOPIC, "cleanup.policy", ""),
        (TOPIC, "retention.bytes", "-7"),
        (TOPIC, "internal.segment.bytes", "0"),
    )
    validate(TOPIC, image.config(TOPIC))
    found = log_settings("t", image)
    assert (found.cleanup_policy, found.retention_bytes, found.segment_bytes) == ((), -7, 0)
    with pytest.raises(BadSetting, match=r"process\.roles"):
        validate_static({"process.roles": ""})


def test_a_brokers_settings_change_at_run_time_only_where_they_can() -> None:
    validate(BROKER, {"log.cleaner.threads": "2", "leader.replication.throttled.rate": "1"})
    for resource, name, code in (
        (BROKER, "node.id", ErrorCode.INVALID_REQUEST),
        (BROKER, "listeners", ErrorCode.INVALID_REQUEST),
        (ALL, "leader.replication.throttled.rate", ErrorCode.INVALID_REQUEST),
        (BROKER, "nonsense", ErrorCode.INVALID_CONFIG),
        (Resource(ResourceType.GROUP, "g"), "x", ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(BadSetting) as refusal:
            validate(resource, {name: "1"})
        assert refusal.value.code is code


def test_a_brokers_file_is_checked() -> None:
    validate_static({"node.id": "1", "log.retention.hours": "5"})
    for values in ({"nonsense": "1"}, {"node.id": "-1"}):
        with pytest.raises(BadSetting):
            validate_static(values)


def test_the_first_synonym_is_the_one_that_can_change_at_run_time() -> None:
    assert BROKER_SETTINGS["log.retention.ms"].mode is Mode.CLUSTER_WIDE
    assert BROKER_SETTINGS["log.retention.ms"].default is None
    assert BROKER_SETTINGS["log.retention.hours"].mode is Mode.READ_ONLY
    assert BROKER_SETTINGS["log.retention.hours"].default == "168"
