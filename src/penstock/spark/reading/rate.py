"""Determines the size of a stream's micro-batch: maxOffsetsPerTrigger, minOffsetsPerTrigger.

    share(60, begin, latest)    behind by 100, 20, 0     ->  50, 10, 0
    share(3, begin, latest)     behind by 1000, 1        ->  2, 1      a small partition is not left behind

Sizes are in offsets; after compaction or transactions some have no record.
"""

from collections.abc import Mapping

from penstock.base.ids import Offset, TopicPartition


def share(
    rows_max: int, begin: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """The end of a batch in each partition: in proportion to its lag, and at least one offset."""
    sizes = {each: max(0, end - begin[each]) for each, end in latest.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(latest)
    end = {}
    for each, size in sizes.items():
        part = max(1, rows_max * size // total)
        end[each] = begin[each] + min(size, part) if size else latest[each]
    return end


def delays(
    begin: Mapping[TopicPartition, Offset],
    latest: Mapping[TopicPartition, Offset],
    rows_min: int,
    since_ms: float | None,
    delay_ms_max: int,
) -> bool:
    """Whether a batch should wait for more records. The first does not, nor one after the maximum delay."""
    if since_ms is None or since_ms >= delay_ms_max:
        return False
    return sum(max(0, end - begin[each]) for each, end in latest.items()) < rows_min
