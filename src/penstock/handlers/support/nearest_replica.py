"""Selects the replica that a consumer reads from: one in its rack (KIP-392)."""

from typing import Final

from penstock.base.ids import Offset
from penstock.handlers.support.context import Context
from penstock.metadata.config_table import RACK_AWARE
from penstock.metadata.configs import broker_setting
from penstock.replica import Partition

THE_LEADER: Final = -1
"""The preferred read replica is the leader."""


def selects_by_rack(context: Context) -> bool:
    """Whether consumers are directed to replicas in their rack."""
    return broker_setting("replica.selector.class", context.image, context.settings) == RACK_AWARE


def nearest(context: Context, partition: Partition, offset: Offset, rack: str) -> int:
    """The in-sync replica in this rack that has this offset, with the highest log end; the leader if it is in the
    rack."""
    isr = partition.isr
    brokers = context.image.brokers
    if isr is None or (here := brokers.get(context.node_id)) is None or here.rack == rack:
        return THE_LEADER
    best, best_rank = THE_LEADER, (-1, -1)
    for broker_id, follower in isr.followers.items():
        broker = brokers.get(broker_id)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and broker_id in isr.committed
            and 0 <= follower.log_start <= offset <= follower.log_end
            and (rank := (follower.log_end, follower.caught_up_ms)) > best_rank
        ):
            best, best_rank = broker_id, rank
    return best
