"""The log end of each replica, and the eligible leader replicas of partitions.

Only a replica itself knows its log end. Followers answer ListOffsets with the replica id of a debugger too, up to the
log end, in Apache Kafka as well. (DescribeLogDirs returns a lag, but behind the high watermark that the replica knows,
which is 0 for a follower that is behind.)
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from penstock.base.ids import Offset, TopicPartition
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .errors import NETWORK_ERRORS, NotServed
from .offsets import LATEST
from .topology import by_topic

DEBUGGER: Final = -2
"""The replica id that followers answer."""

PAGE_PARTITIONS: Final = 2000
"""Partitions in one page of topics: Kafka's default."""


class Eligible(NamedTuple):
    """Replicas that may lead if none is in sync (KIP-966)."""

    replicas: tuple[int, ...]
    last_known: tuple[int, ...]


def log_ends(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int]], timeout_ms: float
) -> dict[tuple[TopicPartition, int], Offset]:
    """The log end of each replica, by partition and broker. Replicas that do not answer in time are left out."""
    by_node: dict[int, list[TopicPartition]] = {}
    for partition, replicas in wanted.items():
        for node_id in replicas:
            by_node.setdefault(node_id, []).append(partition)
    found: dict[tuple[TopicPartition, int], Offset] = {}
    for node_id, partitions in sorted(by_node.items()):
        if node_id not in cluster.info.brokers:
            continue  # the broker is down
        try:
            reply = cluster.link(node_id).ask(_latest(partitions, timeout_ms), timeout_ms)
        except NETWORK_ERRORS:
            continue
        for topic in reply.topics:
            for each in topic.partitions:
                if not int(each.error_code):
                    found[TopicPartition(topic.name, each.partition_index), node_id] = each.offset
    return found


def _latest(partitions: Sequence[TopicPartition], timeout_ms: float) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.ListOffsetsRequest(
            replica_id=DEBUGGER,
            isolation_level=0,
            timeout=timedelta(milliseconds=timeout_ms),
            topics=tuple(
                make.ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        make.ListOffsetsPartition(
                            partition_index=number, current_leader_epoch=-1, timestamp=LATEST
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(partitions).items()
            ),
        )

    return through_kio(Api.LIST_OFFSETS, build, version_min=2)


def eligible_replicas(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, Eligible]:
    """The eligible leader replicas of each partition; empty from brokers older than Kafka 3.8."""
    found: dict[TopicPartition, Eligible] = {}
    cursor: tuple[str, int] | None = None
    while True:
        try:
            reply = cluster.ask_any(_page(topics, cursor))
        except NotServed:
            return {}
        for topic in reply.topics:
            for each in topic.partitions:
                found[TopicPartition(topic.name, each.partition_index)] = Eligible(
                    tuple(each.eligible_leader_replicas or ()), tuple(each.last_known_elr or ())
                )
        if reply.next_cursor is None:
            return found
        cursor = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)


def _page(topics: Sequence[str], cursor: tuple[str, int] | None) -> Request[Any]:
    def build(make: Any) -> Any:
        start = None if cursor is None else make.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        return make.DescribeTopicPartitionsRequest(
            topics=tuple(make.TopicRequest(name=name) for name in sorted(topics)),
            response_partition_limit=PAGE_PARTITIONS,
            cursor=start,
        )

    return through_kio(Api.DESCRIBE_TOPIC_PARTITIONS, build)
