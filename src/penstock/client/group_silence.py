"""Which groups nobody can tell of.

A broker leaves the groups of a partition of `__consumer_offsets` that it cannot read out of its list without a word:
the protocol has no place for one. But it does say so to whoever asks about a group of that partition, and it says the
same of every group there, whether there is one of that name or not. So one name of each partition is made up, and
asked about.
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


class Silence(NamedTuple):
    """The partitions whose groups are not told, and why not."""

    partitions: dict[int, ErrorCode]
    of: int
    """How many partitions there are in all."""


def silence(cluster: Cluster) -> Silence:
    topic = cluster.refresh([GROUP_TOPIC]).topics.get(GROUP_TOPIC)
    if topic is None or topic.error_code:
        return Silence({}, 0)  # no group has ever been there
    names = _a_name_for_each(len(topic.partitions))
    silent: dict[int, ErrorCode] = {}
    by_leader: dict[int, list[int]] = {}
    for number, partition in topic.partitions.items():
        if partition.leader in cluster.info.brokers:
            by_leader.setdefault(partition.leader, []).append(number)
        else:
            silent[number] = ErrorCode.LEADER_NOT_AVAILABLE
    for leader, numbers in by_leader.items():
        request = _about(tuple(names[number] for number in numbers))
        for told in cluster.ask_node(leader, request).groups:
            code = int(told.error_code)
            if code in AGAIN:
                silent[partition_for(told.group_id, len(names))] = ErrorCode(code)
    return Silence(dict(sorted(silent.items())), len(names))


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
