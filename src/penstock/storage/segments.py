"""The immutable list of a log's segments, as readers see it.

The writer replaces the whole list when it rolls, deletes, truncates or swaps in cleaned segments. A reader keeps the
list that it took. If one of its segments is `gone` afterwards, the reader discards the result, takes the current list
and tries again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, overload

from penstock.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from penstock.records import HEADER_BYTES, CorruptBatch, RecordBatch
from penstock.records.batch import HEADER, LOG_APPEND_TIME_MASK
from penstock.storage.checkpoints import Extent, Hole, RecoveryPoint
from penstock.storage.errors import CorruptLog, SegmentGone
from penstock.storage.scan import BatchPosition
from penstock.storage.segment import Segment
from penstock.storage.txn_index import AbortedTxn, FileSum
from penstock.storage.unread import UnreadRecords

CHECK_BYTES = 1 << 20
"""Unchecked bytes of an earlier run that are checked for one read, unless its first batch is larger."""

LOOK_BACK_BYTES = 1 << 20
"""Bytes checked before a batch because of an offset gap in front of it; compacted logs have many."""


EXACT_BYTES_MAX = 1 << 16
UNPACKED_BYTES_MAX = 1 << 20
"""The largest batch that is decoded to find the timestamp of one of its records."""


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class SegmentList(Sequence[Segment]):
    """Sorted by base offset, never empty; the last one is active."""

    __slots__ = ("_bases", "_largest_so_far", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = tuple(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self._largest_so_far: list[TimestampMs] | None = None
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, index: int | slice) -> Segment | tuple[Segment, ...]:
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def index_of(self, offset: Offset) -> int:
        """Index of the segment whose range includes offset."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, index: int) -> Offset:
        """First offset after a segment."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else self._segments[index].next_offset

    def find(self, offset: Offset) -> tuple[Segment, BatchPosition] | None:
        """The first batch that ends at or after offset, in the next segments if one ends with a gap, but not across a
        hole."""
        for index in range(self.index_of(offset), len(self._segments)):
            segment = self._segments[index]
            if segment.hole is not None and offset < segment.base_offset:
                raise CorruptLog(segment.ref.path, 0, f"{segment.hole} before it are missing")
            spot = segment.find(offset) if segment.size else None
            _check(segment)
            if spot is not None:
                return segment, spot
        return None

    def offset_back(self, stop: Offset, size_bytes: int) -> Offset:
        """An offset below `stop`, such that the batches from it to `stop` have about `size_bytes`, or one batch if
        that is larger. What lies between may be empty: transaction markers, or offsets that compaction removed.

        Goes back by bytes of the log, not by a number of offsets: after compaction, neighbours may be millions of
        offsets apart.
        """
        for index in range(self.index_of(stop - 1), -1, -1):
            segment = self._segments[index]
            spot = segment.find(stop - 1) if segment.size else None
            _check(segment)
            end = segment.size if spot is None else spot.position
            latest = stop - 1
            if spot is not None and spot.base_offset < stop:  # the batch that holds `stop - 1`
                end += spot.size
                latest = spot.base_offset
            elif not end:
                continue  # nothing of this segment lies below `stop`
            target = end - size_bytes
            entry = segment.index.at_position(target) if target > 0 else None
            if entry is None or not entry.position:
                return min(segment.base_offset, latest)
            return min(entry.offset + 1, latest)
        return min(self._bases[0], stop - 1)

    def read(
        self,
        offset: Offset,
        bytes_max: int,
        visible: Offset,
        *,
        whole_first: bool,
        epoch_max: LeaderEpoch | None = None,
    ) -> bytes:
        """As `read_ahead`, but everything is read."""
        data = self.read_ahead(offset, bytes_max, visible, None, whole_first=whole_first, epoch_max=epoch_max)
        assert isinstance(data, bytes), "without a limit everything is read"
        return data

    def read_ahead(
        self,
        offset: Offset,
        bytes_max: int,
        visible: Offset,
        ahead_max: int | None,
        *,
        whole_first: bool,
        epoch_max: LeaderEpoch | None = None,
    ) -> bytes | UnreadRecords:
        """Batches from the one that holds offset on, from one segment, up to a visible offset.

        At most `bytes_max`, which may cut the last batch, as in a Kafka fetch. With `whole_first` the first batch is
        returned whole even if it is larger, so that consumers make progress. `epoch_max` is as for `Segment.check`.
        More than `ahead_max` bytes are returned unread; None is no limit.
        """
        found = self.find(offset)
        if found is None:
            return b""
        segment, spot = found
        if spot.last_offset >= visible:
            if segment.checked_to <= spot.position < segment.checked_from:
                # It may be a visible batch with a damaged offset.
                data = segment.file().pread(spot.size, spot.position)
                self._sound(segment, spot, offset, data, epoch_max)
            segment_end = self.end_of(self.index_of(segment.base_offset))
            if spot.last_offset >= segment_end:
                raise CorruptLog(
                    segment.ref.path,
                    spot.position,
                    f"offsets {spot.base_offset} to {spot.last_offset}, expected less than {segment_end}",
                )
            return b""
        if bytes_max < spot.size:
            if not whole_first:
                return b""
            bytes_max = spot.size
        # Only a visible offset inside this segment limits the read. The size is read before the end offset, which the
        # writer moves first, so that invisible batches are never taken for the end of the segment.
        end = segment.size
        if self.end_of(self.index_of(segment.base_offset)) > visible:
            hidden = segment.find(visible)
            if hidden is not None:
                end = min(end, hidden.position)
        if segment.damaged:
            # The batch may be missing because its offset is damaged; then this is the next one.
            suspects = [
                each for each in tuple(segment.damaged) if each <= spot.position and offset < spot.base_offset
            ]
            for position in (spot.position, *suspects[-1:]):
                if position in segment.damaged:
                    raise CorruptLog(segment.ref.path, position, segment.damaged[position])
            end = min([end, *(position for position in tuple(segment.damaged) if position > spot.position)])
        size = min(bytes_max, end - spot.position)
        return self._records(segment, spot, size, offset, ahead_max, epoch_max)

    def _records(
        self,
        segment: Segment,
        spot: BatchPosition,
        size: int,
        offset: Offset,
        ahead_max: int | None,
        epoch_max: LeaderEpoch | None,
    ) -> bytes | UnreadRecords:
        """Size bytes from a batch on; fewer if some are damaged, or if many must be checked first."""
        checked_to, checked_from = segment.checked_to, segment.checked_from
        is_unchecked = (
            checked_to < checked_from and spot.position < checked_from and spot.position + size > checked_to
        )
        if ahead_max is None or not segment.reads_ahead:
            ahead_max = size
        if size > ahead_max:
            if not is_unchecked:
                unread = UnreadRecords(segment, spot.position, size)
                _check(segment)
                return unread
            size = min(size, max(CHECK_BYTES, spot.size))
        data = segment.file().pread(size, spot.position)
        _check(segment)
        if is_unchecked:
            data = self._sound(segment, spot, offset, data, epoch_max)
            if len(data) > ahead_max:
                return UnreadRecords(segment, spot.position, len(data))
        return data

    def _sound(
        self,
        segment: Segment,
        spot: BatchPosition,
        offset: Offset,
        data: bytes,
        epoch_max: LeaderEpoch | None,
    ) -> bytes:
        """The bytes read, up to the first damaged batch. Bytes written before the broker started are checked when they
        are first read: the disk may have changed them."""
        end = self.end_of(self.index_of(segment.base_offset))
        start, before = segment.checked_to, spot.position - segment.checked_to
        if offset < spot.base_offset and 0 < before <= LOOK_BACK_BYTES:
            # The requested batch may be there with a damaged offset.
            segment.check(start, segment.file().pread(before, start), end, epoch_max)
            _raise_damage(segment, start, spot.position)
        sound = segment.check(spot.position, data, end, epoch_max)
        if not sound:
            _raise_damage(segment, spot.position, spot.position + 1)
        return data[:sound]

    def find_timestamp(self, timestamp: TimestampMs, start: Offset) -> TimestampOffset | None:
        """The first record at or after a time, at or after a start offset."""
        first = bisect_left(self._largest_timestamps(), timestamp)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            position = 0
            while segment.size and self.end_of(index) > start:
                spot = segment.find_timestamp(timestamp, position)
                if spot is None:
                    break
                found = _first_record(segment, spot, timestamp, start)
                _check(segment)
                if found is not None:
                    return found
                position = spot.position + spot.size
        return None

    def latest_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp; of several the first."""
        best = max(self._segments, key=lambda segment: segment.largest().timestamp)
        largest = best.largest()
        if largest.timestamp < 0:
            return None
        spot = best.find(largest.offset)
        found = _first_record(best, spot, largest.timestamp, 0) if spot else None
        _check(best)
        return found

    def record_time(self, offset: Offset) -> TimestampMs | None:
        """As `LogReader.record_time`."""
        while (found := self.find(offset)) is not None:
            segment, spot = found
            time = _time_from(segment, spot, offset)
            _check(segment)
            if time is not None:
                return time
            offset = spot.last_offset + 1  # compaction removed the records of this batch
        return None

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """Aborted transactions that have records in a range."""
        found: list[AbortedTxn] = []
        for index in range(self.index_of(start), len(self._segments)):
            segment = self._segments[index]
            entries = segment.txn_index.entries()
            _check(segment)
            segment_end = self.end_of(index)
            for entry in entries:
                if entry.last_offset >= segment_end:
                    break  # of a marker that was lost in a crash
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    # All earlier transactions were decided by then; later aborts began later.
                    return found
        return found

    @property
    def txn_sums(self) -> dict[Offset, FileSum]:
        """Checksums of the transaction indexes that have entries, by base offset."""
        known = ((segment.base_offset, segment.txn_index.sum) for segment in self._segments)
        return {base_offset: each for base_offset, each in known if each is not None}

    def extents(self, point: RecoveryPoint, without: Collection[Offset] = ()) -> list[Extent]:
        """The sealed segments below a recovery point. The checkpoint lists them: one that is missing later was
        lost."""
        sealed = self._segments[: self.index_of(point.segment)]
        return [Extent(each.base_offset, each.size) for each in sealed if each.base_offset not in without]

    def holes(self, log_start: Offset) -> list[Hole]:
        """Missing ranges between segments, above the log start."""
        return [each.hole for each in self._segments if each.hole and each.hole.end > log_start]

    def _largest_timestamps(self) -> list[TimestampMs]:
        """For each sealed segment the largest timestamp in it or before it: allows bisection although timestamps may
        be out of order. Computed once per list.
        """
        sealed = self._largest_so_far
        if sealed is None:
            sealed, so_far = [], NO_TIMESTAMP
            for segment in self._segments[:-1]:
                so_far = max(so_far, segment.largest().timestamp)
                _check(segment)
                sealed.append(so_far)
            self._largest_so_far = sealed
        return sealed


def _first_record(
    segment: Segment, spot: BatchPosition, timestamp: TimestampMs, start: Offset
) -> TimestampOffset | None:
    if spot.base_offset == spot.last_offset:  # a batch of one record: its header is enough
        is_wanted = spot.max_timestamp >= timestamp and spot.base_offset >= start
        return TimestampOffset(spot.max_timestamp, spot.base_offset, spot.leader_epoch) if is_wanted else None
    batch = RecordBatch.parse(segment.file().pread(spot.size, spot.position))
    for record in batch.records():
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None


def _time_from(segment: Segment, spot: BatchPosition, offset: Offset) -> TimestampMs | None:
    """The timestamp of the first record of a batch at or after an offset; None if it has none."""
    if spot.base_offset == spot.last_offset:
        return spot.max_timestamp
    is_whole = spot.size <= EXACT_BYTES_MAX
    batch = RecordBatch.parse(segment.file().pread(spot.size, spot.position)) if is_whole else None
    try:
        if batch is not None:
            records = batch.records(UNPACKED_BYTES_MAX)
            return next((each.timestamp for each in records if each.offset >= offset), None)
    except CorruptBatch:
        pass  # it unpacks to too much, or is damaged: readers of it are told
    header = HEADER.unpack(segment.file().pread(HEADER_BYTES, spot.position))
    base_timestamp: TimestampMs = header[7]
    return spot.max_timestamp if header[5] & LOG_APPEND_TIME_MASK else base_timestamp


def _raise_damage(segment: Segment, start: int, end: int) -> None:
    for position in sorted(segment.damaged):
        if start <= position < end:
            raise CorruptLog(segment.ref.path, position, segment.damaged[position])


def _check(segment: Segment) -> None:
    if segment.gone:
        segment.forget_files()  # this reader may have opened them again
        raise SegmentGone
