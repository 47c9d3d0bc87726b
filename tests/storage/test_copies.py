"""A log that copies another: as a follower's does."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, P, append, batches_of, files_of, make_batch, open_small

from penstock.base.errors import ErrorCode, KafkaError
from penstock.storage import Log
from penstock.vfs import MemoryDisk


def leader_with(count: int, epochs: int = 1) -> Log:
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    for number in range(count):
        append(log, make_batch(1 + number % 4, fill=number), leader_epoch=number * epochs // count)
    return log


def copy_of(leader: Log, disk: MemoryDisk, bytes_max: int) -> Log:
    log = open_small(disk).create(P, now_ms=NOW_MS)
    while log.log_end < leader.log_end:
        log.append_replicated(leader.read(log.log_end, bytes_max), now_ms=NOW_MS)
    return log


@pytest.mark.parametrize("bytes_max", [1, 700, 100_000])
def test_a_copy_has_the_same_bytes_and_epochs_in_its_files(bytes_max: int) -> None:
    leader, disk = leader_with(40, epochs=3), MemoryDisk()
    log = copy_of(leader, disk, bytes_max)
    assert batches_of(log) == batches_of(leader)
    assert log.epochs.entries == leader.epochs.entries
    assert len(log.segments) == len(leader.segments) > 3
    log.checkpoint()
    leader.checkpoint()
    logs = {name: data for name, data in files_of(disk).items() if name.endswith(".log")}
    assert logs == {name: data for name, data in files_of(leader.vfs).items() if name.endswith(".log")}


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_the_first_part_of_a_copy(seed: int) -> None:
    leader, disk, rng = leader_with(30), MemoryDisk(), Random(seed)
    log = open_small(disk).create(P, now_ms=NOW_MS)
    synced = 0
    while log.log_end < leader.log_end:
        log.append_replicated(leader.read(log.log_end, 900), now_ms=NOW_MS)
        if rng.random() < 0.3:
            log.flush()
            synced = log.log_end
        if rng.random() < 0.2:
            break
    after = open_small(disk.crash_clone(rng)).logs[P]
    assert after.log_end >= synced
    kept = batches_of(after)
    assert kept == batches_of(leader)[: len(kept)]


def test_a_batch_of_a_later_epoch_than_the_leaders_is_refused_with_all_that_came_with_it() -> None:
    leader = leader_with(4, epochs=2)
    log = open_small(MemoryDisk()).create(P, now_ms=NOW_MS)
    with pytest.raises(KafkaError, match="leader epoch 1 at offset 3, expected 0 at most") as refused:
        log.append_replicated(leader.read(0, 100_000), now_ms=NOW_MS, epoch_max=0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end, log.epochs.entries) == (0, [])
    log.append_replicated(leader.read(0, 100_000), now_ms=NOW_MS, epoch_max=1)
    assert batches_of(log) == batches_of(leader)


def test_a_truncation_at_the_end_forgets_an_epoch_in_which_nothing_was_written() -> None:
    """Kafka's UnifiedLog.truncateTo: it would be told to truncate to there again and again."""
    log = leader_with(4)
    end = log.log_end
    log.begin_epoch(7)
    assert log.truncate(end) == end
    assert log.epochs.latest == 0
    assert len(batches_of(log)) == 4
