"""Timestamps of records by offset, remembered: how old the first record is that a group has not consumed.

A group that does not move keeps its offset, so its timestamp is looked up once, however often its lag is asked for.
"""

from collections import OrderedDict
from typing import Final

from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.replica.partition import Partition

KNOWN_MAX: Final = 10_000
"""Offsets that are remembered, about 2 MB; the one used least recently is forgotten first."""


class RecordTimes:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Uuid, int, Offset], TimestampMs] = OrderedDict()

    def is_known(self, partition: Partition, offset: Offset) -> bool:
        """Whether `lag_seconds` answers without reading the log."""
        start = max(offset, partition.log.log_start)
        return (
            start >= partition.high_watermark or (partition.topic_id, partition.number, start) in self._known
        )

    def lag_seconds(self, partition: Partition, offset: Offset, now_ms: TimestampMs) -> float | None:
        """The age of the first record at or after an offset; 0 if there is none, None if it has no timestamp.

        Raises an error of the log.
        """
        start = max(offset, partition.log.log_start)
        if start >= partition.high_watermark:
            return 0.0
        key = (partition.topic_id, partition.number, start)
        found = self._known.get(key)
        if found is None:
            found = partition.log.reader.record_time(start)
            if found is None:
                return 0.0  # compaction removed all records from there on
            self._known[key] = found
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return max(now_ms - found, 0) / 1000 if found >= 0 else None
