"""Ranges of records to read: by offset, by time or from the end, of one partition or all partitions of a topic.

A range is of offsets, and ends at the last stable offset. A time is looked up as in Kafka: the first offset whose
record is at or after it. Records after that offset belong to the range even if their timestamp is earlier.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.steps import Steps, next_tick
from penstock.gateway.peer_rpc.held_replicas import bounds_of
from penstock.gateway.peer_rpc.messages import Bounds
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.handlers.list_offsets import LOOKUPS_A_TURN
from penstock.handlers.support.context import Context

PARTITIONS_A_SLICE: Final = 500
"""Partitions that are handled in one tick, if no times are looked up."""


class RangeQuery(NamedTuple):
    """The requested limits of a range; None for no limit. If there are several, the latest start and the earliest end
    count."""

    offset: Offset | None = None
    until: Offset | None = None
    """The first offset after the range."""
    since_ms: TimestampMs | None = None
    before_ms: TimestampMs | None = None
    from_end: int | None = None
    """Number of offsets at the end of the range."""
    must_exist: bool = True
    """Whether an `offset` outside of the log is an error. Otherwise the range begins at the log's start or end."""


class OffsetRange(NamedTuple):
    """Offsets from `start` to `stop`, exclusive; empty if both are equal."""

    partition: RoutedPartition
    start: Offset
    stop: Offset


def resolve(
    context: Context, partitions: Sequence[RoutedPartition], ends: RangeQuery
) -> Steps[list[OffsetRange]]:
    """The ranges of partitions, by their current offsets."""
    times = tuple(each for each in (ends.since_ms, ends.before_ms) if each is not None)
    a_tick = LOOKUPS_A_TURN // len(times) if times else PARTITIONS_A_SLICE
    looked = yield from look_up_bounds(context, partitions, times)
    ranges = []
    for count, partition in enumerate(partitions, 1):
        bounds = looked.get(partition)
        if bounds is None:
            here = partition.here
            if here is None:  # the leader has just changed: ask the new one
                again = yield from look_up_bounds(context, [partition], times)
                bounds = again.get(partition)
                here = partition.here
            if bounds is None:
                assert here is not None
                bounds = bounds_of(here, times)
        ranges.append(_range(partition, bounds, ends))
        if count % a_tick == 0:
            yield next_tick(context.world)
    return ranges


def _range(partition: RoutedPartition, bounds: Bounds, ends: RangeQuery) -> OffsetRange:
    first, visible = bounds.log_start, bounds.last_stable
    found = iter([visible if each is None else min(each, visible) for each in bounds.found])
    since = None if ends.since_ms is None else next(found)
    before = None if ends.before_ms is None else next(found)
    start, stop = first, visible
    if ends.until is not None:
        stop = min(stop, ends.until)
    if before is not None:
        stop = min(stop, before)
    if ends.offset is not None:
        if ends.must_exist and not first <= ends.offset <= visible:
            raise KafkaError(
                f"offset {ends.offset} is out of range: {partition.name} has offsets {first} to {visible}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        start = min(max(ends.offset, first), visible)
    if since is not None:
        start = max(start, since)
    if ends.from_end is not None:
        start = max(start, stop - ends.from_end)
    return OffsetRange(partition, start, max(start, stop))
