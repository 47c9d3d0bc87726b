"""Faults on purpose, as librdkafka sees them; docs/testing.md, which is run too, has other clients."""

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import Broker

SECONDS_MAX = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        yield running


def producer_of(broker: Broker, **settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
            **settings,
        }
    )


def send(producer: Producer, value: bytes) -> KafkaError | None:
    """What became of a record."""
    told: list[KafkaError | None] = []
    producer.produce("orders", value, on_delivery=lambda error, _: told.append(error))
    producer.flush(SECONDS_MAX)
    return told[0]


def values(broker: Broker, isolation: str = "read_uncommitted") -> list[bytes]:
    """All that is in the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "the end was not reached"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.value() or b"")
    finally:
        consumer.close()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_a_retriable_error_is_retried_and_the_record_is_there_once(broker: Broker) -> None:
    with broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        assert send(producer_of(broker, **{"enable.idempotence": True}), b"1") is None
    assert fault.hits == 3
    assert values(broker) == [b"1"]


def test_a_final_error_reaches_the_application_and_nothing_is_written(broker: Broker) -> None:
    producer = producer_of(broker)
    with broker.fail("Produce", error="INVALID_RECORD"):
        error = send(producer, b"1")
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert send(producer, b"2") is None
    assert values(broker) == [b"2"]


def test_a_lost_reply_makes_an_idempotent_producer_send_again_and_no_duplicate(broker: Broker) -> None:
    producer = producer_of(broker, **{"enable.idempotence": True})
    with broker.drop("Produce", handled=True, times=1) as fault:
        assert send(producer, b"1") is None
    assert fault.hits == 1
    assert values(broker) == [b"1"]


def test_a_lost_reply_makes_a_plain_producer_write_twice(broker: Broker) -> None:
    """What a test of an application's own idempotence needs."""
    producer = producer_of(broker)
    with broker.drop("Produce", handled=True, times=1):
        assert send(producer, b"1") is None
    assert values(broker) == [b"1", b"1"]


def test_a_lost_request_is_sent_again(broker: Broker) -> None:
    with broker.drop("Produce", times=1):
        assert send(producer_of(broker), b"1") is None
    assert values(broker) == [b"1"]


def test_a_delayed_reply_makes_the_request_time_out(broker: Broker) -> None:
    producer = producer_of(broker, **{"message.timeout.ms": 300})
    with broker.delay("Produce", 5):
        error = send(producer, b"1")
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT


def test_a_fault_of_one_topic_leaves_the_others_alone(broker: Broker) -> None:
    broker.create_topic("payments")
    told: dict[str, KafkaError | None] = {}
    producer = producer_of(broker)
    with broker.fail("Produce", error="INVALID_RECORD", topic="payments"):
        for topic in ("orders", "payments"):
            producer.produce(topic, b"1", on_delivery=lambda error, sent: told.update({sent.topic(): error}))
            producer.flush(SECONDS_MAX)
    assert told["orders"] is None
    assert told["payments"] is not None


def test_a_fault_of_one_client_leaves_the_others_alone(broker: Broker) -> None:
    with broker.fail("Produce", error="INVALID_RECORD", client_id="unlucky"):
        assert send(producer_of(broker, **{"client.id": "lucky"}), b"1") is None
        assert send(producer_of(broker, **{"client.id": "unlucky"}), b"2") is not None


def test_metadata_with_an_error_still_has_its_brokers(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with broker.fail("Metadata", error="TOPIC_AUTHORIZATION_FAILED", topic="orders"):
        found = admin.list_topics("orders", SECONDS_MAX)
    assert len(found.brokers) == 1
    assert found.topics["orders"].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_admin_calls_fail_as_asked(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with (
        broker.fail("CreateTopics", error="POLICY_VIOLATION", times=1),
        pytest.raises(KafkaException) as caught,
    ):
        admin.create_topics([confluent_kafka.admin.NewTopic("other", 1)])["other"].result(SECONDS_MAX)
    assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION
    admin.create_topics([confluent_kafka.admin.NewTopic("other", 1)])["other"].result(SECONDS_MAX)


def test_a_full_disk_refuses_records_and_takes_them_when_there_is_room(broker: Broker) -> None:
    producer = producer_of(broker, **{"enable.idempotence": True})
    assert send(producer, b"1") is None
    broker.disk.fill()
    told: list[KafkaError | None] = []
    with broker.delay("Produce", 0) as asked:
        producer.produce("orders", b"2", on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
        eventually(lambda: producer.poll(0) >= 0 and asked.hits >= 2)
        assert told == []
        broker.disk.clear()
        assert producer.flush(SECONDS_MAX) == 0
    assert told == [None]
    assert values(broker) == [b"1", b"2"]


def test_faults_outlive_a_restart_and_end_when_they_are_cleared(broker: Broker) -> None:
    fault = broker.fail("Produce", error="INVALID_RECORD")
    broker.restart()
    producer = producer_of(broker)
    assert send(producer, b"1") is not None
    broker.clear_faults()
    assert fault.is_over
    assert send(producer, b"2") is None


@pytest.mark.parametrize(
    ("api", "error", "message"),
    [
        ("Produse", "NONE", "'Produse' is not a Kafka API"),
        ("Produce", "NOT_A_LEADER", "'NOT_A_LEADER' is not a Kafka error"),
    ],
)
def test_a_misspelt_fault_is_refused(broker: Broker, api: str, error: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        broker.fail(api, error=error)
