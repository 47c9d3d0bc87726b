"""A log says of which topic it is. A power cut may take that from a new log, but not from one with flushed records:
whoever finds a log that does not say it knows that nothing in it was ever promised."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, P, append, make_batch, open_small

from penstock.vfs import MemoryDisk

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_flushed_is_of_a_known_topic(seed: int) -> None:
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    append(log, make_batch(3))
    log.flush()
    append(log, make_batch(3))
    found = open_small(disk.crash_clone(Random(seed))).logs[P]
    assert found.topic_id == TOPIC_ID
    assert found.log_end >= 3


def test_a_log_that_was_found_without_it_is_flushed_all_the_same() -> None:
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    append(log, make_batch(3))
    disk = disk.kill_clone()
    disk.remove(f"{log.directory}/partition.metadata")
    log = open_small(disk).logs[P]
    assert log.topic_id is None
    append(log, make_batch(3))
    log.flush()
    assert log.flushed == 6


def test_a_flush_is_more_than_one_file_until_it_is_known_of_which_topic_they_are() -> None:
    """Else the kernel could be asked for that one file alone."""
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    append(log, make_batch(3))
    work = log.prepare_flush()
    assert work is not None
    assert work._replace(directory=None).lone_segment() is None
    work.run()
    log.finish_flush(work)
    append(log, make_batch(3))
    work = log.prepare_flush()
    assert work is not None
    assert work.lone_segment() is log.segments.active
