"""One writer, any number of readers, on the real disk: no wrong byte, no gap, no unexpected error."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.storage.housekeeping import retain
from tests.storage.world import EVERYTHING, NOW_MS, SMALL, P, append, batches_of, make_batch, open_small

from penstock.base.ids import TopicPartition
from penstock.records import RecordBatch, iter_batches
from penstock.storage.errors import OffsetOutOfRange
from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.vfs import MemoryDisk, RealDisk

BATCHES = 100
READERS = 3


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Let threads take turns far more often than they would, so that a race has its chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def read_everything(log: Log, stop: threading.Event) -> int:
    """Follow the log like a consumer; return how many records were seen."""
    offset = seen = 0
    while True:
        is_last_round = stop.is_set()
        try:
            data = log.read(offset, 3000)
        except OffsetOutOfRange:
            offset = log.log_start  # retention has overtaken this reader
            continue
        for batch in iter_batches(data):
            assert batch.crc_valid(), f"a wrong byte in the batch at {batch.base_offset}"
            assert batch.base_offset <= offset <= batch.last_offset, "a gap or a repeat"
            timestamps = {record.timestamp - record.offset for record in batch.records()}
            assert timestamps == {NOW_MS}, "a record that was never at this offset"
            seen += batch.next_offset - offset
            offset = batch.next_offset
        if is_last_round and offset >= log.log_end:
            return seen


def look_up(log: Log, stop: threading.Event, seed: int) -> int:
    """Ask for times and for aborted transactions, all over the log."""
    rng, count = Random(seed), 0
    while not stop.is_set():
        start, end = log.log_start, log.log_end
        if start < end:
            wanted = rng.randrange(start, end)
            found = log.reader.offset_for_timestamp(NOW_MS + wanted)
            assert found is not None
            assert found.offset == wanted or (found.offset > wanted and log.log_start > wanted)
            assert log.aborted(start, end) == []
            latest = log.reader.latest_timestamp()
            assert latest is None or latest.offset >= end - 1
        count += 1
    return count


@pytest.mark.parametrize("open_files_max", [4, pytest.param(64, marks=pytest.mark.long)])
def test_readers_follow_a_log_that_grows_rolls_and_loses_its_front(
    tmp_path: Path, open_files_max: int
) -> None:
    settings = replace(SMALL, retention_bytes=8000)
    directory = open_small(RealDisk(), settings, str(tmp_path), open_files_max=open_files_max)
    log = directory.create(P, now_ms=NOW_MS)
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read_everything, log, stop) for _ in range(READERS)]
        askers = [pool.submit(look_up, log, stop, seed) for seed in range(2)]
        try:
            for n in range(BATCHES):
                # The timestamp tells the offset, so that a reader can tell a right record from a wrong one.
                append(log, make_batch(1 + n % 3, size=100, timestamp=NOW_MS + log.log_end))
                if n % 40 == 0:
                    directory.checkpoint()
                if n % 7 == 0:
                    for removal in retain(directory, NOW_MS):
                        removal.run()
        finally:
            stop.set()
        for each in (*readers, *askers):
            each.result(timeout=60)
    assert log.log_start > 0
    directory.close()


def test_readers_of_a_log_that_is_truncated_see_one_history_or_the_other(tmp_path: Path) -> None:
    directory = open_small(RealDisk(), SMALL, str(tmp_path))
    log = directory.create(P, now_ms=NOW_MS)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                data = log.read(log.log_end // 2, EVERYTHING)
            except OffsetOutOfRange:
                continue
            expected = None
            for batch in iter_batches(data):
                assert batch.crc_valid()
                assert expected in (None, batch.base_offset)
                expected = batch.next_offset

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read) for _ in range(READERS)]
        try:
            for n in range(60):
                for _ in range(5):
                    append(log, make_batch(1 + n % 4, size=50 + n, fill=n))
                log.truncate(max(log.log_end - 1 - n % 9, 0))
        finally:
            stop.set()
        for each in readers:
            each.result(timeout=60)
    directory.close()


def test_readers_of_a_deleted_partition_get_an_error_and_nothing_else(tmp_path: Path) -> None:
    directory = open_small(RealDisk(), SMALL, str(tmp_path))
    log = directory.create(P, now_ms=NOW_MS)
    for _ in range(20):
        append(log, make_batch(2, size=300))
    whole = b"".join(batches_of(log))
    directory.delete(P, Random(0)).run()
    with pytest.raises(Exception, match="segment files are missing"):
        log.read(0, len(whole))
    directory.create(P, now_ms=NOW_MS)
    directory.close()


def test_a_reader_that_comes_between_the_bytes_and_the_index_sees_no_more_than_was_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The visible offset was looked up before the append: the new bytes are not in it."""
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    first = append(log, make_batch(2))
    note_all, seen = Segment.note_all, []

    def note_and_read(segment: Segment, position: int, batches: Sequence[Any]) -> None:
        seen.append(segments.read(0, EVERYTHING, 2, whole_first=True))
        note_all(segment, position, batches)

    segments = log.segments
    monkeypatch.setattr(Segment, "note_all", note_and_read)
    log.stage(make_batch(1), leader_epoch=0, now_ms=NOW_MS)
    log.stage(make_batch(3), leader_epoch=0, now_ms=NOW_MS)
    log.write_staged()
    assert seen == [first]


OTHERS_MAX = 2
"""Descriptors beside the segments' files: the lock, and a directory."""


@pytest.mark.long
def test_few_open_files_serve_many_segments_and_partitions(tmp_path: Path) -> None:
    """10,000 partitions must not need 10,000 descriptors; here 20 with 50 segments each, and 8."""
    directory = open_small(
        RealDisk(), replace(SMALL, segment_bytes=1000, retention_bytes=-1), str(tmp_path), open_files_max=8
    )
    partitions = [TopicPartition("orders", n) for n in range(20)]
    for partition in partitions:
        directory.create(partition, now_ms=NOW_MS)
    for n in range(50):
        for partition in partitions:
            append(directory.logs[partition], make_batch(1, size=600, timestamp=NOW_MS + n))
            assert len(directory.files) <= 8
    directory.checkpoint()
    for partition in partitions:
        log = directory.logs[partition]
        assert len(log.segments) >= 40
        for offset in range(0, 50, 7):
            assert RecordBatch.parse(log.read(offset, 1)).base_offset == offset
            found = log.reader.offset_for_timestamp(NOW_MS + offset)
            assert found is not None
            assert found.offset == offset
        assert len(directory.files) <= 8
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert len([each for each in opened if each.startswith(str(tmp_path))]) <= 8 + OTHERS_MAX
    directory.close()
