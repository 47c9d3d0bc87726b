"""Replicas whose files could not be made, on their way out of their ISRs.

A replica without files cannot be written to, and `acks=all` would wait for it until its leader takes it out
(`replica.lag.time.max.ms`). So it leaves the ISR by itself, as one does whose disk fails later (`failing_disk`); a
leader hands over. It does not stay eligible to lead: it has nothing.
"""

from collections.abc import Iterable

from penstock.base.ids import TopicPartition
from penstock.metadata import ClusterImage
from penstock.metadata.controller.requests import DAMAGED, IsrChange, IsrMember


def changes_without(node_id: int, names: Iterable[TopicPartition], image: ClusterImage) -> list[IsrChange]:
    """ISRs without this broker, for those of the partitions in which it is not the last one."""
    changes = []
    for name in names:
        topic = image.topics.get(name.topic)
        placed = None if topic is None else topic.partitions.get(name.partition)
        if topic is None or placed is None or node_id not in placed.isr or len(placed.isr) == 1:
            continue
        others = tuple(IsrMember(each) for each in placed.isr if each != node_id)
        changes.append(
            IsrChange(topic.id, name.partition, placed.leader_epoch, placed.partition_epoch, others, DAMAGED)
        )
    return changes
