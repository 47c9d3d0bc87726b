"""What Metadata tells: brokers, topics, and who leads their partitions."""

from typing import Any, NamedTuple
from uuid import UUID

from penstock.base.ids import LeaderEpoch, Uuid

from .settings import Address

NO_NODE = -1


class BrokerInfo(NamedTuple):
    node_id: int
    address: Address
    rack: str | None = None


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    """NO_NODE where it has none."""
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


def read_metadata(reply: Any) -> ClusterInfo:
    """From any version of the response."""
    brokers = {
        each.node_id: BrokerInfo(each.node_id, Address(each.host, each.port), each.rack)
        for each in reply.brokers
    }
    topics = {each.name: _topic(each) for each in reply.topics if each.name is not None}
    return ClusterInfo(getattr(reply, "cluster_id", None), reply.controller_id, brokers, topics)


def _topic(told: Any) -> TopicInfo:
    topic_id: UUID | None = getattr(told, "topic_id", None)
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
        for each in told.partitions
    }
    return TopicInfo(
        told.name,
        None if topic_id is None else topic_id.bytes,
        told.is_internal,
        dict(sorted(partitions.items())),
        int(told.error_code),
    )
