"""Truncates a log: drops its end, its damaged part, or everything.

Recovery point and log start are lowered on disk first, then the list of segments is replaced, and only then are
files changed: a crash at any point leaves a log that recovery accepts.
"""

from typing import TYPE_CHECKING

from penstock.base.ids import Offset, TimestampMs
from penstock.storage.checkpoints import RecoveryPoint
from penstock.storage.errors import CorruptLog, StorageError
from penstock.storage.producers import Producers
from penstock.storage.segment import Segment
from penstock.storage.snapshots import remove_snapshots_above

if TYPE_CHECKING:
    from penstock.storage.log import Log


def truncate(log: "Log", offset: Offset) -> Offset:
    """Drop every batch from offset on, and return the new log end. For followers of a new leader.

    [10-10][11-30][31-100]  truncate(31) -> [10-10][11-30], log end 31
                            truncate(35) -> the same: batches are dropped whole

    The recovery point is lowered on disk first: batches written after the truncation are not synced yet.
    """
    log.flusher.repair()
    if offset >= log.log_end:
        # A leader that wrote nothing began an epoch that the next leader may not know.
        log.epochs.truncate_end(offset)
        return log.log_end
    if offset < log.segments[0].base_offset:
        restart_at(log, offset, log.segments[0].created_ms)
        return offset
    keep = log.segments.index_of(offset)
    segment = log.segments[keep]
    try:
        spot = segment.find(offset)
    except CorruptLog as error:
        log.reader.note_damage(error)
        raise
    except OSError as error:
        raise StorageError(f"cannot truncate {log.directory}: {error.strerror or error}") from error
    if spot is None:
        return _cut_at(log, keep, segment.size, offset)
    return _cut_at(log, keep, spot.position, min(offset, spot.base_offset))


def cut_damage(log: "Log") -> Offset:
    """Drop everything from the first hole or damaged batch on, and return the new log end. For a replica that fetches
    the rest from the leader."""
    log.flusher.repair()
    damaged = log.reader.damaged
    for keep, segment in enumerate(log.segments):
        if segment.hole is not None:
            damaged, start = None, segment.hole.start
            if keep == 0:
                restart_at(log, start, segment.created_ms)
            else:
                _cut_at(log, keep - 1, log.segments[keep - 1].size, start)
            break
        if segment is damaged or (damaged is None and segment.damaged):
            damaged = None
            try:
                position, end = segment.sound_part()
            except OSError as error:
                raise StorageError(f"cannot read {segment.ref.path}: {error.strerror or error}") from error
            if position < segment.size:
                _cut_at(log, keep, position, end)
                break
    log.reader.forget_damage()
    return log.log_end


def _cut_at(log: "Log", keep: int, position: int, end: Offset) -> Offset:
    """End the log at a position within a segment."""
    segment = log.segments[keep]
    try:
        fresh = _shortened(log, segment, position, end)
        producers = log.reader.producers_in(log.segments, keep, position, end)
    except CorruptLog as error:
        log.reader.note_damage(error)
        raise
    except OSError as error:
        raise StorageError(f"cannot truncate {log.directory}: {error.strerror or error}") from error
    _lower_points(log, RecoveryPoint(end, segment.base_offset, position))
    log.drop_staged()
    log.producers = producers
    _replace_from(log, keep, fresh, end)
    log.epochs.truncate_end(end)
    log.flusher.cut_tail()
    return end


def _shortened(log: "Log", segment: Segment, position: int, end: Offset) -> Segment:
    """A segment without its batches from a position on, ready to append."""
    fresh = Segment(
        log.files,
        log.directory,
        segment.base_offset,
        interval_bytes=log.settings.index_interval_bytes,
        size=position,
        created_ms=segment.created_ms,
    )
    fresh.hole = segment.hole
    fresh.flushed_bytes = min(segment.flushed_bytes, position)
    fresh.checked_from = min(segment.checked_from, position)
    if segment.checked_to <= position:
        fresh.checked_to, fresh.checked_offset = segment.checked_to, segment.checked_offset
        fresh.checked_epoch = segment.checked_epoch
    fresh.resume(below=end)
    fresh.txn_index.take(segment.txn_index, below=end)  # memory may be newer than the file
    fresh.next_offset = end
    return fresh


def _lower_points(log: "Log", point: RecoveryPoint) -> None:
    """Lower recovery point and log start on disk, before anything is truncated."""
    if log.recovery_point.offset > point.offset:
        log.points.save_recovery_point(log.partition, point)
        log.recovery_point = point
    if log.log_start > point.offset:
        log.points.save_log_start(log.partition, point.offset)
        log.log_start = point.offset


def _replace_from(log: "Log", keep: int, fresh: Segment, end: Offset) -> None:
    """Replace the last segments by a new active one; `LogFlusher.cut_tail` then changes the files."""
    dropped = log.segments[keep:]
    for segment in dropped:
        segment.is_truncated = True
    log.generation += 1
    log.detach(dropped, [fresh])
    log.end_at(end)
    log.flushed = min(log.flushed, end)
    log.clean_to = min(log.clean_to, end)
    log.flusher.truncated(dropped, fresh, end)


def restart_at(log: "Log", offset: Offset, now_ms: TimestampMs) -> None:
    """Drop everything and start at an offset: for a follower that fell behind the leader's log start."""
    # Until all files are removed, any prefix of the old log may be on disk.
    low = min(offset, log.segments[0].base_offset)
    if log.recovery_point.offset > low:
        point = RecoveryPoint(low, low, 0)
        log.points.save_recovery_point(log.partition, point)
        log.recovery_point = point
    if log.log_start > offset:
        log.points.save_log_start(log.partition, offset)
        log.log_start = offset
    fresh = Segment(
        log.files,
        log.directory,
        offset,
        interval_bytes=log.settings.index_interval_bytes,
        created_ms=now_ms,
    )
    fresh.start_indexes()
    try:
        remove_snapshots_above(log.vfs, log.directory, -1)
    except OSError as error:
        raise StorageError(f"cannot restart {log.directory}: {error.strerror or error}") from error
    log.drop_staged()
    _replace_from(log, 0, fresh, offset)
    log.flushed = log.clean_to = log.log_start = offset
    log.producers = Producers(offset)
    log.epochs.truncate_end(-1)
    log.flusher.cut_tail()
    log.points.save_log_start(log.partition, offset)
    point = RecoveryPoint(offset, offset, 0)
    log.points.save_recovery_point(log.partition, point)
    log.recovery_point = point
