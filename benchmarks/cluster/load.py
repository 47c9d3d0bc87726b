"""Clients of a cluster: librdkafka through confluent-kafka, with the settings that the goals name."""

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster.servers import Cluster
from penstock.client import cluster as client
from penstock.client.quorum import describe_quorum
from penstock.client.settings import parse_address

WAIT_SECONDS_MAX = 90.0

VALUE = bytes(range(256)) * 4
"""1 KB."""

HANDED_OVER_MAX = 1000
"""Records that the client is given at once."""

WAITING_MAX = 60_000
"""Records with the client beyond which it is given no more for now: to have it refuse them, a thousand at a time,
would cost it more the slower the nodes are."""


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


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Have a topic gone, its files too."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=10)[topic].result(timeout=15)
    ends_at = time.monotonic() + WAIT_SECONDS_MAX
    while any(cluster.data.glob(f"**/{topic}-*")):
        if time.monotonic() > ends_at:
            raise RuntimeError(f"the files of {topic} are still there after {WAIT_SECONDS_MAX:.0f} s")
        time.sleep(0.1)


def leader(bootstrap: str, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


def active_controller(bootstrap: str) -> int:
    servers = [parse_address(each) for each in bootstrap.split(",")]
    with client.Cluster(servers) as cluster:
        return describe_quorum(cluster).leader_id


class Produced(NamedTuple):
    seconds: float
    size: int
    client_cpu: float
    """CPU seconds of this process, librdkafka's threads included: they share the cores with the nodes."""


def produce(bootstrap: str, topic: str, size: int, acks: str = "all") -> Produced:
    """Send so many bytes in records of 1 KB and batches of 128 KB, as fast as they are taken.

    The client is as cheap as confluent-kafka can be, or it would be what is measured: records are handed over many at
    a time, and only failures are reported one by one; that none is left says of all others that they are acknowledged.
    """
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "batch.size": 128 * 1024,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 128 * 1024,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )
    count = size // len(VALUE)
    used, began = time.process_time(), time.perf_counter()
    left = count
    while left:
        if len(producer) > WAITING_MAX:
            producer.poll(0.002)
            continue
        records: list[dict[str, Any]] = [{"value": VALUE}] * min(left, HANDED_OVER_MAX)
        left -= int(producer.produce_batch(topic, records, on_delivery=told))
    unsent = producer.flush(WAIT_SECONDS_MAX)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    if failed or unsent:
        raise RuntimeError(f"{len(failed)} records failed, {unsent} are left: {failed[:1]}")
    return Produced(seconds, count * len(VALUE), used)


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

    def __init__(self, bootstrap: str, topic: str, more: Mapping[str, Any] | None = None) -> None:
        """`more` settings than those of a careful producer."""
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
            **(more or {}),
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
