"""Partitions moved to other brokers, over the wire: begun, taken back, listed (KIP-455)."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .errors import BrokerRefused, refused


class Moving(NamedTuple):
    """A partition on its way."""

    replicas: tuple[int, ...]
    """All it has now, old and new."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that there will be."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.adding)


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, BrokerRefused | None]:
    """Begin to move partitions, or, with None, take it back; says of each why it was refused, if it was."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in targets:
        by_topic.setdefault(topic, []).append(number)

    def build(make: Any) -> Any:
        topics = []
        for topic, numbers in by_topic.items():
            rows = []
            for number in numbers:
                replicas = targets[TopicPartition(topic, number)]
                rows.append(
                    make.ReassignablePartition(
                        partition_index=number, replicas=None if replicas is None else tuple(replicas)
                    )
                )
            topics.append(make.ReassignableTopic(name=topic, partitions=tuple(rows)))
        return make.AlterPartitionReassignmentsRequest(
            timeout=_timeout(cluster), allow_replication_factor_change=True, topics=tuple(topics)
        )

    reply = cluster.ask_controller(through_kio(Api.ALTER_PARTITION_REASSIGNMENTS, build), _whole)
    _check(reply, "the reassignment")
    outcomes: dict[TopicPartition, BrokerRefused | None] = {}
    for topic in reply.responses:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            code = int(each.error_code)
            outcomes[partition] = (
                refused(f"partition {partition}", code, each.error_message) if code else None
            )
    return outcomes


def list_reassignments(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, Moving]:
    """What is moving, of these or of all."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions or ():
        by_topic.setdefault(topic, []).append(number)

    def build(make: Any) -> Any:
        topics = None
        if partitions is not None:
            topics = tuple(
                make.ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in by_topic.items()
            )
        return make.ListPartitionReassignmentsRequest(timeout=_timeout(cluster), topics=topics)

    reply = cluster.ask_controller(through_kio(Api.LIST_PARTITION_REASSIGNMENTS, build), _whole)
    _check(reply, "reassignments")
    return {
        TopicPartition(topic.name, each.partition_index): Moving(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in reply.topics
        for each in topic.partitions
    }


def _whole(reply: Any) -> int:
    return int(reply.error_code)


def _check(reply: Any, what: str) -> None:
    if int(reply.error_code):
        raise refused(what, int(reply.error_code), reply.error_message)


def _timeout(cluster: Cluster) -> timedelta:
    return timedelta(milliseconds=cluster.settings.request_timeout_ms)
