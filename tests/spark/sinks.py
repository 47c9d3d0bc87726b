"""What is in a topic, for tests of the sink: read by the client, which knows nothing of Spark."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerSettings
from penstock.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from penstock.client.settings import parse_servers
from penstock.records import Record

Found = dict[int, list[Record]]


class Server(Protocol):
    """A broker of any make."""

    @property
    def bootstrap(self) -> str: ...

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None: ...


def committed(broker: Server, topic: str) -> Found:
    """By partition, what who reads committed records sees up to the end; an open transaction there is an error."""
    return _read(broker.bootstrap, topic, READ_COMMITTED)


def everything(broker: Server, topic: str) -> Found:
    return _read(broker.bootstrap, topic, READ_UNCOMMITTED)


def values(found: Mapping[int, Sequence[Record]]) -> list[bytes]:
    return [bytes(record.value or b"") for records in found.values() for record in records]


def _read(servers: str, topic: str, isolation_level: int) -> Found:
    with Cluster(parse_servers(servers)) as cluster:
        partitions = [TopicPartition(topic, each) for each in cluster.topic(topic).partitions]
        wanted = dict.fromkeys(partitions, LATEST)
        ends = {each: told.offset for each, told in list_offsets(cluster, wanted).items()}
        settings = ConsumerSettings(isolation_level=isolation_level, partition_bytes_max=4 * 2**20)
        consumer = Consumer(cluster, {each: 0 for each, end in ends.items() if end}, settings)
        found: Found = {each.partition: [] for each in partitions}
        deadline_ms = cluster.clock.now_ms() + 30_000
        while any(position < ends[each] for each, position in consumer.positions.items()):
            assert cluster.clock.now_ms() < deadline_ms, (
                f"{topic} is open past {consumer.positions}, ends {ends}"
            )
            for fetched in consumer.poll(1_000):
                found[fetched.partition.partition] += fetched.records
        return found
