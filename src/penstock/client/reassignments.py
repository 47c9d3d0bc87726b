"""Starts, cancels and lists reassignments of partitions (KIP-455), and elects preferred leaders."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .errors import BrokerRefused, check, code_of, refused
from .topology import by_topic

_PREFERRED: Final = 0


class Moving(NamedTuple):
    """A partition that is being reassigned."""

    replicas: tuple[int, ...]
    """All current replicas, old and new."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.adding)


def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, BrokerRefused | None]:
    """Start to move partitions, or cancel with None. Returns the error of each partition, if any."""

    def build(make: Any) -> Any:
        def row(partition: TopicPartition) -> Any:
            replicas = targets[partition]
            return make.ReassignablePartition(
                partition_index=partition.partition, replicas=None if replicas is None else tuple(replicas)
            )

        return make.AlterPartitionReassignmentsRequest(
            timeout=_timeout(cluster),
            allow_replication_factor_change=True,
            topics=tuple(
                make.ReassignableTopic(
                    name=topic, partitions=tuple(row(TopicPartition(topic, number)) for number in numbers)
                )
                for topic, numbers in by_topic(targets).items()
            ),
        )

    reply = cluster.ask_controller(through_kio(Api.ALTER_PARTITION_REASSIGNMENTS, build), code_of)
    check("the reassignment", reply)
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
    """The reassignments in progress, of these partitions or of all."""

    def build(make: Any) -> Any:
        topics = None
        if partitions is not None:
            topics = tuple(
                make.ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in by_topic(partitions).items()
            )
        return make.ListPartitionReassignmentsRequest(timeout=_timeout(cluster), topics=topics)

    reply = cluster.ask_controller(through_kio(Api.LIST_PARTITION_REASSIGNMENTS, build), code_of)
    check("reassignments", reply)
    return {
        TopicPartition(topic.name, each.partition_index): Moving(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in reply.topics
        for each in topic.partitions
    }


def elect_preferred(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Elect the preferred leader of each partition, the first in its replica list (KIP-460). No error if it leads
    already."""

    def build(make: Any) -> Any:
        return make.ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=tuple(
                make.TopicPartitions(topic=topic, partitions=tuple(numbers))
                for topic, numbers in by_topic(partitions).items()
            ),
            timeout=_timeout(cluster),
        )

    reply = cluster.ask_controller(
        through_kio(Api.ELECT_LEADERS, build), lambda reply: int(getattr(reply, "error_code", 0))
    )
    for topic in reply.replica_election_results:
        for each in topic.partition_result:
            code = int(each.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                partition = TopicPartition(topic.topic, each.partition_id)
                raise refused(f"the election of {partition}'s leader", code, each.error_message)


def _timeout(cluster: Cluster) -> timedelta:
    return timedelta(milliseconds=cluster.settings.request_timeout_ms)
