"""Finds and deletes the segments that expired by the topic's settings.

Only whole segments are deleted, from the front, and never past the high watermark. If the active segment expired too,
it is rolled first.
"""

from collections.abc import Iterator

from penstock.base.ids import Offset, TimestampMs
from penstock.storage.deletion import Removal, begin_deletion
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.segment import Segment


def expired(log: Log, now_ms: TimestampMs, high_watermark: Offset) -> list[Segment]:
    """The segments at the front that can be deleted now."""
    by_start = list(_below_start(log))
    if not log.settings.is_deleted:
        return by_start
    try:
        by_age = list(_too_old(log, now_ms))
    except OSError as error:
        raise StorageError(f"cannot read {log.directory}: {error.strerror or error}") from error
    reasons = (by_start, by_age, list(_too_much(log)))
    longest = max(reasons, key=len)
    ends = (log.segments.end_of(index) for index in range(len(longest)))
    return [segment for segment, end in zip(longest, ends, strict=True) if end <= high_watermark]


def _below_start(log: Log) -> Iterator[Segment]:
    """Segments that are completely below the log start. The active one is kept."""
    for index, segment in enumerate(log.segments[:-1]):
        if log.segments.end_of(index) > log.log_start:
            return
        yield segment


def _too_old(log: Log, now_ms: TimestampMs) -> Iterator[Segment]:
    """By `retention.ms`: the latest timestamp decides; records without a timestamp do not expire."""
    if log.settings.retention_ms < 0:
        return
    for segment in log.segments:
        youngest = segment.largest().timestamp if segment.size else now_ms
        if segment is log.segments.active and not segment.size:
            return
        if segment.size and (youngest < 0 or now_ms - youngest <= log.settings.retention_ms):
            return
        yield segment


def _too_much(log: Log) -> Iterator[Segment]:
    """By `retention.bytes`: as many segments as leave at least that many bytes."""
    if log.settings.retention_bytes < 0:
        return
    excess = log.size_bytes - log.settings.retention_bytes
    for segment in log.segments[:-1]:
        excess -= segment.size
        if excess < 0:
            return
        yield segment


def start_after(log: Log, segments: list[Segment]) -> Offset:
    """The log start after these segments at the front are deleted."""
    return max(log.log_start, log.segments.end_of(len(segments) - 1))


def delete_segments(log: Log, segments: list[Segment], now_ms: TimestampMs) -> Removal:
    """Delete segments at the front of the log, in a crash-safe order; the files are removed later.

    Producer state must survive them: the recovery point, which has a snapshot of it, is advanced past them first.
    """
    if segments and segments[-1] is log.segments.active:
        log.roll(now_ms)
    leaving = [(segment, log.segments.end_of(index)) for index, segment in enumerate(segments)]
    if not leaving:
        return Removal(log.vfs, ())
    if log.recovery_point.offset < leaving[-1][1]:
        log.points.save_recovery_point(log.partition, log.checkpoint())
    log.advance_start(start_after(log, segments))
    log.detach(segments)
    try:
        return begin_deletion(log.vfs, log.directory, leaving, log.log_start)
    except OSError as error:
        # They left the log in any case; the next start removes the files.
        raise StorageError(f"cannot delete from {log.directory}: {error.strerror or error}") from error
