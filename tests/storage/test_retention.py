"""Which segments outlive their settings, and how they leave."""

from dataclasses import replace

from tests.storage.housekeeping import retain
from tests.storage.world import NOW_MS, P, append, files_of, make_batch, open_small, put

from penstock.base.settings import LogSettings
from penstock.storage import names
from penstock.storage.deletion import DeletionMarker, read_markers
from penstock.storage.directory import LogDirectory
from penstock.storage.log import Log
from penstock.storage.retention import delete_segments, expired
from penstock.vfs import MemoryDisk

KEEP_ALL = LogSettings(segment_bytes=1000, retention_ms=-1, retention_bytes=-1, index_interval_bytes=100)


def log_with(
    settings: LogSettings, segments: int, disk: MemoryDisk | None = None
) -> tuple[LogDirectory, Log]:
    """Segments of one batch of one record each, a second apart, the last one active."""
    directory = open_small(disk or MemoryDisk(), settings)
    log = directory.create(P, now_ms=NOW_MS)
    for n in range(segments):
        append(log, make_batch(1, size=900, timestamp=NOW_MS + 1000 * n))
    assert len(log.segments) == segments
    return directory, log


def bases(log: Log, now_ms: int = NOW_MS, high_watermark: int = 10**9) -> list[int]:
    return [segment.base_offset for segment in expired(log, now_ms, high_watermark)]


def test_without_limits_nothing_goes() -> None:
    assert bases(log_with(KEEP_ALL, 5)[1], NOW_MS + 10**12) == []


def test_by_time_the_youngest_record_of_a_segment_decides() -> None:
    _, log = log_with(replace(KEEP_ALL, retention_ms=5000), 5)
    assert bases(log, NOW_MS + 5000) == []
    assert bases(log, NOW_MS + 5001) == [0]
    assert bases(log, NOW_MS + 7500) == [0, 1, 2]


def test_the_active_segment_goes_too_once_all_of_it_is_old_and_a_new_one_is_begun() -> None:
    directory, log = log_with(replace(KEEP_ALL, retention_ms=5000), 3)
    assert bases(log, NOW_MS + 10**6) == [0, 1, 2]
    for removal in retain(directory, NOW_MS + 10**6):
        removal.run()
    assert (log.log_start, log.log_end) == (3, 3)
    assert [segment.base_offset for segment in log.segments] == [3]
    assert bases(log, NOW_MS + 10**9) == [], "an empty active segment stays"
    assert append(log, make_batch(1)) == log.read(3, 1)


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    """Only from the front: timestamps need not be in order."""
    directory = open_small(MemoryDisk(), replace(KEEP_ALL, retention_ms=5000))
    log = directory.create(P, now_ms=NOW_MS)
    for timestamp in (NOW_MS, NOW_MS + 50_000, NOW_MS, NOW_MS):
        append(log, make_batch(1, size=900, timestamp=timestamp))
    assert bases(log, NOW_MS + 20_000) == [0]


def test_records_without_a_time_never_age() -> None:
    directory = open_small(MemoryDisk(), replace(KEEP_ALL, retention_ms=5000))
    log = directory.create(P, now_ms=NOW_MS)
    for _ in range(3):
        append(log, make_batch(1, size=900, timestamp=-1, step=0))
    assert bases(log, NOW_MS + 10**9) == []


def test_by_size_at_least_so_many_bytes_stay() -> None:
    _, log = log_with(KEEP_ALL, 5)
    size = log.segments[0].size
    for limit, gone in ((5 * size, 0), (4 * size + 1, 0), (4 * size, 1), (size, 4), (0, 4)):
        log.configure(replace(KEEP_ALL, retention_bytes=limit))
        assert len(bases(log)) == gone


def test_by_the_log_start_whole_segments_go() -> None:
    _, log = log_with(KEEP_ALL, 5)
    log.advance_start(2)
    assert bases(log) == [0, 1]
    log.advance_start(5)
    assert bases(log) == [0, 1, 2, 3], "the active one stays"


def test_nothing_goes_past_the_high_watermark() -> None:
    _, log = log_with(replace(KEEP_ALL, retention_bytes=0), 5)
    assert bases(log, high_watermark=2) == [0, 1]
    assert bases(log, high_watermark=0) == []


def test_a_topic_that_is_only_compacted_loses_what_its_log_start_hides_and_nothing_else() -> None:
    _, log = log_with(KEEP_ALL, 5)
    log.configure(replace(KEEP_ALL, retention_bytes=0, retention_ms=0, cleanup_policy=("compact",)))
    assert bases(log, NOW_MS + 10**9) == []
    log.advance_start(3)
    assert bases(log, NOW_MS + 10**9) == [0, 1, 2]


def test_a_deletion_moves_the_log_start_then_renames_then_removes() -> None:
    disk = MemoryDisk()
    _, log = log_with(KEEP_ALL, 4, disk)
    removal = delete_segments(log, list(log.segments[:2]), NOW_MS)
    assert log.log_start == 2
    assert [segment.base_offset for segment in log.segments] == [2, 3]
    left = [name for name in files_of(disk, log.directory) if "/00000000000000000000." in name]
    assert all(name.endswith((names.DELETED, names.TOMB)) for name in left)
    tombs = {base: tomb for _, base, tomb in read_markers(disk, log.directory)}
    assert tombs == {0: DeletionMarker(1, 2), 1: DeletionMarker(2, 2)}
    removal.run()
    removal.run()
    assert not [name for name in files_of(disk, log.directory) if names.DELETED in name or names.TOMB in name]


def test_deleting_nothing_does_nothing() -> None:
    _, log = log_with(KEEP_ALL, 2)
    delete_segments(log, [], NOW_MS).run()
    assert log.log_start == 0


def test_a_tomb_that_the_log_start_does_not_bear_out_is_forgotten() -> None:
    disk = MemoryDisk()
    _, log = log_with(KEEP_ALL, 3, disk)
    log.flush()
    put(disk, f"{log.directory}/{names.segment_file(0, names.TOMB)}", b'{"end":1,"log_start":1}')
    put(disk, f"{log.directory}/{names.segment_file(1, names.TOMB)}", b'{"en')
    put(disk, f"{log.directory}/{names.segment_file(2, names.TOMB)}", b'{"end": "\xff"}')
    clone = disk.kill_clone()
    log = open_small(clone, KEEP_ALL).logs[P]
    assert (log.log_start, log.log_end) == (0, 3)
    assert not [name for name in files_of(clone) if name.endswith(names.TOMB)]


def test_producers_outlive_the_segments_they_wrote() -> None:
    directory = open_small(MemoryDisk(), replace(KEEP_ALL, retention_bytes=0))
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(1, size=900, producer=(7, 3, 0)))
    for _ in range(3):
        append(log, make_batch(1, size=900))
    list(retain(directory, NOW_MS))
    assert log.log_start > 0
    directory.close()
    assert open_small(directory.vfs, KEEP_ALL).logs[P].producers.by_id[7].epoch == 3
