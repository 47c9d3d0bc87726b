"""Retention and compaction of a whole directory at once, as a broker does them over many ticks."""

from collections.abc import Iterator

from penstock.storage.cleaner import Cleaned, clean
from penstock.storage.compaction import DEDUPE_BUFFER_BYTES, install, is_due, plan_cleaning
from penstock.storage.deletion import Removal
from penstock.storage.directory import LogDirectory
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.retention import delete_segments, expired, start_after


def retain(directory: LogDirectory, now_ms: int) -> Iterator[Removal]:
    """Delete expired segments; the yielded removals delete the files, at any later time."""
    known = directory.checkpoints.high_watermarks
    doomed = {
        log: segments
        for partition, log in directory.logs.items()
        if (segments := expired(log, now_ms, known.get(partition, log.log_end)))
    }
    directory.checkpoints.save_log_starts(
        {log.partition: start_after(log, segments) for log, segments in doomed.items()}
    )
    for log, segments in doomed.items():
        yield delete_segments(log, segments, now_ms)


def compact_due(directory: LogDirectory, now_ms: int) -> Iterator[Removal]:
    """Compact the logs that are due, one after the other."""
    for partition, log in list(directory.logs.items()):
        high_watermark = directory.checkpoints.high_watermarks.get(partition, log.log_end)
        done = compact(log, now_ms, high_watermark) if is_due(log, now_ms, high_watermark) else None
        if done is not None:
            directory.checkpoints.save_clean_to(log)
            yield done[1]


def compact(
    log: Log, now_ms: int, high_watermark: int, *, memory_bytes: int = DEDUPE_BUFFER_BYTES
) -> tuple[Cleaned, Removal] | None:
    """Plan, clean and install one round."""
    plan = plan_cleaning(log, now_ms, high_watermark, memory_bytes=memory_bytes)
    if plan is None:
        return None
    try:
        cleaned = clean(log.vfs, plan)
    except OSError as error:
        raise StorageError(f"cannot clean {log.directory}: {error.strerror or error}") from error
    return cleaned, install(log, plan, cleaned)
