"""What this broker knows of its replicas, for its own routes and for other brokers."""

from collections.abc import Iterable
from typing import Final

from penstock.base.steps import Steps, next_tick
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.messages import FollowerState, HeldReplica
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic
from penstock.replica import Partition
from penstock.replica.isr import NEVER, Follower

PARTITIONS_A_TICK: Final = 250
"""Partitions that are described in one tick: a millisecond or two."""


def bounds_of(partition: Partition, times: tuple[int, ...] = ()) -> messages.Bounds:
    log = partition.log
    found = [log.reader.offset_for_timestamp(each) for each in times]
    return messages.Bounds(
        log.log_start,
        partition.last_stable,
        partition.high_watermark,
        log.log_end,
        log.size_bytes,
        len(log.segments),
        tuple(None if each is None else each.offset for each in found),
    )


def held_replicas(context: Context, topic: Topic, numbers: Iterable[int]) -> Steps[list[HeldReplica]]:
    """The replicas of a topic on this broker."""
    found = []
    for count, number in enumerate(numbers, 1):
        partition = context.replicas.held(topic.id, number)
        if partition is not None:
            found.append(_held(partition, context.world.clock_ns() // 1_000_000))
        if count % PARTITIONS_A_TICK == 0:
            yield next_tick(context.world)
    return found


def _held(partition: Partition, now_ms: int) -> HeldReplica:
    log = partition.log
    size, segments = log.size_bytes, len(log.segments)
    if not partition.is_leader:
        return HeldReplica(partition.number, log.log_end, size, segments)
    followers = () if partition.isr is None else partition.isr.followers.values()
    return HeldReplica(
        partition.number,
        log.log_end,
        size,
        segments,
        bounds_of(partition),
        tuple(_follower(each, log.log_end, now_ms) for each in followers),
    )


def _follower(follower: Follower, log_end: int, now_ms: int) -> FollowerState:
    behind_ms: int | None = max(now_ms - follower.caught_up_ms, 0)
    if follower.log_end >= log_end:
        behind_ms = 0
    elif follower.caught_up_ms in (NEVER, 0):
        behind_ms = None
    return FollowerState(follower.broker_id, follower.log_end, behind_ms)
