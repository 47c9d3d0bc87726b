"""ListOffsets: the start, the end, and the offset at a time of partitions."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TimestampMs, TopicPartition
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .errors import NETWORK_ERRORS, RETRIABLE, ClientError, no_partition, refused
from .topology import by_topic

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""Special times; the numbers are the protocol's."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class FoundOffset(NamedTuple):
    offset: Offset
    """-1 if no record is at or after the time."""
    timestamp: TimestampMs
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, TimestampMs],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """The first offsets at or after a time, or at one of the special times. Raises unless all partitions answer."""
    for topic in {each.topic for each in wanted}:
        cluster.topic(topic)
    backoff = cluster.backoff(timeout_ms)
    found: dict[TopicPartition, FoundOffset] = {}
    left = dict(wanted)
    while True:
        problem: ClientError | None = None
        by_leader: dict[int, dict[TopicPartition, TimestampMs]] = {}
        for partition, time in left.items():
            leader = cluster.leader(partition)
            if leader is None:
                problem = _no_leader(cluster, partition)
            else:
                by_leader.setdefault(leader.leader, {})[partition] = time
        for node_id, times in by_leader.items():
            try:
                reply = cluster.link(node_id).ask(_request(cluster, times, isolation_level, backoff.left_ms))
            except NETWORK_ERRORS as error:
                problem = error
                continue
            problem = _collect(reply, found) or problem
        left = {partition: time for partition, time in left.items() if partition not in found}
        if not left:
            return found
        assert problem is not None  # the remaining partitions got an error or no answer
        backoff.pause(problem)
        cluster.refresh({each.topic for each in left}, timeout_ms=backoff.left_ms)


def _no_leader(cluster: Cluster, partition: TopicPartition) -> ClientError:
    topic = cluster.info.topics.get(partition.topic)
    if topic is not None and not topic.error_code and partition.partition not in topic.partitions:
        raise no_partition(partition.topic, partition.partition, len(topic.partitions))
    return refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE)


def _request(
    cluster: Cluster, times: Mapping[TopicPartition, TimestampMs], isolation_level: int, left_ms: float
) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            timeout=timedelta(milliseconds=max(1, min(cluster.settings.request_timeout_ms, int(left_ms)))),
            topics=tuple(
                make.ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        make.ListOffsetsPartition(
                            partition_index=number,
                            current_leader_epoch=-1,
                            timestamp=times[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(times).items()
            ),
        )

    newest = 7 if MAX_TIMESTAMP in times.values() else 2  # for the isolation level, the largest timestamp
    return through_kio(Api.LIST_OFFSETS, build, version_min=newest)


def _collect(reply: Any, found: dict[TopicPartition, FoundOffset]) -> ClientError | None:
    """Store the offsets found; return the last retriable error."""
    problem: ClientError | None = None
    for topic in reply.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            code = int(each.error_code)
            if not code:
                found[partition] = FoundOffset(each.offset, each.timestamp, getattr(each, "leader_epoch", -1))
                continue
            problem = refused(f"offsets of {partition}", code)
            if code not in RETRIABLE:
                raise problem
    return problem
