"""Partitions as the cluster's image has them, for tests of those who lead or follow one."""

from collections.abc import Sequence

from penstock.metadata.image import PartitionRegistration


def placed(
    epoch: int = 0,
    *,
    replicas: Sequence[int] = (1,),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    partition_epoch: int = 0,
) -> PartitionRegistration:
    """Led by broker 1, alone, unless told otherwise; all replicas are in sync."""
    return PartitionRegistration(
        replicas=tuple(replicas),
        directories=(bytes(16),) * len(replicas),
        isr=tuple(replicas if isr is None else isr),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
    )
