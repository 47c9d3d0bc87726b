"""Reads a log, from any thread.

A reader takes the list of segments once. If a segment has left the log meanwhile, or a file is not where it was, the
reader takes the current list and tries again: the writer publishes the new list before it touches any file.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.records import RecordBatch
from penstock.storage.errors import BadCheckpoint, CorruptLog, OffsetOutOfRange, SegmentGone, StorageError
from penstock.storage.holes import fold
from penstock.storage.producers import Producers
from penstock.storage.scan import scan_batches
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList, TimestampOffset
from penstock.storage.snapshots import load_snapshot
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.unread import UnreadRecords
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.storage.log import Log

logger = logging.getLogger(__name__)

_READ_ATTEMPTS_MAX = 100
"""An attempt fails only if the writer deletes or swaps segments during it: twice is rare, 100 times is a bug."""

Result = TypeVar("Result")


class FixedLog(NamedTuple):
    """What readers see of a log, as it was at one moment: for readers without its writer."""

    partition: TopicPartition
    directory: str
    vfs: Vfs
    segments: SegmentList
    log_start: Offset
    log_end: Offset
    epoch_max: LeaderEpoch | None = None


class LogReader:
    """Reads batches, timestamps and aborted transactions of a log, and notes the damage that it meets."""

    __slots__ = ("_damaged", "_log")

    def __init__(self, log: Log | FixedLog) -> None:
        self._log = log
        self._damaged: Segment | None = None
        """The first segment known to be damaged; later ones may be too."""

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
        """As `read`, but more than `ahead_max` bytes are not read yet: the caller reads them in steps."""
        log = self._log

        def attempt(segments: SegmentList) -> bytes | UnreadRecords:
            log_end = log.log_end
            if not log.log_start <= offset <= log_end:
                raise OffsetOutOfRange(
                    f"{log.partition} has offsets {log.log_start} to {log_end}, not {offset}"
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
                epoch_max=log.epoch_max,
            )

        return self._with_segments(attempt)

    def read_kept(self, offset: Offset, bytes_max: int, *, visible: Offset) -> bytes:
        """As `read`, but records below the log start are visible while their segment is kept."""
        log = self._log
        return self._with_segments(
            lambda segments: segments.read(
                max(offset, segments[0].base_offset),
                bytes_max,
                min(visible, log.log_end),
                whole_first=True,
                epoch_max=log.epoch_max,
            )
        )

    def offset_back(self, stop: Offset, size_bytes: int) -> Offset:
        """An offset below `stop` with about `size_bytes` of batches between them; see `SegmentList.offset_back`."""
        return self._with_segments(lambda segments: segments.offset_back(stop, size_bytes))

    def offset_for_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record whose timestamp is at least this."""
        return self._with_segments(lambda segments: segments.find_timestamp(timestamp, self._log.log_start))

    def latest_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp."""
        return self._with_segments(lambda segments: segments.latest_timestamp())

    def record_time(self, offset: Offset) -> TimestampMs | None:
        """The timestamp of the first record at or after an offset; None if there is none.

        A batch of more than `segments.EXACT_BYTES_MAX` is not decoded: then it is the timestamp of its first record.
        """
        return self._with_segments(lambda segments: segments.record_time(offset))

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that have records in a range, for read_committed consumers."""

        def attempt(segments: SegmentList) -> list[AbortedTxn]:
            try:
                return segments.aborted(start, end)
            except BadCheckpoint:
                self.rebuild_txn_indexes(segments, start)
                return segments.aborted(start, end)

        return self._with_segments(attempt)

    def look(self, attempt: Callable[[SegmentList], Result]) -> Result:
        """Apply a function that only reads to the current segments, and again if they were replaced meanwhile."""
        return self._with_segments(attempt)

    def _with_segments(self, attempt: Callable[[SegmentList], Result]) -> Result:
        """Try on the current segments, and again if they were replaced meanwhile."""
        log = self._log
        for _ in range(_READ_ATTEMPTS_MAX):
            segments = log.segments
            try:
                return attempt(segments)
            except (SegmentGone, FileNotFoundError):
                continue
            except CorruptLog as error:
                if log.segments is segments:
                    is_new = not self.is_damaged
                    self.note_damage(error)
                    if is_new:
                        logger.error("%s; damaged records are not served", error)
                    raise
            except OSError as error:
                if log.segments is segments:
                    raise StorageError(f"cannot read {log.directory}: {error.strerror or error}") from error
        raise StorageError(f"{log.directory}: segment files are missing")

    @property
    def is_damaged(self) -> bool:
        """Whether the log is known to have a batch that is not what was written."""
        return self._damaged is not None and not self._damaged.gone

    @property
    def damaged(self) -> Segment | None:
        """The first segment known to be damaged."""
        return self._damaged

    def note_damage(self, error: CorruptLog) -> None:
        """Remember the first damaged segment."""
        if not self.is_damaged:
            self._damaged = None
        for segment in self._log.segments:
            if segment is self._damaged:
                break
            if segment.ref.path == error.path:
                self._damaged = segment
                break

    def forget_damage(self) -> None:
        self._damaged = None

    def batches(self, start: Offset | None = None) -> Iterator[RecordBatch]:
        """Every batch from an offset on, for tools and tests; each is valid until the next one."""
        start = self._log.log_start if start is None else start
        segments = self._log.segments
        try:
            for segment in (each for each in segments[segments.index_of(start) :] if each.size):
                for _, batch in scan_batches(segment.file(), 0, segment.size):
                    if batch.last_offset >= start:
                        yield batch
        except OSError as error:
            raise StorageError(f"cannot read {self._log.directory}: {error.strerror or error}") from error

    def rebuild_txn_indexes(self, segments: SegmentList, start: Offset) -> None:
        """Rebuild missing transaction indexes from the log."""
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
            not load_snapshot(self._log.vfs, self._log.directory, segments[first].base_offset, producers)
            and first > 0
        ):
            first -= 1
        producers.end_offset = max(producers.end_offset, segments[first].base_offset)
        fold(producers, segments, segments[index].base_offset, _say_damage)
        return producers

    def producers_in(self, segments: SegmentList, index: int, position: int, end: Offset) -> Producers:
        """Producer state at a position within a segment, where it has the offset `end`. Raises `CorruptLog` if a
        transaction marker on the way is damaged."""
        producers = self._producers_at(segments, index)
        file = segments[index].file()
        for at, batch in scan_batches(file, 0, position):
            if batch.is_control and not batch.crc_valid():
                raise CorruptLog(file.path, at, "CRC mismatch")
            producers.apply(batch)
        producers.end_offset = end
        return producers


def _say_damage(error: CorruptLog) -> None:
    logger.error("%s; transactions open at that point count as aborted", error)
