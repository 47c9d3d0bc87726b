"""Clients of a cluster: librdkafka through confluent-kafka, with the settings that the goals name."""

import time
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_SECONDS_MAX = 60.0

VALUE = bytes(range(256)) * 4
"""1 KB."""


def create_topic(
    bootstrap: str, topic: str, replicas: list[list[int]], configs: dict[str, str] | None = None
) -> None:
    """Make a topic whose partitions are on these nodes, the leader first, and wait until all of them are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    ends_at = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            wanted = NewTopic(topic, len(replicas), replica_assignment=replicas, config=configs or {})
            admin.create_topics([wanted], operation_timeout=10)[topic].result(timeout=15)
            break
        except Exception as error:  # a cluster that has just started may not know its brokers yet
            if "TOPIC_ALREADY_EXISTS" in str(error):
                break
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.2)
    while time.monotonic() < ends_at:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(found) == len(replicas) and all(
            len(each.isrs) == len(replicas[number]) for number, each in found.items()
        ):
            return
        time.sleep(0.1)
    raise RuntimeError(f"not all replicas of {topic} are in sync after {WAIT_SECONDS_MAX:.0f} s")


def leader(bootstrap: str, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


class Produced(NamedTuple):
    seconds: float
    size: int


def produce(bootstrap: str, topic: str, size: int, acks: str = "all") -> Produced:
    """Send so many bytes in records of 1 KB and batches of 128 KB, as fast as they are taken."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "batch.size": 128 * 1024,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 64 * 1024,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,
        }
    )
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    count = size // len(VALUE)
    began = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(WAIT_SECONDS_MAX)
    seconds = time.perf_counter() - began
    if failed or left:
        raise RuntimeError(f"{len(failed)} records failed, {left} are left: {failed[:1]}")
    return Produced(seconds, count * len(VALUE))


def consume(bootstrap: str, topic: str, size: int) -> None:
    """Read so much of a topic with one partition, from its beginning, with the settings that consumers have."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got, ends_at = 0, time.monotonic() + WAIT_SECONDS_MAX
    while got < size and time.monotonic() < ends_at:
        got += sum(len(each.value() or b"") for each in consumer.consume(10_000, 1.0) if not each.error())
    consumer.close()
    if got < size:
        raise RuntimeError(f"{got} of {size} bytes were read in {WAIT_SECONDS_MAX:.0f} s")


class Pulse:
    """A producer that sends a record to one partition every few milliseconds, and notes when each is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._topic = topic
        self.acknowledged: list[float] = []

    def beat(self, seconds: float) -> None:
        ends_at = time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            self._producer.produce(self._topic, b"beat", partition=0, on_delivery=self._told)
            self._producer.poll(0.005)

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.acknowledged.append(time.perf_counter())

    def longest_pause(self, since: float) -> float:
        """Between two acknowledgements, the last before a moment counted in."""
        if self._producer.flush(WAIT_SECONDS_MAX):
            raise RuntimeError("not every record was acknowledged")
        before = [each for each in self.acknowledged if each <= since][-1:]
        times = before + [each for each in self.acknowledged if each > since]
        return max(b - a for a, b in pairwise(times))
