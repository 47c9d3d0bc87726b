"""A killed process leaves things in the kernel's cache. The next one finds them as they should be, and must not take
them for durable: a power cut may come later."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, P, append, batches_of, make_batch, open_small

from penstock.storage.check import check_directory
from penstock.vfs import MemoryDisk

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_whose_maker_was_killed_at_once_is_durable_after_its_first_flush(seed: int) -> None:
    disk = MemoryDisk()
    open_small(disk).create(P, now_ms=NOW_MS, topic_id=TOPIC_ID, sync=False)
    disk = disk.kill_clone()
    log = open_small(disk).logs[P]
    append(log, make_batch(3))
    log.flush()
    disk = disk.crash_clone(Random(seed))
    assert batches_of(open_small(disk).logs[P]) == batches_of(log)


@pytest.mark.parametrize("seed", range(20))
def test_indexes_and_the_topics_id_are_durable_after_a_clean_stop_whoever_wrote_them(seed: int) -> None:
    rng = Random(seed)
    disk = MemoryDisk()
    log = open_small(disk).create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    for _ in range(20):
        append(log, make_batch(3))
    assert len(log.segments) > 2
    disk = disk.kill_clone()
    for _ in range(rng.randrange(3)):
        open_small(disk)
        disk = disk.kill_clone()
    open_small(disk).close()
    disk = disk.crash_clone(rng)
    found = check_directory(disk, "/data/logs", "/data/meta", deep=True)
    assert [str(each) for each in found if each.severity == "error"] == []
    assert open_small(disk).logs[P].topic_id == TOPIC_ID
