"""Records of several partitions in the order of their timestamps, newest or oldest first, a page at a time.

    partition 0   ... 5s  7s  9s |            newest first: 9s 8s 7s 5s 2s ...
    partition 1   ... 2s  8s     |            the cursor after "8s 7s": partition 0 below 7s, partition 1 below 8s

Each partition keeps the order of its offsets; of the next records of all partitions, the one with the newest (oldest)
timestamp comes first, and of equal ones that of the lowest partition. The cursor is an offset for each partition that
has more: so a page is the same however many records are written meanwhile, and pages of any size put together are the
same list.

Backwards, a partition is read in steps of a few batches, found by bytes of the log, not by offsets: compaction and
transactions may leave few records, or none, in millions of offsets. A page ends early when it has read
`SCANNED_BYTES_MAX`; it then has fewer records than were asked for, perhaps none, and a cursor to continue.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final, NamedTuple

from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.gateway.peer_rpc.routed_partition import RoutedWalk
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.ranges import OffsetRange
from penstock.gateway.shared.reading import READ_BYTES
from penstock.handlers.support.context import Context
from penstock.records import Record
from penstock.records.cutting import CutRecord, cut_record

PARTITIONS_MAX: Final = 256
"""Partitions of one page: each is read at its end, and named by the cursor."""

SCANNED_BYTES_MAX: Final = 32 << 20
"""Bytes that a page reads, beyond the first step in each partition: less than a second of work."""

BUFFERED_BYTES: Final = 4 << 20
"""Bytes that are decoded and wait for their turn, in all partitions together; in each at least `STEP_BYTES_MIN`."""

STEP_BYTES_MIN: Final = 8 << 10

KEPT_BATCHES_MAX: Final = 16
"""Partitions that may keep a decoded batch between two steps forwards; with more, each reads it again."""

RECORD_COST: Final = 64
"""Bytes that a record counts beside its key, value and headers."""


class MergedRecord(NamedTuple):
    partition: int
    record: CutRecord


class MergedPage(NamedTuple):
    records: list[MergedRecord]
    next: Mapping[int, Offset] | None
    """By partition, where the next page continues: newest first below this offset, oldest first at it. None if there
    is nothing more."""


class ReadLimits(NamedTuple):
    records_max: int
    bytes_max: int
    field_bytes_max: int
    """Longer keys and values, and headers, are cut."""


def cost_of(record: Record) -> int:
    size = RECORD_COST + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in record.headers)


def read_merged(
    context: Context,
    fair_queue: FairQueue,
    ranges: Sequence[OffsetRange],
    limits: ReadLimits,
    *,
    newest_first: bool,
) -> Steps[MergedPage]:
    """A page of the ranges' records."""
    step_bytes = min(max(BUFFERED_BYTES // max(len(ranges), 1), STEP_BYTES_MIN), READ_BYTES)
    kind = _Backward if newest_first else _Forward
    branches = [kind(context, fair_queue, each, limits, step_bytes) for each in ranges]
    merge = _Merge(branches, limits, newest_first=newest_first)
    try:
        yield from merge.run()
    finally:
        for branch in branches:
            branch.close()
    left = {each.number: each.position for each in branches if each.buffer or not each.is_read}
    return MergedPage(merge.found, left or None)


class _Merge:
    def __init__(self, branches: "Sequence[_Branch]", limits: ReadLimits, *, newest_first: bool) -> None:
        self.found: list[MergedRecord] = []
        self._limits = limits
        self._sign = -1 if newest_first else 1
        self._keeps_batches = len(branches) <= KEPT_BATCHES_MAX
        self._heads: list[tuple[int, int, _Branch]] = []
        """A heap of branches by their next record: its timestamp, or the negative, and the partition."""
        self._lacking = list(branches)
        """Branches whose next record is not known."""
        self._scanned = 0

    def run(self) -> Steps[None]:
        bytes_left = self._limits.bytes_max
        while len(self.found) < self._limits.records_max:
            if not (yield from self._find_heads()) or not self._heads:
                return
            branch = self._heads[0][2]
            bytes_left -= cost_of(branch.buffer[0].record)
            if bytes_left < 0 and self.found:
                return
            self.found.append(MergedRecord(branch.number, branch.buffer.popleft()))
            if branch.buffer:
                heapreplace(self._heads, self._head(branch))
            else:
                heappop(self._heads)
                self._lacking = [branch]
                if self._scanned >= SCANNED_BYTES_MAX:
                    return

    def _find_heads(self) -> Steps[bool]:
        """Find the next record of each branch. False if that would read too much. Each branch moves on by at least one
        step, so that every page comes nearer to the end."""
        for branch in self._lacking:
            is_first = True
            while not branch.buffer and not branch.is_read:
                if not is_first and self._scanned >= SCANNED_BYTES_MAX:
                    return False
                self._scanned += yield from branch.fill()
                is_first = False
                if not self._keeps_batches:
                    branch.close()
            if branch.buffer:
                heappush(self._heads, self._head(branch))
        self._lacking = []
        return True

    def _head(self, branch: "_Branch") -> "tuple[int, int, _Branch]":
        return self._sign * branch.buffer[0].record.timestamp, branch.number, branch


class _Branch:
    """One partition of the merge."""

    def __init__(
        self,
        context: Context,
        fair_queue: FairQueue,
        span: OffsetRange,
        limits: ReadLimits,
        step_bytes: int,
    ) -> None:
        self._context = context
        self._fair_queue = fair_queue
        self._partition, self._start, self._stop = span
        self.number = span.partition.number
        self._limits = limits
        self._step_bytes = step_bytes
        self.buffer: deque[CutRecord] = deque()
        """Records to return next. Those between `_start` and `_stop` are not read yet."""

    @property
    def is_read(self) -> bool:
        return self._start >= self._stop

    @property
    def position(self) -> Offset:
        """Where to continue after the records that were taken."""
        raise NotImplementedError

    def fill(self) -> Steps[int]:
        """Read some of what is left, perhaps without finding a record. Return how many bytes were read."""
        raise NotImplementedError

    def close(self) -> None:
        """Free decoded records that are not in the buffer. They are read again if they are needed."""


class _Backward(_Branch):
    @property
    def position(self) -> Offset:
        return self.buffer[0].record.offset + 1 if self.buffer else self._stop

    def fill(self) -> Steps[int]:
        begin = max(self._start, (yield from self._partition.offset_back(self._stop, self._step_bytes)))
        walk = RoutedWalk(self._context, self._partition, begin, self._stop)
        kept, kept_bytes, scanned = deque[CutRecord](), 0, self._step_bytes
        try:
            while not walk.is_over:
                yield self._fair_queue.next()
                yield from walk.prepare()
                for record in walk.some():
                    scanned += cost_of(record)
                    each = cut_record(record, self._limits.field_bytes_max)
                    kept.append(each)
                    kept_bytes += cost_of(each.record)
                    # A batch may have many more than this page shows: the last ones are kept.
                    while len(kept) > self._limits.records_max or (
                        kept_bytes > self._step_bytes and len(kept) > 1
                    ):
                        kept_bytes -= cost_of(kept.popleft().record)
                        begin = kept[0].record.offset
        finally:
            walk.release()
        self._stop = begin
        kept.reverse()
        self.buffer = kept
        return scanned


class _Forward(_Branch):
    _walk: RoutedWalk | None = None

    @property
    def position(self) -> Offset:
        return self.buffer[0].record.offset if self.buffer else self._start

    def fill(self) -> Steps[int]:
        walk = self._walk
        if walk is None:
            walk = self._walk = RoutedWalk(self._context, self._partition, self._start, self._stop)
        scanned = buffered = 0
        while (
            not walk.is_over and len(self.buffer) < self._limits.records_max and buffered < self._step_bytes
        ):
            yield self._fair_queue.next()
            yield from walk.prepare()
            for record in walk.some(self._limits.records_max - len(self.buffer)):
                scanned += cost_of(record)
                each = cut_record(record, self._limits.field_bytes_max)
                buffered += cost_of(each.record)
                self.buffer.append(each)
            if not self.buffer:
                scanned += self._step_bytes
                if scanned >= READ_BYTES * 16:
                    break
        self._start = walk.position
        return max(scanned, self._step_bytes)

    def close(self) -> None:
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.release()
