"""Which records somebody wants: by offset, by time or from the end, of one partition or of a topic's.

A range is of offsets, and ends where committed records end. A time is looked up as Kafka does it: the first record
that is as late, in the order of offsets; what comes behind it belongs to the range even if it says that it is older.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.gateway.asking import others_first
from penstock.gateway.steps import Steps
from penstock.handlers.context import Context
from penstock.handlers.offsets import LOOKUPS_A_TURN
from penstock.replica import Partition

PARTITIONS_A_TURN: Final = 500
"""Looked at, where nothing is looked up, before others get their turn."""


class Ends(NamedTuple):
    """Where a range begins and ends, as it is asked for; None where nothing is said. What is said twice is all meant:
    the latest beginning counts, and the earliest end."""

    offset: Offset | None = None
    until: Offset | None = None
    """The first offset that is not wanted."""
    since_ms: TimestampMs | None = None
    before_ms: TimestampMs | None = None
    from_end: int | None = None
    """So many offsets at the end of the range."""


class Range(NamedTuple):
    """Offsets start up to, and without, stop; none where they are the same."""

    partition: Partition
    start: Offset
    stop: Offset


def resolve(context: Context, partitions: Sequence[Partition], ends: Ends) -> Steps[list[Range]]:
    """The ranges of partitions, as they are now."""
    lookups = (ends.since_ms is not None) + (ends.before_ms is not None)
    a_turn = LOOKUPS_A_TURN // lookups if lookups else PARTITIONS_A_TURN
    ranges = []
    for count, partition in enumerate(partitions, 1):
        ranges.append(_range(partition, ends))
        if count % a_turn == 0:
            yield others_first(context.world)
    return ranges


def _range(partition: Partition, ends: Ends) -> Range:
    first, visible = partition.log.log_start, partition.last_stable
    start, stop = first, visible
    if ends.until is not None:
        stop = min(stop, ends.until)
    if ends.before_ms is not None:
        stop = min(stop, _at(partition, ends.before_ms, visible))
    if ends.offset is not None:
        if not first <= ends.offset <= visible:
            raise KafkaError(
                f"{partition.name} has offsets {first} to {visible}, asked for {ends.offset}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        start = ends.offset
    if ends.since_ms is not None:
        start = max(start, _at(partition, ends.since_ms, visible))
    if ends.from_end is not None:
        start = max(start, stop - ends.from_end)
    return Range(partition, start, max(start, stop))


def _at(partition: Partition, moment_ms: TimestampMs, visible: Offset) -> Offset:
    """The first record that is as late as a moment, or the end."""
    found = partition.log.offset_for_timestamp(moment_ms)
    return visible if found is None else min(found.offset, visible)
