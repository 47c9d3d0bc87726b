"""A clock that the test moves: what takes days, hours or minutes happens at once."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import Broker, Cluster

SECONDS_MAX = 60.0


def produce(bootstrap: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce("orders", value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0


def first_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looker", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("orders", 0), SECONDS_MAX)[0])
    finally:
        consumer.close()


class Member:
    """A consumer in a group, and what its listener heard."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self.heard: list[str] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "billing", "log_level": 0, **settings}
        )
        self._consumer.subscribe(
            ["orders"],
            on_assign=lambda *_: self.heard.append("assigned"),
            on_revoke=lambda *_: self.heard.append("revoked"),
            on_lost=lambda *_: self.heard.append("lost"),
        )

    def poll_until_heard(self, *heard: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while self.heard != list(heard):
            self._consumer.poll(0.02)
            assert time.monotonic() < deadline, f"expected {heard}, heard {self.heard}"

    def close(self) -> None:
        self._consumer.close()


CLASSIC = {"heartbeat.interval.ms": 100, "session.timeout.ms": 45_000}
"""A session that ends within no test by itself."""


def test_retention_deletes_what_is_eight_days_old() -> None:
    with Broker() as broker:
        broker.create_topic("orders", retention_ms=7 * 24 * 3600 * 1000, segment_bytes=1024)
        produce(broker.bootstrap, *(b"x" * 600 for _ in range(4)))
        broker.clock.advance(days=6)
        assert first_offset(broker.bootstrap) == 0
        broker.clock.advance(days=2)
        assert first_offset(broker.bootstrap) > 0


def test_a_member_that_fell_silent_loses_its_session() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

        def members() -> int:
            described = admin.describe_consumer_groups(["billing"])["billing"].result(SECONDS_MAX)
            return len(described.members)

        silent = Member(broker.bootstrap, **CLASSIC)
        silent.poll_until_heard("assigned")
        assert members() == 1
        with broker.drop("Heartbeat"), broker.drop("LeaveGroup"), broker.drop("JoinGroup"):
            broker.clock.advance(minutes=1)
            assert members() == 0
        silent.close()


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "log_level": 0})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("orders", b"never")
        assert producer.flush(SECONDS_MAX) == 0
        broker.clock.advance(minutes=2)  # transaction.timeout.ms of librdkafka is one minute
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(SECONDS_MAX)
        assert caught.value.args[0].code() in (
            KafkaError._FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.PRODUCER_FENCED,
        )


def test_time_goes_on_after_a_jump_and_outlives_a_restart() -> None:
    with Broker() as broker:
        broker.create_topic("orders", message_timestamp_type="LogAppendTime")
        produce(broker.bootstrap, b"1")
        broker.clock.advance(hours=1)
        produce(broker.bootstrap, b"2")
        broker.restart()
        produce(broker.bootstrap, b"3")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("orders", 0, 0)])
        times = [each.timestamp()[1] for each in consumer.consume(3, SECONDS_MAX)]
        consumer.close()
    assert times[1] - times[0] >= 3_600_000
    assert times[2] >= times[1]


def test_a_clock_does_not_go_back() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="only move forward"):
        broker.clock.advance(-1)


def test_a_broker_that_is_down_needs_no_time_to_jump() -> None:
    broker = Broker()
    broker.clock.advance(days=1)
    with broker:
        broker.kill()
        broker.clock.advance(days=1)


def test_a_cluster_keeps_together_when_its_clock_jumps() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic(
            "orders", replication_factor=3, min_insync_replicas=3, retention_ms=3_600_000, segment_bytes=1024
        )
        produce(cluster.bootstrap, *(b"x" * 600 for _ in range(3)))
        leader = cluster.leader_of("orders")
        cluster.clock.advance(days=1)
        assert cluster.leader_of("orders") is leader
        assert first_offset(cluster.bootstrap) > 0
        produce(cluster.bootstrap, b"after")  # with all three in sync


@pytest.mark.parametrize("settings", [CLASSIC, {"group.protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_session_that_is_ended_makes_the_member_join_again(settings: dict[str, object]) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        member = Member(broker.bootstrap, **settings)
        member.poll_until_heard("assigned")
        broker.expire_session("billing")
        member.poll_until_heard("assigned", "lost", "assigned")
        member.close()


def test_a_rebalance_can_be_asked_for() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        member = Member(broker.bootstrap, **CLASSIC)
        member.poll_until_heard("assigned")
        broker.rebalance("billing")
        member.poll_until_heard("assigned", "revoked", "assigned")
        member.close()


def test_a_group_that_is_not_there_is_an_error() -> None:
    with Broker() as broker, pytest.raises(Exception, match="topic __consumer_offsets does not exist yet"):
        broker.rebalance("nobody")
