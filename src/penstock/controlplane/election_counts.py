"""Counts elections of leaders as the metadata log tells them, wherever the controller is that decided them."""

from collections.abc import Sequence

from penstock.base.metrics import Elections
from penstock.metadata import AnyRecord, ClusterImage
from penstock.metadata.records import RECOVERING, PartitionChangeRecord


def count_elections(counted: Elections, records: Sequence[AnyRecord], before: ClusterImage) -> None:
    """`before` does not have the records yet. A leader may be named anew, in another epoch: that is no election."""
    for each in records:
        if not isinstance(each, PartitionChangeRecord) or each.leader < 0:
            continue
        topic = before.topic_by_id(each.topic_id)
        held = None if topic is None else topic.partitions.get(each.partition_id)
        if held is not None and held.leader != each.leader:
            counted.changes += 1
            counted.unclean += each.leader_recovery_state == RECOVERING
