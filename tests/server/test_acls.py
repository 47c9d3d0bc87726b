"""ACLs of a broker, with a real client. Without a log-in it is User:ANONYMOUS."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.testing import Broker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
GUARDED = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
SECONDS_MAX = 30
CLOSED_DOORS = ["--http", "off", "--line", "off"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=GUARDED) as started:
        started.create_topic("orders")
        yield started


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def acl(
    operation: AclOperation, permission: AclPermissionType, principal: str = "User:ANONYMOUS"
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, principal, "*", operation, permission
    )


def create(broker: Broker, *acls: AclBinding) -> None:
    client = admin(broker)  # ends its requests with itself
    for done in client.create_acls(list(acls)).values():
        done.result(SECONDS_MAX)


EVERY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def delete_all(broker: Broker) -> list[AclBinding]:
    client = admin(broker)
    [done] = client.delete_acls([EVERY_ACL]).values()
    return list(done.result(SECONDS_MAX))


def produce(producer: Producer) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer.produce("orders", b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    return errors[0]


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_connected_producer_is_denied_and_the_next_one_allowed(broker: Broker, acks: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": acks})
    for _ in range(5):
        assert produce(producer) is None
    create(broker, acl(AclOperation.WRITE, AclPermissionType.DENY))
    denied = produce(producer)
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(delete_all(broker)) == 1
    assert produce(Producer({"bootstrap.servers": broker.bootstrap, "acks": acks})) is None


def test_a_consumer_that_may_not_read_gets_nothing(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    assert produce(producer) is None
    create(broker, acl(AclOperation.DESCRIBE, AclPermissionType.ALLOW))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.error() is not None
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_what_may_not_be_described_is_not_listed(broker: Broker) -> None:
    create(broker, acl(AclOperation.READ, AclPermissionType.ALLOW, "User:alice"))
    assert "orders" not in admin(broker).list_topics(timeout=SECONDS_MAX).topics


def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path, settings=GUARDED) as broker:
        create(broker, acl(AclOperation.WRITE, AclPermissionType.DENY))
    with Broker(data=tmp_path, settings=GUARDED) as broker:
        client = admin(broker)
        found = client.describe_acls(EVERY_ACL).result(SECONDS_MAX)
        assert [(each.name, each.principal, each.operation) for each in found] == [
            ("orders", "User:ANONYMOUS", AclOperation.WRITE)
        ]


def test_without_an_authorizer_there_are_no_acls() -> None:
    with Broker() as broker, pytest.raises(KafkaException, match="No Authorizer is configured"):
        create(broker, acl(AclOperation.WRITE, AclPermissionType.DENY))


def up(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "up",
            "--data",
            str(tmp_path / "data"),
            "--kafka",
            "127.0.0.1:0",
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--set", "authorizer.class.name=com.example.Mine"], "authorizer.class.name"),
        (
            [
                "--set",
                f"authorizer.class.name={STANDARD}",
                "--set",
                "super.users=alice",
                "--http",
                "off",
                "--line",
                "off",
            ],
            "super.users has 'alice', expected principals such as User:alice",
        ),
    ],
)
def test_settings_that_cannot_be_honoured_stop_the_start(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    ended = up(tmp_path, *options)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
