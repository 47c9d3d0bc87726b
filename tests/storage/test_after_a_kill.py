"""A killed process leaves things in the kernel's cache. The next one finds them as they should be, and must not take
them for durable: a power cut may come later. What it does not find as it should be is put right, in the files too."""

from random import Random

import pytest
from tests.storage.world import NOW_MS, P, append, batches_of, make_batch, open_small, put

from penstock.records import end_txn_marker
from penstock.storage.check import check_directory
from penstock.storage.log import Log
from penstock.vfs import MemoryDisk

TOPIC_ID = bytes(range(16))

TORN = {
    "zeros": lambda data: bytes(len(data)),
    "cut within an entry": lambda data: data[:-14],
    "zeros at the end": lambda data: data[:-34] + bytes(34),
}
"""What a write of a transaction index may leave that a power cut ends."""


def errors_in(disk: MemoryDisk) -> list[str]:
    found = check_directory(disk, "/data/logs", "/data/meta", deep=True)
    return [str(each) for each in found if each.severity == "error"]


def abort(log: Log, sequence: int) -> None:
    append(log, make_batch(1, producer=(10, 0, sequence), transactional=True))
    append(log, bytearray(end_txn_marker(10, 0, False, 0, NOW_MS)), marker=True)


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
    assert errors_in(disk) == []
    assert open_small(disk).logs[P].topic_id == TOPIC_ID


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "active"])
@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("how", TORN)
def test_a_transaction_index_that_a_power_cut_tore_is_whole_again_in_its_file(
    how: str, before: int, is_sealed: bool
) -> None:
    """It was certain up to the recovery point, and what is written again may be torn from its first byte on."""
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    for sequence in range(before):
        abort(log, sequence)
    directory.checkpoint()
    abort(log, before)
    abort(log, before + 1)
    log.flush()
    torn = log.segments.active.txn_index.ref.path
    log.roll(NOW_MS)
    if is_sealed:
        abort(log, before + 2)
        log.flush()
    expected = log.aborted(0, log.log_end)
    assert [each.first_offset for each in expected] == list(range(0, log.log_end, 2))
    disk = disk.kill_clone()
    file = disk.open(torn)
    put(disk, torn, TORN[how](file.pread(file.size(), 0)))
    if not is_sealed:
        disk.remove(log.segments.active.ref.path)
    open_small(disk).close()
    assert errors_in(disk) == []
    log = open_small(disk).logs[P]
    assert log.aborted(0, log.log_end) == expected


def test_a_torn_transaction_index_is_whole_again_where_the_log_lost_what_it_spoke_of() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS, topic_id=TOPIC_ID)
    abort(log, 0)
    directory.checkpoint()
    before = log.segments.active
    size, expected = before.size, log.aborted(0, log.log_end)
    abort(log, 1)
    log.roll(NOW_MS)
    disk = disk.kill_clone()
    disk.remove(log.segments.active.ref.path)
    disk.open(before.ref.path, write=True).truncate(size)
    put(disk, before.txn_index.ref.path, expected[0].encode() + bytes(20))
    open_small(disk).close()
    assert errors_in(disk) == []
    log = open_small(disk).logs[P]
    assert log.log_end == 2
    assert log.aborted(0, log.log_end) == expected
