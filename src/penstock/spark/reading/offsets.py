"""Resolves subscriptions to partitions and limits to offsets, on the driver, by asking the cluster.

A broker that has just started may not know a topic yet, so an unknown topic is looked up again for a short while
before it counts as missing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition, Uuid
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from penstock.client.topology import TopicInfo
from penstock.spark.errors import BadOption
from penstock.spark.reading.options import (
    NEWEST,
    OLDEST,
    Limit,
    LimitKind,
    NoMatch,
    SourceOptions,
    Subscription,
    SubscriptionKind,
)

MISSING_WAIT_MS: Final = 1_500
"""How long a topic may be unknown before it counts as missing."""

_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class SubscribedPartitions(NamedTuple):
    partitions: dict[TopicPartition, Uuid | None]
    """Partitions that exist, each with the id of its topic."""
    missing: tuple[str, ...]
    """Topics and partitions that the options name and that do not exist."""

    def require_all(self) -> "SubscribedPartitions":
        """Raise BadOption if something is missing: all must exist when a query first starts."""
        if self.missing:
            names = ", ".join(self.missing)
            raise BadOption(f"{names} does not exist: create it, or correct the option that names it")
        return self


def open_cluster(options: SourceOptions) -> Cluster:
    return Cluster(options.servers, options.client)


def find_partitions(cluster: Cluster, wanted: Subscription) -> SubscribedPartitions:
    if wanted.by is SubscriptionKind.PATTERN:
        pattern = re.compile(wanted.pattern)
        every = cluster.refresh(None).topics.values()
        chosen = [each for each in every if not each.is_internal and pattern.fullmatch(each.name)]
        return SubscribedPartitions(_partitions(each for each in chosen if not each.error_code), ())
    names = wanted.topics or tuple(sorted({each.topic for each in wanted.partitions}))
    metadata = cluster.refresh(names).topics
    topics, missing = [], []
    for name in names:
        topic = metadata.get(name)
        if topic is None or topic.error_code:
            topic = _again(cluster, name)
        if topic is None:
            missing.append(f"topic {name}")
        else:
            topics.append(topic)
    there = _partitions(topics)
    if wanted.by is SubscriptionKind.PARTITIONS:
        known = {each.name for each in topics}
        missing += [
            f"partition {each}" for each in wanted.partitions if each.topic in known and each not in there
        ]
        there = {each: there[each] for each in wanted.partitions if each in there}
    return SubscribedPartitions(there, tuple(missing))


def _again(cluster: Cluster, name: str) -> TopicInfo | None:
    try:
        return cluster.topic(name, wait_ms=MISSING_WAIT_MS)
    except BrokerRefused as error:
        if error.code in _ABSENT:
            return None
        raise


def _partitions(topics: Iterable[TopicInfo]) -> dict[TopicPartition, Uuid | None]:
    found = {
        TopicPartition(topic.name, index): topic.topic_id for topic in topics for index in topic.partitions
    }
    return dict(sorted(found.items()))


def earliest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
    return _list(cluster, dict.fromkeys(partitions, EARLIEST), READ_UNCOMMITTED)


def latest_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation_level: int,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, Offset]:
    """The end for an isolation level: the high watermark, or the last stable offset."""
    return _list(cluster, dict.fromkeys(partitions, LATEST), isolation_level, timeout_ms)


def resolve(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    limit: Limit,
    *,
    isolation_level: int,
    no_match: NoMatch = NoMatch.LATEST,
) -> dict[TopicPartition, Offset]:
    """Resolve a limit to offsets. Offsets of an option are not checked against the log."""
    wanted = list(partitions)
    if limit.edge is LimitKind.EARLIEST:
        return earliest_offsets(cluster, wanted)
    if limit.edge is LimitKind.LATEST:
        return latest_offsets(cluster, wanted, isolation_level)
    check_complete(wanted, limit)
    if limit.edge is LimitKind.OFFSETS:
        named = {each: offset for each, offset in limit.values.items() if offset not in (NEWEST, OLDEST)}
        oldest = earliest_offsets(cluster, [each for each in wanted if limit.values[each] == OLDEST])
        newest = latest_offsets(
            cluster, [each for each in wanted if limit.values[each] == NEWEST], isolation_level
        )
        return named | oldest | newest
    times = limit.values if limit.edge is LimitKind.TIMES else dict.fromkeys(wanted, limit.time_ms)
    found = _list(cluster, times, isolation_level)
    late = [each for each, offset in found.items() if offset < 0]
    if late and no_match is NoMatch.ERROR:
        raise BadOption(
            f"option {limit.option}: partition {late[0]} has no record at or after {times[late[0]]} ms; "
            "startingOffsetsByTimestampStrategy=latest starts at its end then"
        )
    return found | latest_offsets(cluster, late, isolation_level)


def _list(
    cluster: Cluster,
    times: Mapping[TopicPartition, int],
    isolation_level: int,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, Offset]:
    if not times:
        return {}
    found = list_offsets(cluster, times, isolation_level=isolation_level, timeout_ms=timeout_ms)
    return {partition: each.offset for partition, each in found.items()}


def check_complete(wanted: Iterable[TopicPartition], limit: Limit) -> None:
    """Check that offsets and times by partition cover all partitions, as in Spark's Kafka source."""
    if limit.edge not in (LimitKind.OFFSETS, LimitKind.TIMES):
        return
    there = set(wanted)
    for each in sorted(there - limit.values.keys()):
        hint = ", -1 is latest and -2 is earliest" if limit.edge is LimitKind.OFFSETS else ""
        raise BadOption(
            f"option {limit.option} has no value for partition {each}, expected one for every partition{hint}"
        )
    for each in sorted(limit.values.keys() - there):
        raise BadOption(f"option {limit.option} names partition {each}, which is not read")
