"""Plans the compaction of a log and installs the result.

The log's writer plans and installs a round; `cleaner.clean` may run in another process in between, while the writer
appends, rolls and deletes as usual. If segments of the plan left the log meanwhile, the result is discarded.
"""

from penstock.base.ids import Offset, TimestampMs
from penstock.storage import names, swap
from penstock.storage.cleaner import Cleaned, CleanedSegment, CleaningPlan, ProducerEnd, SourceSegment
from penstock.storage.deletion import Removal
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.segment import Segment

DEDUPE_BUFFER_BYTES = 128 * 2**20
"""Kafka's default for `log.cleaner.dedupe.buffer.size`."""


def cleanable_end(log: Log, now_ms: TimestampMs, high_watermark: Offset) -> Offset:
    """First offset that may not be compacted yet.

    Excludes the active segment, unreplicated records, open transactions, records younger than
    `min.compaction.lag.ms`, and everything after a hole, which must stay between two segments.
    """
    end = min(log.segments.active.base_offset, high_watermark, log.last_stable)
    end = min([end, *(hole.start for hole in log.segments.holes(log.log_start))])
    lag = log.settings.min_compaction_lag_ms
    if lag > 0:
        for segment in log.segments[log.segments.index_of(log.clean_to) : -1]:
            if segment.size and segment.largest().timestamp > now_ms - lag:
                return min(end, segment.base_offset)
    return end


def is_due(log: Log, now_ms: TimestampMs, high_watermark: Offset) -> bool:
    """Whether the dirty part is large enough, or a tombstone or a record is old enough."""
    if not log.settings.is_compacted:
        return False
    if log.tombstones_until is not None and now_ms >= log.tombstones_until:
        return True
    end = cleanable_end(log, now_ms, high_watermark)
    if end <= log.clean_to:
        return False
    clean_bytes = dirty_bytes = 0
    oldest = None
    for index, segment in enumerate(log.segments):
        if log.segments.end_of(index) <= log.clean_to:
            clean_bytes += segment.size
        elif segment.base_offset < end:
            dirty_bytes += segment.size
            oldest = segment.first_timestamp() if oldest is None and segment.size else oldest
    if not dirty_bytes:
        return False
    has_waited = oldest is not None and oldest >= 0 and now_ms - oldest > log.settings.max_compaction_lag_ms
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    return has_waited or ratio >= log.settings.min_cleanable_dirty_ratio


def plan_cleaning(
    log: Log, now_ms: TimestampMs, high_watermark: Offset, *, memory_bytes: int = DEDUPE_BUFFER_BYTES
) -> CleaningPlan | None:
    """Plan a round over everything that may be compacted; None if there is nothing.

    The recovery point is advanced past it first: recovery expects no offset gaps after it.
    """
    end = cleanable_end(log, now_ms, high_watermark)
    segments = tuple(
        SourceSegment(
            segment.base_offset,
            min(log.segments.end_of(index), end),
            segment.size,
            segment.index_bytes() if segment.size else 0,
        )
        for index, segment in enumerate(log.segments[:-1])
        if log.segments.end_of(index) <= end
    )
    if not segments:
        return None
    end = segments[-1].end_offset
    if log.recovery_point.offset < end:
        log.points.save_recovery_point(log.partition, log.checkpoint())
    return CleaningPlan(
        directory=log.directory,
        segments=segments,
        first_dirty=min(max(log.clean_to, segments[0].base_offset), end),
        end=end,
        segment_bytes=log.settings.segment_bytes,
        index_bytes_max=log.settings.segment_index_bytes,
        interval_bytes=log.settings.index_interval_bytes,
        delete_retention_ms=log.settings.delete_retention_ms,
        memory_bytes=memory_bytes,
        now_ms=now_ms,
        aborted=tuple(log.aborted(segments[0].base_offset, end)),
        producers={
            producer_id: ProducerEnd(producer.last_offset if producer.batches else None, producer.epoch)
            for producer_id, producer in log.producers.by_id.items()
        },
        generation=log.generation,
    )


def install(log: Log, plan: CleaningPlan, cleaned: Cleaned) -> Removal:
    """Replace the old segments by cleaned ones; the old files are removed later.

    The caller saves `log.clean_to` afterwards: if that is lost, the round is repeated, which is harmless.
    """
    paths: list[str] = []
    try:
        if not _still_fits(log, plan, cleaned):
            discard(log, cleaned)
            return Removal(log.vfs, ())
        # After a crash from here on, the replaced segments must not count as lost.
        log.flusher.abandon_checkpoint()
        log.points.leave_out(log.partition, {base for each in cleaned.segments for base in each.replaces})
        for each in cleaned.segments:
            paths += _swap_in(log, each)
    except OSError as error:
        raise StorageError(f"cannot swap cleaned segments into {log.directory}: {error.strerror}") from error
    log.clean_to = max(log.clean_to, cleaned.clean_to)
    log.tombstones_until = cleaned.next_horizon_ms
    return Removal(log.vfs, tuple(paths))


def discard(log: Log, cleaned: Cleaned) -> None:
    """Remove the files of a discarded round."""
    for each in cleaned.segments:
        for kind in names.SEGMENT_KINDS:
            path = f"{log.directory}/{names.segment_file(each.base_offset, kind, names.CLEANED)}"
            if log.vfs.stat(path) is not None:
                log.vfs.remove(path)


def _still_fits(log: Log, plan: CleaningPlan, cleaned: Cleaned) -> bool:
    present = {segment.base_offset: segment.size for segment in log.segments[:-1]}
    planned = {old.base_offset: old.size for old in plan.segments}
    return log.generation == plan.generation and all(
        present.get(base) == planned[base] for each in cleaned.segments for base in each.replaces
    )


def _swap_in(log: Log, cleaned: CleanedSegment) -> list[str]:
    """Install one cleaned segment. It is read under its `.swap` names until the old files are renamed."""
    swap.commit(log.vfs, log.directory, cleaned.base_offset)
    fresh = Segment(
        log.files,
        log.directory,
        cleaned.base_offset,
        interval_bytes=log.settings.index_interval_bytes,
        size=cleaned.size,
        state=names.SWAP,
    )
    for ref in fresh.refs.values():
        log.files.open(ref)
    wanted = set(cleaned.replaces)
    log.detach([segment for segment in log.segments if segment.base_offset in wanted], [fresh])
    retired = swap.retire(log.vfs, log.directory, cleaned.replaces)
    swap.install(log.vfs, log.directory, cleaned.base_offset)
    for kind, ref in fresh.refs.items():
        ref.path = fresh.path_of(kind)
    return retired
