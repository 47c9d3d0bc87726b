"""Reading records as a consumer of committed data does: in portions, and waiting for more."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.ids import Offset
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.client.decoding import decode
from penstock.gateway.shared.walking import size_of
from penstock.handlers.support.context import Context
from penstock.records import Record
from penstock.replica import Partition
from penstock.wire import AbortedTransaction

PORTION_BYTES = 1 << 20
"""What is read from the log at once, unless its first batch alone is larger."""


class Portion(NamedTuple):
    records: list[Record]
    next_offset: Offset
    """Where to go on; after what is not shown as well: aborted records, markers, what compaction removed."""


def read(
    partition: Partition,
    offset: Offset,
    *,
    records_max: int,
    bytes_max: int = PORTION_BYTES,
    record_bytes_max: int | None = None,
) -> Portion:
    """Records from an offset on, as far as they are committed; none where there are none now.

    `bytes_max` is of the log, of which one batch comes whole; `record_bytes_max` is of keys and values.
    An offset outside of the log raises OFFSET_OUT_OF_RANGE.
    """
    visible = partition.last_stable
    log = partition.log
    if offset == visible:
        return Portion([], offset)
    data = log.read(offset, bytes_max, visible=visible)
    aborted = [
        AbortedTransaction(each.producer_id, each.first_offset) for each in log.aborted(offset, visible)
    ]
    decoded = decode(data, offset, aborted)
    count = len(decoded.records)
    if record_bytes_max is not None:
        records_max = min(records_max, within(decoded.records, record_bytes_max))
    given = min(count, records_max)
    partition.messages_out += given
    partition.bytes_out += len(data) * given // count if count else 0  # what is not given is read again
    if count > records_max:
        return Portion(decoded.records[:records_max], decoded.records[records_max].offset)
    return Portion(decoded.records, decoded.next_offset)


def within(records: Sequence[Record], bytes_max: int) -> int:
    """How many records, from the first on, have so many bytes of keys and values together; one at least."""
    size = 0
    for number, record in enumerate(records):
        size += size_of(record)
        if size > bytes_max:
            return max(number, 1)
    return len(records)


class Growth(Promise[bool]):
    """A `DelayedFetch`: resolved with True when a partition has something to read at an offset, with False when the
    time is up or this broker no longer leads the partition."""

    __slots__ = ("_offset", "_partition", "_timer")

    def __init__(self, context: Context, partition: Partition, offset: Offset, wait_ms: float) -> None:
        super().__init__()
        self._partition = partition
        self._offset = offset
        self._timer: Timer | None = None
        if partition.last_stable > offset:
            self.resolve(True)
            return
        self._timer = context.world.call_later(wait_ms, self.changed)
        partition.watch(self)

    def __hash__(self) -> int:
        return id(self)

    def grew(self, bytes_more: int) -> None:
        if self._partition.last_stable > self._offset:
            self._finish(is_more=True)

    def decided(self) -> None:
        self.grew(0)

    def changed(self) -> None:
        self._finish(is_more=False)

    def cancel(self) -> None:
        """Wait no more; nobody is answered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._partition.unwatch(self)

    def _finish(self, *, is_more: bool) -> None:
        if not self.is_settled:
            self.cancel()
            self.resolve(is_more)
