"""The lag of committed offsets, in records and in seconds, whichever brokers lead the partitions.

However many groups and partitions are asked about, each leader gets one request for the ends of its partitions and one
for the times of records; a partition that several groups read is looked up once for each different offset.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TopicPartition, Uuid
from penstock.base.steps import Steps, next_tick
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import GetLagTimes
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.peer_rpc.service import lag_times
from penstock.handlers.support.context import Context

POSITIONS_A_TICK: Final = 500

Position: TypeAlias = tuple[TopicPartition, Offset | None]
"""A partition and the committed offset in it; None if there is none."""


class PositionLag(NamedTuple):
    end: Offset | None = None
    """The high watermark; None if the partition has no leader, was deleted, or its leader does not answer."""
    lag: int | None = None
    """Without a committed offset, all offsets of the partition."""
    seconds: float | None = None
    """Age of the first record that is not consumed; 0 if there is none, None if it is not known."""


NOTHING_KNOWN: Final = PositionLag()


def lag_of(
    context: Context, positions: Iterable[Position], *, retries: bool = True
) -> Steps[dict[Position, PositionLag]]:
    """The lag of each position. With `retries` false, a leader that does not answer at once is not waited for."""
    found: dict[Position, PositionLag] = {}
    names: dict[TopicPartition, None] = {}
    for count, position in enumerate(positions, 1):
        found[position] = NOTHING_KNOWN
        names[position[0]] = None
        if count % POSITIONS_A_TICK == 0:
            yield next_tick(context.world)
    led = yield from _led_partitions(context, names, retries=retries)
    ages: dict[int | None, dict[Position, tuple[Uuid, int, Offset]]] = {}
    for count, position in enumerate(found, 1):
        name, committed = position
        partition = led.get(name)
        if partition is not None:
            end, start = partition.high_watermark, partition.log_start
            offset = start if committed is None else committed
            found[position] = PositionLag(end, max(end - offset, 0), 0.0 if offset >= end else None)
            if offset < end:
                with suppress(KafkaError):  # the partition has just lost its leader
                    leader = None if partition.here is not None else partition.leader
                    ages.setdefault(leader, {})[position] = (*partition.key, offset)
        if count % POSITIONS_A_TICK == 0:
            yield next_tick(context.world)
    for leader, asked in ages.items():
        with suppress(KafkaError):  # a leader that does not answer: the seconds are not known
            offsets = tuple(asked.values())
            if leader is None:
                seconds = yield from lag_times(context, offsets)
            else:
                seconds = yield peer_rpc_of(context).send(leader, GetLagTimes(offsets))
            for count, (position, age) in enumerate(zip(asked, seconds, strict=True), 1):
                known = found[position]
                found[position] = PositionLag(known.end, known.lag, age)
                if count % POSITIONS_A_TICK == 0:
                    yield next_tick(context.world)
    return found


def _led_partitions(
    context: Context, names: Iterable[TopicPartition], *, retries: bool
) -> Steps[dict[TopicPartition, RoutedPartition]]:
    """Those of the partitions whose offsets are known."""
    partitions = []
    for name in names:
        topic = context.image.topics.get(name.topic)
        placed = None if topic is None else topic.partitions.get(name.partition)
        if topic is not None and placed is not None and placed.leader >= 0:
            partitions.append(RoutedPartition(context, name.topic, topic.id, name.partition))
    looked = yield from look_up_bounds(context, partitions, retries=retries)
    return {each.name: each for each in partitions if each in looked or each.here is not None}
