"""The half of a log that reads, from any thread.

A reader takes the list of segments once. When it finds that a segment has left the log meanwhile, or that a
file is not where it was, it takes the current list and tries again: the writer has published a newer one
before it touched anything.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.records import RecordBatch
from penstock.storage.aborted import AbortedTxn
from penstock.storage.errors import BadCheckpoint, CorruptLog, OffsetOutOfRange, SegmentGone, StorageError
from penstock.storage.holes import fold
from penstock.storage.producers import Producers
from penstock.storage.scan import scan_batches
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList, TimestampOffset
from penstock.storage.snapshots import load_snapshot
from penstock.storage.unread import UnreadRecords
from penstock.vfs import Vfs

logger = logging.getLogger(__name__)

_READ_ATTEMPTS_MAX = 100
"""A reader loses only to a writer that deletes or swaps at that very moment: twice is rare, 100 times a fault."""

Result = TypeVar("Result")


class LogReader:
    """What `Log` inherits; it never writes."""

    def __init__(
        self, partition: TopicPartition, directory: str, vfs: Vfs, segments: SegmentList, log_start: Offset
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.vfs = vfs
        self.segments = segments
        """Replaced whole by the writer, never changed."""
        self.log_start = log_start
        """First offset that readers may see. Only grows, but for a truncation below it."""
        self.log_end: Offset = segments.active.next_offset
        """First offset not written yet."""
        self.epoch_max: LeaderEpoch | None = None
        """Nobody has led in a later epoch, as far as is known: a batch that says so is not what was written. None
        where nobody else has the log, so that it is read as it is."""
        self._damaged: Segment | None = None
        """The first segment that was found to be damaged, and perhaps others after it."""

    def read(
        self, offset: Offset, bytes_max: int, *, visible: Offset | None = None, whole_first: bool = True
    ) -> bytes:
        """Batches from the one that holds offset on, never past a visible offset (default: the log end)."""
        data = self.read_ahead(offset, bytes_max, None, visible=visible, whole_first=whole_first)
        assert isinstance(data, bytes), "without a limit everything is read"
        return data

    def read_ahead(
        self,
        offset: Offset,
        bytes_max: int,
        ahead_max: int | None,
        *,
        visible: Offset | None = None,
        whole_first: bool = True,
    ) -> bytes | UnreadRecords:
        """As `read`, but more than `ahead_max` bytes are not read yet: the reader takes them in steps."""

        def attempt(segments: SegmentList) -> bytes | UnreadRecords:
            log_end = self.log_end
            if not self.log_start <= offset <= log_end:
                raise OffsetOutOfRange(
                    f"{self.partition} has offsets {self.log_start} to {log_end}, asked for {offset}"
                )
            visible_now = log_end if visible is None else min(visible, log_end)
            if offset >= visible_now:
                return b""
            return segments.read_ahead(
                offset,
                bytes_max,
                visible_now,
                ahead_max,
                whole_first=whole_first,
                epoch_max=self.epoch_max,
            )

        return self._with_segments(attempt)

    @property
    def first_kept(self) -> Offset:
        """First offset whose file is there; at most the log start."""
        return self.segments[0].base_offset

    def read_kept(self, offset: Offset, bytes_max: int, *, visible: Offset) -> bytes:
        """As `read`, for who must see what is hidden from readers too: from `first_kept` on."""
        return self._with_segments(
            lambda segments: segments.read(
                max(offset, segments[0].base_offset),
                bytes_max,
                min(visible, self.log_end),
                whole_first=True,
                epoch_max=self.epoch_max,
            )
        )

    def offset_for_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record whose timestamp is at least this."""
        return self._with_segments(lambda segments: segments.find_timestamp(timestamp, self.log_start))

    def latest_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp."""
        return self._with_segments(lambda segments: segments.latest_timestamp())

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that have records in a range, for readers of committed data."""

        def attempt(segments: SegmentList) -> list[AbortedTxn]:
            try:
                return segments.aborted(start, end)
            except BadCheckpoint:
                self._rebuild_txn_indexes(segments, start)
                return segments.aborted(start, end)

        return self._with_segments(attempt)

    def _with_segments(self, attempt: Callable[[SegmentList], Result]) -> Result:
        """Try on the current segments, and again if they changed under the reader's hands."""
        for _ in range(_READ_ATTEMPTS_MAX):
            segments = self.segments
            try:
                return attempt(segments)
            except (SegmentGone, FileNotFoundError):
                continue
            except CorruptLog as error:
                if self.segments is segments:
                    is_news = not self.is_damaged
                    self.met_damage(error)
                    if is_news:
                        logger.error("%s; nobody is given what is damaged", error)
                    raise
            except OSError as error:
                if self.segments is segments:
                    raise StorageError(f"cannot read {self.directory}: {error.strerror or error}") from error
        raise StorageError(f"{self.directory}: its files are not where they should be")

    @property
    def is_damaged(self) -> bool:
        """Whether something in it is known not to be what was written."""
        return self._damaged is not None and not self._damaged.gone

    def met_damage(self, error: CorruptLog) -> None:
        """Keep in mind where something was found; of several places, the first."""
        if not self.is_damaged:
            self._damaged = None
        for segment in self.segments:
            if segment is self._damaged:
                break
            if segment.ref.path == error.path:
                self._damaged = segment
                break

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def batches(self, start: Offset | None = None) -> Iterator[RecordBatch]:
        """Every batch from an offset on, for tools and tests; each is good until the next is asked for."""
        start = self.log_start if start is None else start
        segments = self.segments
        try:
            for segment in (each for each in segments[segments.index_of(start) :] if each.size):
                for _, batch in scan_batches(segment.file(), 0, segment.size):
                    if batch.last_offset >= start:
                        yield batch
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error.strerror or error}") from error

    def _rebuild_txn_indexes(self, segments: SegmentList, start: Offset) -> None:
        """Find the aborted transactions of segments that have lost their index, from the log itself."""
        for index in range(segments.index_of(start), len(segments)):
            segment = segments[index]
            try:
                segment.txn_index.entries()
                continue
            except BadCheckpoint:
                pass
            producers = self._producers_at(segments, index)
            found = fold(producers, segments, segments.end_of(index), _say_damage)
            if index + 1 < len(segments) and (hole := segments[index + 1].hole) is not None:
                found += producers.pass_hole(hole.start)
            segment.txn_index.restore(each for each in found if each.last_offset >= segment.base_offset)

    def _producers_at(self, segments: SegmentList, index: int) -> Producers:
        """Producer state at the beginning of a segment: from a snapshot, and the log from there on."""
        producers = Producers()
        first = index
        while (
            not load_snapshot(self.vfs, self.directory, segments[first].base_offset, producers) and first > 0
        ):
            first -= 1
        producers.end_offset = max(producers.end_offset, segments[first].base_offset)
        fold(producers, segments, segments[index].base_offset, _say_damage)
        return producers

    def _producers_in(self, segments: SegmentList, index: int, position: int, end: Offset) -> Producers:
        """Producer state at a position within a segment, where it has the offset `end`."""
        producers = self._producers_at(segments, index)
        for _, batch in scan_batches(segments[index].file(), 0, position):
            producers.apply(batch)
        producers.end_offset = end
        return producers


def _say_damage(error: CorruptLog) -> None:
    logger.error("%s; transactions that were open there count as aborted", error)
