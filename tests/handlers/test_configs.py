"""Settings shown and changed: DescribeConfigs, ListConfigResources, AlterConfigs, IncrementalAlterConfigs."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.config_table import BROKER_SETTINGS, ConfigType
from penstock.metadata.configs import Source
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType
from penstock.metadata.records import ConfigRecord
from penstock.wire import Api

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def described(cluster: Cluster, kind: int, name: str, *keys: str, version: int = 4, **values: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    (result,) = cluster.call(Api.DESCRIBE_CONFIGS, version, resources=[resource], **values).results
    return result


def altered(cluster: Cluster, kind: int, name: str, configs: Any, **values: Any) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": each, "value": value} for each, value in configs],
    }
    (result,) = cluster.call(Api.ALTER_CONFIGS, 2, resources=[resource], **values).responses
    return result


def changed(
    cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None], **values: Any
) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": each, "config_operation": op, "value": value} for each, op, value in changes],
    }
    (result,) = cluster.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], **values).responses
    return result


def settings_of(cluster: Cluster, topic: str = "t") -> dict[str, str]:
    return dict(cluster.image.config(Resource(ResourceType.TOPIC, topic)))


# Shown.


def test_a_topics_settings_are_reported_with_who_set_them(cluster: Cluster) -> None:
    cluster.create("t", retention_ms="10")
    cluster.set_all_brokers(log_retention_ms="30")
    told = described(cluster, TOPIC, "t", include_synonyms=True, include_documentation=True)
    assert told.error_code is ErrorCode.none
    by_name = {each.name: each for each in told.configs}
    retention = by_name["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == (
        "10",
        Source.TOPIC,
        ConfigType.LONG,
    )
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "10", Source.TOPIC),
        ("log.retention.ms", "30", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert "records" in retention.documentation
    assert by_name["cleanup.policy"].config_source == Source.DEFAULT


def test_synonyms_and_documentation_are_reported_on_request_only(cluster: Cluster) -> None:
    cluster.create("t")
    told = described(cluster, TOPIC, "t")
    assert all(each.synonyms == () and each.documentation is None for each in told.configs)


def test_settings_that_are_named_are_reported_alone_and_an_empty_list_names_all(cluster: Cluster) -> None:
    """KAFKA-10219: an empty list of keys means all of them."""
    cluster.create("t")
    assert [each.name for each in described(cluster, TOPIC, "t", "retention.ms", "nonsense").configs] == [
        "retention.ms"
    ]
    resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": []}
    (told,) = cluster.call(Api.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert len(told.configs) > 30


def test_this_broker_is_described_and_all_brokers_by_what_was_set(three: Cluster) -> None:
    three.set_all_brokers(log_retention_ms="30")
    broker = {each.name: each for each in described(three, BROKER, "1").configs}
    assert set(broker) == set(BROKER_SETTINGS)
    assert broker["node.id"].read_only
    assert not broker["log.retention.ms"].read_only
    assert broker["num.partitions"].config_source == Source.STATIC_BROKER
    every = {each.name: (each.value, each.config_source) for each in described(three, BROKER, "").configs}
    assert every["log.retention.ms"] == ("30", Source.DYNAMIC_DEFAULT_BROKER)
    assert set(every) == {"log.retention.ms", "min.insync.replicas"}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "not a name", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "-1", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (BROKER, "\u00b2", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", ErrorCode.invalid_request),
        (GROUP, "g", ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
        (99, "x", ErrorCode.invalid_request),
    ],
)
def test_what_has_no_settings_here_says_so(kind: int, name: str, code: ErrorCode, three: Cluster) -> None:
    """ConfigHelper.describeConfigs; a broker answers for itself."""
    for told in (described(three, kind, name), changed(three, kind, name), altered(three, kind, name, ())):
        if kind == TOPIC and told.error_code is not code:
            assert told.error_code is ErrorCode.unknown_topic_or_partition
        else:
            assert told.error_code is code
        assert told.error_message
        assert (told.resource_type, told.resource_name) == (kind, name)


def test_a_resource_is_described_once_however_often_it_is_asked_for(cluster: Cluster) -> None:
    cluster.create("t")
    same = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}
    told = cluster.call(
        Api.DESCRIBE_CONFIGS, 4, resources=[same, same, {**same, "configuration_keys": ["retention.ms"]}]
    ).results
    assert [len(each.configs) > 1 for each in told] == [True, False]


def test_without_the_permission_settings_are_hidden(cluster: Cluster) -> None:
    cluster.create("t")
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.GROUP)
    for kind, name, code in (
        (TOPIC, "t", ErrorCode.topic_authorization_failed),
        (TOPIC, "missing", ErrorCode.topic_authorization_failed),
        (BROKER, "1", ErrorCode.cluster_authorization_failed),
        (LOGGER, "1", ErrorCode.cluster_authorization_failed),
        (GROUP, "g", ErrorCode.group_authorization_failed),
    ):
        told = described(cluster, kind, name)
        assert (told.error_code, told.configs) == (code, ())


# Listed.


def listed(cluster: Cluster, *kinds: int, version: int = 1) -> Any:
    return cluster.call(Api.LIST_CONFIG_RESOURCES, version, resource_types=list(kinds))


def test_what_has_settings_is_listed_by_kind(three: Cluster) -> None:
    """KIP-1142."""
    three.create("t")
    three.create("s")
    three.write([ConfigRecord(resource_type=GROUP, resource_name="g", name="x", value="1")])
    topics, brokers, groups = (
        [(TOPIC, "s"), (TOPIC, "t")],
        [(BROKER, str(each)) for each in (1, 2, 3)],
        [(GROUP, "g")],
    )
    for kinds, expected in (
        ((), topics + brokers + groups),
        ((TOPIC,), topics),
        ((GROUP, BROKER), brokers + groups),
        ((LOGGER, CLIENT_METRICS), []),
    ):
        reply = listed(three, *kinds)
        assert [(each.resource_type, each.resource_name) for each in reply.config_resources] == expected
        assert reply.error_code is ErrorCode.none


def test_an_unknown_kind_is_not_listed_and_version_0_knows_client_metrics_alone(cluster: Cluster) -> None:
    assert listed(cluster, TOPIC, 99).error_code is ErrorCode.unsupported_version
    cluster.create("t")
    cluster.write([ConfigRecord(resource_type=CLIENT_METRICS, resource_name="m", name="x", value="1")])
    assert [each.resource_name for each in listed(cluster, version=0).config_resources] == ["m"]
    cluster.deny(Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
    assert listed(cluster).error_code is ErrorCode.cluster_authorization_failed


# Changed.


def test_settings_are_changed_as_a_whole(cluster: Cluster) -> None:
    cluster.create("t", retention_ms="10", segment_ms="20")
    assert altered(cluster, TOPIC, "t", [("flush.ms", "5")]).error_code is ErrorCode.none
    assert settings_of(cluster) == {"flush.ms": "5"}


def test_settings_are_changed_one_by_one(cluster: Cluster) -> None:
    """KIP-339: set, delete, append, subtract."""
    cluster.create("t", retention_ms="10", segment_ms="20")
    told = changed(
        cluster, TOPIC, "t", ("flush.ms", 0, "5"), ("segment.ms", 1, None), ("cleanup.policy", 2, "compact")
    )
    assert told.error_code is ErrorCode.none
    assert settings_of(cluster) == {"retention.ms": "10", "flush.ms": "5", "cleanup.policy": "delete,compact"}
    changed(cluster, TOPIC, "t", ("cleanup.policy", 3, "delete"))
    assert settings_of(cluster)["cleanup.policy"] == "compact"


def test_a_brokers_settings_are_changed_for_it_and_for_all(cluster: Cluster) -> None:
    assert changed(cluster, BROKER, "1", ("log.cleaner.threads", 0, "2")).error_code is ErrorCode.none
    assert changed(cluster, BROKER, "", ("log.retention.ms", 0, "5")).error_code is ErrorCode.none
    assert cluster.image.config(Resource(BROKER, "1")) == {"log.cleaner.threads": "2"}
    assert cluster.image.config(ALL_BROKERS)["log.retention.ms"] == "5"
    assert changed(cluster, BROKER, "1", ("node.id", 0, "2")).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", 0, "soon")], ErrorCode.invalid_config),
        ([("nonsense", 0, "1")], ErrorCode.invalid_config),
        ([("remote.storage.enable", 0, "true")], ErrorCode.invalid_config),
        ([("retention.ms", 0, None)], ErrorCode.invalid_request),
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
        ([("retention.ms", 2, "1")], ErrorCode.invalid_config),
        ([("retention.ms", 0, "1"), ("retention.ms", 1, None)], ErrorCode.invalid_request),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, cluster: Cluster
) -> None:
    cluster.create("t")
    told = changed(cluster, TOPIC, "t", ("flush.ms", 0, "5"), *changes)
    assert told.error_code is code
    assert told.error_message
    assert settings_of(cluster) == {}


def test_a_whole_with_a_null_or_a_name_twice_is_refused(cluster: Cluster) -> None:
    """ConfigAdminManager.preprocess."""
    cluster.create("t", retention_ms="10")
    for configs in ([("flush.ms", None)], [("flush.ms", "1"), ("flush.ms", "2")]):
        assert altered(cluster, TOPIC, "t", configs).error_code is ErrorCode.invalid_request
    assert settings_of(cluster) == {"retention.ms": "10"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a b", ErrorCode.invalid_topic_exception),
        (".", ErrorCode.invalid_topic_exception),
        ("", ErrorCode.invalid_request),
        ("__cluster_metadata", ErrorCode.unknown_topic_or_partition),
    ],
)
def test_what_cannot_be_a_topic_is_distinguished_from_what_is_not_there(
    name: str, code: ErrorCode, cluster: Cluster
) -> None:
    """ControllerConfigurationValidator, after the settings themselves were looked at."""
    assert changed(cluster, TOPIC, name, ("flush.ms", 0, "5")).error_code is code
    assert altered(cluster, TOPIC, name, [("flush.ms", "5")]).error_code is code
    null = changed(cluster, TOPIC, name, ("flush.ms", 0, None))
    assert null.error_code is ErrorCode.invalid_request


def test_a_topic_that_says_that_it_is_not_tiered_is_fine(cluster: Cluster) -> None:
    cluster.create("t")
    assert changed(cluster, TOPIC, "t", ("remote.storage.enable", 0, "False")).error_code is ErrorCode.none


@pytest.mark.parametrize("broker", ["1", ""])
def test_settings_of_single_listeners_are_refused(broker: str, cluster: Cluster) -> None:
    """Kafka takes them; a limit that nobody keeps to is refused here."""
    name = "listener.name.plaintext.max.connections"
    assert changed(cluster, BROKER, broker, (name, 0, "5")).error_code is ErrorCode.invalid_config


@pytest.mark.parametrize("api", [Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS])
def test_resources_are_changed_each_on_its_own_and_named_once(api: Api, cluster: Cluster) -> None:
    for name in ("good", "twice"):
        cluster.create(name)
    setting = {"name": "flush.ms", "config_operation": 0, "value": "5"}
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": [setting]}
        for name in ("twice", "missing", "good", "twice")
    ]
    told = cluster.call(api, 1, resources=resources).responses
    assert [(each.resource_name, each.error_code.name) for each in told] == [
        ("twice", "invalid_request"),
        ("missing", "unknown_topic_or_partition"),
        ("good", "none"),
    ]
    assert (settings_of(cluster, "good"), settings_of(cluster, "twice")) == ({"flush.ms": "5"}, {})


def test_what_is_only_validated_is_not_changed(cluster: Cluster) -> None:
    cluster.create("t")
    assert changed(cluster, TOPIC, "t", ("flush.ms", 0, "5"), validate_only=True).error_code is ErrorCode.none
    assert altered(cluster, TOPIC, "t", [("flush.ms", "5")], validate_only=True).error_code is ErrorCode.none
    assert settings_of(cluster) == {}


def test_who_may_not_change_settings_changes_none(cluster: Cluster) -> None:
    cluster.create("t")
    cluster.deny(Operation.ALTER_CONFIGS, AclResourceType.TOPIC)
    cluster.deny(Operation.ALTER_CONFIGS, AclResourceType.CLUSTER)
    assert (
        changed(cluster, TOPIC, "t", ("flush.ms", 0, "5")).error_code is ErrorCode.topic_authorization_failed
    )
    assert altered(cluster, TOPIC, "missing", ()).error_code is ErrorCode.topic_authorization_failed
    assert altered(cluster, BROKER, "1", ()).error_code is ErrorCode.cluster_authorization_failed
    assert not cluster.port.asked


def test_an_api_without_a_timeout_waits_for_request_timeout_ms() -> None:
    cluster = Cluster(static={"request.timeout.ms": "700"})
    cluster.create("t")
    cluster.port.hold()
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
    later = cluster.ask(Api.ALTER_CONFIGS, 2, resources=[resource])
    cluster.world.advance(699)
    assert not later.is_settled
    cluster.world.advance(1)
    assert later.value.responses[0].error_code is ErrorCode.request_timed_out
