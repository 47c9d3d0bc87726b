"""With thousands of partitions it counts what each costs at a start and at a stop: no more is done than needed."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, append, batches_of, files_of, make_batch, open_small

from penstock.base.ids import TopicPartition
from penstock.storage import LogDirectory
from penstock.vfs import FaultyDisk, MemoryDisk

COUNT = 20
TOPIC_ID = bytes(range(16))


def partition(number: int) -> TopicPartition:
    return TopicPartition("many", number)


class Counted(FaultyDisk):
    """A disk that counts, in partitions' directories."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner, sleep=lambda _: None)

        def count(*operations: str):  # type: ignore[no-untyped-def]
            return self.delay("*", 0, when=lambda done, path: done in operations and "/many-" in path)

        self.lists = count("list_dir")
        self.syncs = count("sync", "sync_dir")
        self.changes = count("write", "truncate", "rename", "remove")


def filled(disk: MemoryDisk | FaultyDisk) -> LogDirectory:
    directory = open_small(disk)
    for number in range(COUNT):
        log = directory.create(partition(number), now_ms=NOW_MS, topic_id=TOPIC_ID, sync=False)
        log.begin_epoch(0)
        append(log, make_batch(2, producer=(7, 0, 0)))
    directory.sync_names()
    return directory


def test_a_start_lists_each_directory_once() -> None:
    memory = MemoryDisk()
    filled(memory).close()
    disk = Counted(memory)
    open_small(disk).close()
    assert disk.lists.hits == COUNT


def test_a_start_and_a_stop_touch_nothing_where_nothing_changed() -> None:
    """Leading anew changes nothing on disk before something is written."""
    memory = MemoryDisk()
    filled(memory).close()
    disk = Counted(memory)
    directory = open_small(disk)
    for log in directory.logs.values():
        log.begin_epoch(4)
    directory.close()
    assert disk.syncs.hits == 0
    assert disk.changes.hits == 0
    assert all(log.flusher.is_checkpointed(is_last=True) for log in open_small(memory).logs.values())


def test_a_stop_syncs_no_more_than_has_changed() -> None:
    """A time index, a snapshot, the epochs, the topic's id, and the names; the log was flushed before."""
    disk = Counted(MemoryDisk())
    directory = filled(disk)
    for log in directory.logs.values():
        log.flush()
    before = disk.syncs.hits
    directory.close()
    assert disk.syncs.hits - before == 5 * COUNT


@pytest.mark.parametrize("seed", range(10))
def test_what_a_stop_did_not_sync_is_durable_all_the_same(seed: int) -> None:
    memory = MemoryDisk()
    filled(memory).close()
    directory = open_small(memory)
    for number in range(0, COUNT, 3):
        append(directory.logs[partition(number)], make_batch(1), leader_epoch=1)
    directory.close()
    expected = files_of(memory, "/data/logs")
    assert files_of(memory.crash_clone(Random(seed)), "/data/logs") == expected


def test_after_a_kill_what_is_as_it_was_checkpointed_is_not_written_again() -> None:
    memory = MemoryDisk()
    filled(memory).checkpoint()
    killed = memory.kill_clone()
    expected = {each: batches_of(log) for each, log in open_small(memory.kill_clone()).logs.items()}
    disk = Counted(killed)
    directory = open_small(disk)
    assert all(log.recovery_point.offset == log.log_end == 2 for log in directory.logs.values())
    directory.close()
    # The time index is finished; the rest is synced, for nobody knows what the killed process left in the cache.
    assert disk.changes.hits == COUNT
    assert disk.syncs.hits <= 5 * COUNT
    assert {each: batches_of(log) for each, log in open_small(killed).logs.items()} == expected


def test_a_checkpoint_between_that_is_taken_back_is_done_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    directory = filled(disk)
    log = directory.logs[partition(3)]
    work = log.flusher.prepare_checkpoint(is_last=True)
    assert not log.flusher.is_checkpointed(is_last=True)
    work.run()
    again = log.flusher.prepare_checkpoint(is_last=True)  # supersedes the first
    assert not log.flusher.install_checkpoint(work)
    again.run()
    assert log.flusher.install_checkpoint(again)
    again.sync_names()
    assert log.flusher.finish_checkpoint(again)
    assert log.flusher.is_checkpointed(is_last=True)
    assert log.recovery_point.offset == log.log_end


def test_many_are_deleted_with_no_more_syncs_than_one() -> None:
    def syncs_for(count: int) -> int:
        memory = MemoryDisk()
        directory = filled(memory)
        directory.checkpoint()
        made: list[str] = []
        memory.on_sync = made.append
        for number in range(count):
            directory.delete(partition(number), Random(number), sync=False)
        directory.sync_deleted()
        memory.on_sync = None
        reopened = open_small(memory.crash_clone(Random(0)))
        assert sorted(reopened.logs) == [partition(number) for number in range(count, COUNT)]
        assert len(reopened.leftovers) == count
        return len(made)

    assert syncs_for(1) == syncs_for(COUNT)


@pytest.mark.parametrize("seed", range(10))
def test_one_that_a_power_cut_brings_back_is_whole(seed: int) -> None:
    """Its files go only after its name is durably gone."""
    memory = MemoryDisk()
    directory = filled(memory)
    directory.checkpoint()
    expected = batches_of(directory.logs[partition(0)])
    directory.delete(partition(0), Random(1), sync=False)
    again = open_small(memory.crash_clone(Random(seed)))
    assert partition(0) in again.logs or len(again.leftovers) == 1
    if partition(0) in again.logs:
        assert batches_of(again.logs[partition(0)]) == expected
