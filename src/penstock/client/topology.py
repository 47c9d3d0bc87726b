"""Metadata responses: brokers, topics, partitions and leaders."""

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from penstock.base.ids import LeaderEpoch, TopicPartition, Uuid
from penstock.wire import TopicKey

from .settings import Address

NO_NODE = -1


class BrokerInfo(NamedTuple):
    node_id: int
    address: Address
    rack: str | None = None


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    """NO_NODE if it has none."""
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    error_code: int = 0


class TopicInfo(NamedTuple):
    name: str
    topic_id: Uuid | None
    """None from a broker older than Kafka 2.8."""
    is_internal: bool
    partitions: dict[int, PartitionInfo]
    error_code: int = 0


class ClusterInfo(NamedTuple):
    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerInfo]
    topics: dict[str, TopicInfo]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions, by topic."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return numbers


def read_metadata(reply: Any) -> ClusterInfo:
    """From any version of the response."""
    brokers = {
        each.node_id: BrokerInfo(each.node_id, Address(each.host, each.port), each.rack)
        for each in reply.brokers
    }
    topics = {each.name: _topic(each) for each in reply.topics if each.name is not None}
    return ClusterInfo(getattr(reply, "cluster_id", None), reply.controller_id, brokers, topics)


def _topic(described: Any) -> TopicInfo:
    topic_id: UUID | None = getattr(described, "topic_id", None)
    partitions = {
        each.partition_index: PartitionInfo(
            each.partition_index,
            each.leader_id,
            getattr(each, "leader_epoch", -1),
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(getattr(each, "offline_replicas", ())),
            int(each.error_code),
        )
        for each in described.partitions
    }
    return TopicInfo(
        described.name,
        None if topic_id is None else topic_id.bytes,
        described.is_internal,
        dict(sorted(partitions.items())),
        int(described.error_code),
    )


class TopicKeys:
    """Topic ids or names in one Produce or Fetch request, depending on its version.

    Made with the request, so that its reply is parsed correctly even if the metadata changes meanwhile.
    """

    def __init__(self, info: ClusterInfo, names: Iterable[str]) -> None:
        self._ids = {name: info.topics[name].topic_id for name in names}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}

    def newest(self, version_max: int, first_with_ids: int) -> int:
        """The latest usable version: one with topic names if the id of a topic is unknown."""
        return version_max if all(self._ids.values()) else first_with_ids - 1

    def key(self, name: str, uses_ids: bool) -> TopicKey:
        return (self._ids[name] or b"") if uses_ids else name

    def name(self, key: TopicKey) -> str:
        """Empty for an id that is not in the request."""
        return self._names.get(key, "") if isinstance(key, bytes) else key
