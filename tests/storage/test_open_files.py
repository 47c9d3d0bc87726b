"""A bounded cache of open files."""

import pytest
from tests.storage.world import put

from penstock.storage.open_files import FileRef, OpenFiles
from penstock.vfs import MemoryDisk


def disk_with(*paths: str) -> MemoryDisk:
    disk = MemoryDisk()
    for path in paths:
        put(disk, path, path.encode())
    return disk


def test_a_file_is_opened_once() -> None:
    files, ref = OpenFiles(disk_with("/a")), FileRef("/a")
    assert files.open(ref) is files.open(ref)
    assert len(files) == 1


def test_the_least_used_file_goes_first() -> None:
    files = OpenFiles(disk_with("/a", "/b", "/c"), open_max=2)
    a, b, c = (FileRef(path) for path in ("/a", "/b", "/c"))
    first = files.open(a)
    files.open(b)
    assert files.open(a) is first
    files.open(c)
    assert files.open(a) is first, "b was dropped"
    assert len(files) == 2


def test_whoever_holds_a_dropped_file_reads_on() -> None:
    files = OpenFiles(disk_with("/a", "/b"), open_max=1)
    held = files.open(FileRef("/a"))
    files.open(FileRef("/b"))
    assert held.pread(2, 0) == b"/a"


def test_two_refs_to_one_path_are_two_files() -> None:
    """A cleaned segment takes an old one's name: the old file must not be read in its place."""
    disk = disk_with("/a")
    files, old, new = OpenFiles(disk), FileRef("/a"), FileRef("/a")
    before = files.open(old)
    disk.remove("/a")
    put(disk, "/a", b"new")
    assert files.open(new).pread(3, 0) == b"new"
    assert files.open(old) is before
    assert before.pread(2, 0) == b"/a"


def test_a_forgotten_file_is_opened_again() -> None:
    files, ref = OpenFiles(disk_with("/a")), FileRef("/a")
    first = files.open(ref)
    files.forget(ref)
    files.forget(ref)
    assert len(files) == 0
    assert files.open(ref) is not first


def test_a_file_is_made_only_where_that_is_asked_for() -> None:
    files, ref = OpenFiles(MemoryDisk()), FileRef("/a")
    with pytest.raises(FileNotFoundError):
        files.open(ref)
    files.open(ref, create=True).pwrite([b"x"], 0)
    files.close()
    assert files.open(ref).size() == 1


def test_a_read_only_cache_writes_nothing() -> None:
    files = OpenFiles(disk_with("/a"), read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.open(FileRef("/a")).pwrite([b"x"], 0)
