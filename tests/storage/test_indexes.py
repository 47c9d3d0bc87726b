"""Sparse indexes: what a look-up finds, in memory and on disk, against a walk over all entries."""

import pytest
from tests.storage.world import put

from penstock.storage.errors import BadCheckpoint
from penstock.storage.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.txn_index import AbortedTxn, TxnIndex, decode_aborted
from penstock.vfs import MemoryDisk

BASE = 1000
BLOCK_ENTRIES = 512
"""Of an offset index on disk; a time index has 341."""


def offset_index(count: int) -> OffsetIndex:
    """Entries (base, 0), (base + 3, 100), (base + 6, 200) ..."""
    index = OffsetIndex(OpenFiles(MemoryDisk()), FileRef("/0.index"), BASE)
    index.start()
    for n in range(count):
        index.append(BASE + 3 * n, 100 * n)
    return index


def time_index(count: int) -> TimeIndex:
    index = TimeIndex(OpenFiles(MemoryDisk()), FileRef("/0.timeindex"), BASE)
    index.start()
    for n in range(count):
        index.append(50 + 10 * n, BASE + 3 * n)
    return index


SIZES = [0, 1, 2, 340, 341, 342, 511, 512, 513, 1024, 5000]


def keys_around(count: int) -> list[int]:
    """Every edge of every block, and what lies around it."""
    near = {0, 1, count - 1, count, *range(0, count + 1, 341), *range(0, count + 1, BLOCK_ENTRIES)}
    return sorted({n + d for n in near for d in (-1, 0, 1)})


@pytest.mark.parametrize("sealed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("count", SIZES)
def test_an_offset_is_found_as_by_a_walk(count: int, sealed: bool) -> None:
    index = offset_index(count)
    entries = index.entries()
    if sealed:
        index.write()
        index.release()
    assert index.entries() == entries
    assert index.last() == (entries[-1] if entries else None)
    for key in keys_around(count):
        for offset in (BASE + 3 * key - 1, BASE + 3 * key, BASE + 3 * key + 1):
            expected = max((e for e in entries if e.offset <= offset), default=OffsetEntry(BASE, 0))
            assert index.lookup(offset) == expected


@pytest.mark.parametrize("sealed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("count", SIZES)
def test_a_time_is_found_as_by_a_walk(count: int, sealed: bool) -> None:
    index = time_index(count)
    entries = index.entries()
    if sealed:
        index.write()
        index.release()
    assert index.last() == (entries[-1] if entries else None)
    for key in keys_around(count):
        for timestamp in (49 + 10 * key, 50 + 10 * key, 51 + 10 * key):
            expected = max((e for e in entries if e.timestamp <= timestamp), default=None)
            assert index.lookup(timestamp) == expected


def test_a_look_up_before_between_and_behind_the_entries() -> None:
    index = OffsetIndex(OpenFiles(MemoryDisk()), FileRef("/0.index"), 0)
    index.start()
    index.append(40, 0)
    index.append(90, 5000)
    assert index.lookup(39) == (0, 0)
    assert index.lookup(40) == (40, 0)
    assert index.lookup(89) == (40, 0)
    assert index.lookup(200) == (90, 5000)


def test_a_time_index_takes_only_what_is_new() -> None:
    index = time_index(0)
    for timestamp, offset in ((5, 1000), (5, 1003), (4, 1006), (-1, 1009), (6, 1012)):
        index.append(timestamp, offset)
    assert index.entries() == [TimeEntry(5, 1000), TimeEntry(6, 1012)]


def test_only_what_points_below_an_offset_is_loaded() -> None:
    index = offset_index(10)
    index.write()
    index.load(below=BASE + 9)
    assert [entry.offset for entry in index.entries()] == [BASE, BASE + 3, BASE + 6]
    assert index.write(), "the rest leaves the file"
    index.release()
    assert len(index.entries()) == 3


def test_entries_that_go_back_end_what_is_loaded() -> None:
    index = offset_index(5)
    index.append(BASE + 4, 900)
    index.append(BASE + 99, 1000)
    index.write()
    index.load()
    assert len(index.entries()) == 5


def test_a_file_is_written_on_from_where_it_ends_and_only_when_something_changed() -> None:
    index = offset_index(3)
    assert index.write()
    assert not index.write()
    index.append(BASE + 50, 999)
    assert index.write()
    index.release()
    assert index.last() == OffsetEntry(BASE + 50, 999)


def test_an_index_in_doubt_is_written_again_whole() -> None:
    """After a failed sync the pages may be gone: only what is written again can be synced."""
    disk = MemoryDisk()
    index = OffsetIndex(OpenFiles(disk), FileRef("/0.index"), 0)
    index.start()
    for n in range(5):
        index.append(n, 10 * n + 10)
    index.write()
    index.release()
    disk.drop_unsynced("/0.index")
    index.doubt()
    assert index.write()
    disk.open("/0.index", write=True).sync()
    disk.sync_dir("/")
    survived = disk.kill_clone()
    assert survived.stat("/0.index").size == 40


# -- aborted transactions -----------------------------------------------------------------------------


def txn_index(disk: MemoryDisk) -> TxnIndex:
    return TxnIndex(OpenFiles(disk), FileRef("/0.txnindex"))


ABORTS = [AbortedTxn(7, 10, 20, 15), AbortedTxn(8, 15, 30, 31), AbortedTxn(7, 40, 50, 51)]


def test_aborts_come_back_as_they_were_written() -> None:
    disk = MemoryDisk()
    index = txn_index(disk)
    index.start()
    for each in ABORTS:
        index.append(each)
    assert index.write()
    assert not index.write()
    index.release()
    assert index.entries() == ABORTS
    assert disk.stat("/0.txnindex").size == 3 * 34


def test_only_aborts_below_an_offset_are_loaded() -> None:
    disk = MemoryDisk()
    put(disk, "/0.txnindex", b"".join(each.encode() for each in ABORTS))
    index = txn_index(disk)
    index.load(below=50)
    assert index.entries() == ABORTS[:2]


def test_a_lost_file_tells_nothing_until_the_log_was_asked() -> None:
    index = txn_index(MemoryDisk())
    index.load(below=100)
    with pytest.raises(BadCheckpoint):
        index.entries()
    index.append(ABORTS[2])
    with pytest.raises(BadCheckpoint):
        index.entries()
    assert not index.write(), "half of the truth is not written"
    index.restore(ABORTS[:2])
    assert index.entries() == ABORTS
    assert index.write()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(33), "multiple of 34"),
        (bytes(34), "out of order"),
        (ABORTS[1].encode() + ABORTS[0].encode(), "out of order"),
        (b"\x00\x01" + ABORTS[0].encode()[2:], "version 1"),
        (AbortedTxn(7, 10, 20, 22).encode(), "last stable offset 22"),
        (AbortedTxn(7, 10, 20, 21).encode() + AbortedTxn(7, 22, 30, 5).encode(), "last stable offset 5"),
    ],
)
def test_a_transaction_index_that_cannot_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadCheckpoint, match=why):
        decode_aborted(data, "/0.txnindex")


@pytest.mark.parametrize("sealed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("index", [offset_index(20), time_index(20)], ids=["offset", "time"])
def test_the_first_entries_are_as_many_as_wanted(index: OffsetIndex | TimeIndex, sealed: bool) -> None:
    entries = index.entries()
    if sealed:
        index.write()
        index.release()
    for count in (0, 1, 19, 20, 21):
        assert index.window(0, count) == entries[:count]
