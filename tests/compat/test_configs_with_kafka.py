"""Changes of settings get Kafka's error codes, and DescribeConfigs has Kafka's names, sources and synonyms."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.compat.clients.lives import kafka_lives, penstock_lives
from tests.compat.clients.patient import wait_until
from tests.compat.kafka.peer import KafkaPeer

pytestmark = [pytest.mark.kafka, pytest.mark.long]

CHANGES = [
    ("broker", "1", "log.retention.ms", "5000"),
    ("broker", "1", "log.retention.ms", "abc"),
    ("broker", "1", "process.roles", "broker"),
    ("broker", "1", "log.dirs", "/elsewhere"),
    ("broker", "1", "retention.ms", "5000"),
    ("broker", "1", "cleanup.policy", "compact"),
    ("topic", "t", "segment.bytes", "1048576"),
    ("topic", "t", "segment.bytes", "abc"),
    ("topic", "t", "log.segment.bytes", "1048576"),
    ("topic", "t", "no.such.setting", "1"),
    ("topic", "missing", "segment.bytes", "1048576"),
]
OURS = {
    "idempotency.keys",
    "record.validation",
    "schema.validation",
    "schema.validation.mode",
    "search.index",
}
"""Topic settings that Kafka does not have."""

CONFIGURED_BY_THE_TEST = {"log.retention.ms"}


class Seen(NamedTuple):
    codes: dict[tuple[str, ...], str]
    topic: dict[str, Any]
    broker: dict[str, Any]


def look(bootstrap: str) -> Seen:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config={"retention.ms": "1000"})])["t"].result()
    codes = {change: code_of(admin, *change) for change in CHANGES}
    wait_until(lambda: described(admin, "topic", "t")["segment.bytes"].value == "1048576")
    return Seen(codes, described(admin, "topic", "t"), described(admin, "broker", "1"))


def code_of(admin: AdminClient, kind: str, resource: str, name: str, value: str) -> str:
    changed = ConfigResource(kind, resource)
    changed.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    try:
        admin.incremental_alter_configs([changed])[changed].result()
    except KafkaException as refusal:
        return str(refusal.args[0].name())
    return "NONE"


def described(admin: AdminClient, kind: str, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    return dict(admin.describe_configs([resource])[resource].result())


def test_changes_of_settings_are_answered_as_kafka_does(kafka: KafkaPeer, tmp_path: Path) -> None:
    with kafka_lives(kafka, tmp_path / "kafka", {}) as theirs:
        expected = look(theirs.bootstrap)
    with penstock_lives(tmp_path / "penstock", {}) as ours:
        seen = look(ours.bootstrap)
    assert seen.codes == expected.codes
    assert set(seen.topic) - OURS == set(expected.topic)
    for name in expected.topic:
        assert list(seen.topic[name].synonyms or ()) == list(expected.topic[name].synonyms or ()), name
        assert seen.topic[name].source == expected.topic[name].source, name
        assert seen.topic[name].value == expected.topic[name].value, name
    for name in set(seen.broker) & set(expected.broker) - CONFIGURED_BY_THE_TEST:
        if expected.broker[name].is_default and seen.broker[name].is_default:
            assert list(seen.broker[name].synonyms or ()) == list(expected.broker[name].synonyms or ()), name
