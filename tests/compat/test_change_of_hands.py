"""A whole single node changes hands, in place: Kafka is stopped, Penstock serves its log directory, and back.

The port is the same over all lives, so that clients that were there before go on after: a group's members, and a
producer in the middle of a transaction. No step is needed between a clean stop of one and the start of the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX, Record, Sending, read
from tests.compat.clients.lives import (
    GROUP_SETTINGS,
    KafkaLives,
    Lives,
    PenstockLives,
    free_port,
    kafka_lives,
)
from tests.compat.clients.patient import Patient, wait_until
from tests.compat.kafka.peer import KafkaPeer
from tests.processes import refusal

pytestmark = pytest.mark.kafka

QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@dataclass
class Hands:
    """One directory and one port, and who holds them now."""

    kafka: KafkaPeer
    data: Path
    port: int = field(default_factory=free_port)
    now: Lives | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def to_kafka(self) -> None:
        self._to(KafkaLives(self.kafka, self.data, GROUP_SETTINGS, self.port))

    def to_penstock(self) -> None:
        self._to(PenstockLives(self.data, GROUP_SETTINGS, self.port))

    def _to(self, next_: Lives) -> None:
        self.stop()
        next_.start()
        self.now = next_

    def stop(self) -> None:
        """Cleanly: that is what a change of hands needs."""
        if self.now is not None:
            self.now.stop()
            if isinstance(self.now, PenstockLives):
                self.now.process.close()
            self.now = None

    def close(self) -> None:
        if self.now is not None:
            self.now.kill()
            if isinstance(self.now, PenstockLives):
                self.now.process.close()


@pytest.fixture
def hands(kafka: KafkaPeer, tmp_path: Path) -> Iterator[Hands]:
    made = Hands(kafka, tmp_path / "kafka-logs")
    try:
        made.to_kafka()
        yield made
    finally:
        made.close()


def admin(hands: Hands) -> ConfluentDriver:
    """Kafka shows what it has agreed to a little later."""
    driver = ConfluentDriver(hands.bootstrap)
    return Patient(driver) if isinstance(hands.now, KafkaLives) else driver  # type: ignore[return-value]


def member(hands: Hands, **more: object) -> Consumer:
    settings: Mapping[str, object] = {
        "bootstrap.servers": hands.bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **QUIET,
        **more,
    }
    consumer = Consumer(dict(settings))
    consumer.subscribe(["orders"])
    return consumer


def transactional(hands: Hands, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": hands.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, 30_000),
            **QUIET,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def write_open(producer: Producer, values: list[bytes]) -> None:
    """Begin a transaction, write to it, and leave it open."""
    producer.begin_transaction()
    for value in values:
        producer.produce("payments", value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def committed_values(hands: Hands) -> list[bytes | None]:
    """What a reader of committed records sees of `payments`, up to the first open transaction."""
    consumer = ConfluentDriver(hands.bootstrap).consumer(
        isolation_level="read_committed", enable_partition_eof=True
    )
    try:
        consumer.assign([TopicPartition("payments", 0, 0)])
        found: list[bytes | None] = []
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "the end never came"
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


def take(consumer: Consumer, values: list[bytes]) -> None:
    """Read these, in this order, and commit."""
    for value in values:
        while (message := consumer.poll(SECONDS_MAX)) is not None and message.error() is not None:
            pass
        assert message is not None, f"{value!r} did not come"
        assert message.value() == value
    assert consumer.commit(asynchronous=False)[0].error is None


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_topics_settings_records_and_groups_go_over_and_come_back(hands: Hands, protocol: str) -> None:
    settings = {"retention.ms": "987654321", "max.message.bytes": "123456"}

    def check(driver: ConfluentDriver, end: int) -> None:
        assert {"orders", "payments", "many"} <= driver.topics()
        assert driver.partition_count("many") == 7
        found = driver.describe_configs("orders")
        assert {name: found[name] for name in settings} == settings
        got = read(driver, "orders", end)
        assert [record.value for record in got] == numbered(0, end)

    def work(start: int) -> None:
        """Ten more records are written, and the group takes ten: five that lay there, five of the new."""
        driver = admin(hands)
        driver.produce("orders", [Record(value) for value in numbered(start + 5, start + 15)], Sending("lz4"))
        consumer = member(hands, **{"group.protocol": protocol})
        try:
            take(consumer, numbered(start, start + 10))
        finally:
            consumer.close()

    driver = admin(hands)
    driver.create_topic("orders", configs=settings)
    driver.create_topic("payments")
    driver.create_topic("many", partitions=7)
    driver.produce("orders", [Record(value) for value in numbered(0, 5)])
    work(0)
    hands.to_penstock()
    check(admin(hands), 15)
    work(10)
    admin(hands).create_topic("new")
    hands.to_kafka()
    check(admin(hands), 25)
    work(20)
    assert "new" in admin(hands).topics()
    assert isinstance(hands.now, KafkaLives)
    assert hands.now.running is not None
    assert not hands.now.running.complaints()


@pytest.mark.long
def test_open_transactions_go_over_and_are_ended_there_and_come_back(hands: Hands) -> None:
    """By the producers that began them, which hear only that the connection broke."""
    admin(hands).create_topic("payments")
    seen: list[bytes | None] = []
    for number, change in enumerate((hands.to_penstock, hands.to_kafka)):
        kept, dropped = f"kept-{number}", f"dropped-{number}"
        first, second = transactional(hands, kept), transactional(hands, dropped)
        write_open(first, [kept.encode()])
        write_open(second, [dropped.encode()])
        assert committed_values(hands) == seen
        change()
        assert committed_values(hands) == seen, "an open transaction was shown"
        first.commit_transaction(SECONDS_MAX)
        second.abort_transaction(SECONDS_MAX)
        seen.append(kept.encode())
        wait_until(lambda: committed_values(hands) == seen)
        again = transactional(hands, kept)
        write_open(again, [b"again"])
        again.commit_transaction(SECONDS_MAX)
        seen.append(b"again")
        wait_until(lambda: committed_values(hands) == seen)


@pytest.mark.long
def test_a_transaction_whose_producer_is_gone_runs_out_of_time_in_the_other_hands(hands: Hands) -> None:
    admin(hands).create_topic("payments")
    gone = transactional(hands, "gone", timeout_ms=2000)
    write_open(gone, [b"never"])
    del gone  # it says nothing as it goes
    hands.to_penstock()
    other = transactional(hands, "other")
    write_open(other, [b"seen"])
    other.commit_transaction(SECONDS_MAX)
    wait_until(lambda: committed_values(hands) == [b"seen"])


@pytest.mark.long
def test_a_group_and_its_transactional_offsets_go_over_in_the_middle(hands: Hands) -> None:
    """Offsets that a transaction was to commit are pending in the log; its end decides over them there."""
    admin(hands).create_topic("orders")
    admin(hands).create_topic("payments")
    admin(hands).produce("orders", [Record(value) for value in numbered(0, 20)])
    consumer = member(hands)
    take(consumer, numbered(0, 5))
    producer = transactional(hands, "worker")
    write_open(producer, [b"paid"])
    producer.send_offsets_to_transaction(
        [TopicPartition("orders", 0, 12)], consumer.consumer_group_metadata(), SECONDS_MAX
    )
    consumer.close()
    hands.to_penstock()
    producer.commit_transaction(SECONDS_MAX)
    consumer = member(hands)
    try:
        take(consumer, numbered(12, 15))
    finally:
        consumer.close()
    assert committed_values(hands) == [b"paid"]
    hands.to_kafka()
    consumer = member(hands)
    try:
        take(consumer, numbered(15, 20))
    finally:
        consumer.close()


@pytest.mark.long
def test_a_directory_with_acls_needs_an_authorizer(kafka: KafkaPeer, tmp_path: Path) -> None:
    """What kept somebody out of Kafka would let everybody in here."""
    data = tmp_path / "kafka-logs"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    allowed = AclBinding(
        ResourceType.TOPIC,
        "secrets",
        ResourcePatternType.LITERAL,
        "User:somebody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    with kafka_lives(kafka, data, settings) as lives:
        driver = ConfluentDriver(lives.bootstrap)
        [done] = driver.admin.create_acls([allowed]).values()
        done.result(SECONDS_MAX)
        lives.stop()
        refused = refusal(data=data)
        assert refused.code == 2
        assert "the cluster has 1 ACLs, and authorizer.class.name is not set" in refused.err
        lives.start()
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        [found] = driver.admin.describe_acls(everything).result(SECONDS_MAX)
        assert found == allowed
        lives.stop()
