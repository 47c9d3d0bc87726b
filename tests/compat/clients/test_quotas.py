"""confluent-kafka's producer and consumer under quotas. Times have lower bounds only: any machine may be slow."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client.cluster import Cluster
from penstock.client.quotas import alter_quotas
from penstock.client.settings import parse_servers
from penstock.metadata.quotas import QuotaEntity
from penstock.testing import Broker

RATE = 300_000
MINE: QuotaEntity = (("client-id", "mine"),)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With rates over one to two seconds, so that a burst is short."""
    with Broker(settings={"quota.window.num": 2, "num.partitions": 1}) as running:
        yield running


def limit(broker: Broker, key: str, value: float | None) -> None:
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        alter_quotas(cluster, MINE, {key: value})


def produce(broker: Broker, topic: str, count: int, client_id: str) -> tuple[float, list[float]]:
    """Send records of 10 kB. Returns how long it took, and the delays that the broker told."""
    delays: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": lambda event: delays.append(event.throttle_time),
            "linger.ms": 1,
            "batch.size": 50_000,
        }
    )
    began = time.monotonic()
    for _ in range(count):
        producer.produce(topic, b"x" * 10_000)
        producer.poll(0)
    assert producer.flush(60) == 0
    return time.monotonic() - began, [each for each in delays if each]


def test_a_producer_is_slowed_to_its_rate_and_loses_nothing(broker: Broker) -> None:
    limit(broker, "producer_byte_rate", RATE)
    took, delays = produce(broker, "slow", 120, "mine")
    # 1.2 MB at 300 kB a second, without a burst of two seconds and the last delay, which nobody waits for.
    assert took > 1.2e6 / RATE - 2 - 0.5
    assert delays
    _, others = produce(broker, "slow", 120, "other")
    assert not others
    limit(broker, "producer_byte_rate", None)
    _, afterwards = produce(broker, "slow", 60, "mine")
    assert not afterwards


def test_a_consumer_is_slowed_to_its_rate_and_gets_everything(broker: Broker) -> None:
    produce(broker, "full", 120, "other")
    limit(broker, "consumer_byte_rate", RATE)
    delays: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "mine",
            "group.id": "g",
            "throttle_cb": lambda event: delays.append(event.throttle_time),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("full", 0, 0)])
    began, received = time.monotonic(), 0
    while received < 120:
        message = consumer.poll(30)
        assert message is not None
        received += message.error() is None
    assert time.monotonic() - began > 1.2e6 / RATE - 2 - 0.5
    assert any(delays)
    consumer.close()
    limit(broker, "consumer_byte_rate", None)
