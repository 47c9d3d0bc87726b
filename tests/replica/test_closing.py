"""The last checkpoint of every log before a stop."""

import errno
from random import Random

import pytest
from tests.storage.world import files_of
from tests.worlds import START_MS, StillWorld

from penstock.base.ids import TopicPartition
from penstock.records import build_batch
from penstock.replica.checkpointing import LastCheckpoints
from penstock.replica.sync_lane import SyncLane
from penstock.storage import LogDirectory, StorageError, open_directory
from penstock.vfs import FaultyDisk, MemoryDisk

COUNT = 300
CLEAN = "/data/logs/.kafka_cleanshutdown"


def opened(disk: MemoryDisk | FaultyDisk) -> LogDirectory:
    return open_directory(disk, "/data", now_ms=START_MS, rng=Random(1), open_files_max=40)


def filled(disk: MemoryDisk | FaultyDisk, count: int = COUNT) -> LogDirectory:
    directory = opened(disk)
    for number in range(count):
        log = directory.create(TopicPartition("t", number), now_ms=START_MS, sync=False)
        log.append(build_batch([(None, b"v%d" % number, START_MS)]), leader_epoch=0, now_ms=START_MS)
    directory.sync_names()
    return directory


def checkpointed(directory: LogDirectory) -> None:
    world = StillWorld()
    done: list[bool] = []
    LastCheckpoints(directory, SyncLane(world), lambda: done.append(True))
    assert not done
    world.run_until_idle()
    assert done == [True]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 127, 128, 129, COUNT])
def test_every_log_has_its_last_checkpoint_and_closing_does_no_more_to_it(count: int) -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    directory = filled(disk, count)
    checkpointed(directory)
    assert all(log.flusher.is_checkpointed(is_last=True) for log in directory.logs.values())
    disk.fail("*", path="/data/logs/t-*")
    directory.close()
    assert CLEAN in files_of(memory)
    survived = opened(memory.crash_clone(Random(3)))
    assert [log.log_end for log in survived.logs.values()] == [1] * count
    assert not survived.reports


def test_where_nothing_changed_there_is_nothing_to_wait_for() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    done: list[bool] = []
    LastCheckpoints(opened(disk), SyncLane(StillWorld()), lambda: done.append(True))
    assert done == [True]


def test_a_log_that_fails_once_is_tried_again_by_closing() -> None:
    disk = FaultyDisk(MemoryDisk())
    directory = filled(disk)
    disk.fail("sync", path="/data/logs/t-50/*", times=1)
    checkpointed(directory)
    behind = [log for log in directory.logs.values() if not log.flusher.is_checkpointed(is_last=True)]
    assert [log.partition.partition for log in behind] == [50]
    directory.close()
    assert CLEAN in files_of(disk)


def test_a_log_that_cannot_be_synced_makes_the_stop_unclean(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk(MemoryDisk())
    directory = filled(disk)
    disk.fail("sync", path="/data/logs/t-50/*", error=errno.EIO)
    checkpointed(directory)
    with pytest.raises(StorageError, match="t-50"):
        directory.close()
    assert CLEAN not in files_of(disk)
    assert "t-50" in caplog.text
