"""Finds partitions of `__consumer_offsets` whose groups cannot be listed.

ListGroups leaves out the groups of a partition that the broker cannot read, without an error. But DescribeGroups
returns the error for every group id of that partition, even if no such group exists. So one made-up group id per
partition is described.
"""

from itertools import count
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_for
from penstock.coordinator.transactions.requests import GROUP_TOPIC
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .coordinators import AGAIN


class UnlistedPartitions(NamedTuple):
    """Partitions whose groups cannot be listed, with the errors."""

    partitions: dict[int, ErrorCode]
    of: int
    """The number of partitions of the topic."""


def unlisted_partitions(cluster: Cluster) -> UnlistedPartitions:
    topic = cluster.refresh([GROUP_TOPIC]).topics.get(GROUP_TOPIC)
    if topic is None or topic.error_code:
        return UnlistedPartitions({}, 0)  # there has never been a group
    names = _a_name_for_each(len(topic.partitions))
    errors: dict[int, ErrorCode] = {}
    by_leader: dict[int, list[int]] = {}
    for number, partition in topic.partitions.items():
        if partition.leader in cluster.info.brokers:
            by_leader.setdefault(partition.leader, []).append(number)
        else:
            errors[number] = ErrorCode.LEADER_NOT_AVAILABLE
    for leader, numbers in by_leader.items():
        request = _about(tuple(names[number] for number in numbers))
        for described in cluster.ask_node(leader, request).groups:
            code = int(described.error_code)
            if code in AGAIN:
                errors[partition_for(described.group_id, len(names))] = ErrorCode(code)
    return UnlistedPartitions(dict(sorted(errors.items())), len(names))


def _about(names: tuple[str, ...]) -> Request[Any]:
    return through_kio(
        Api.DESCRIBE_GROUPS,
        lambda make: make.DescribeGroupsRequest(groups=names, include_authorized_operations=False),
    )


def _a_name_for_each(partitions: int) -> list[str]:
    names: dict[int, str] = {}
    for number in count():
        if len(names) == partitions:
            break
        name = f"any-{number}"
        names.setdefault(partition_for(name, partitions), name)
    return [names[number] for number in range(partitions)]
