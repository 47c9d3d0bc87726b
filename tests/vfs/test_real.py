"""What only the real disk can do or get wrong: descriptors, short writes, locks between processes."""

import gc
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.vfs import Entry, RealDisk, read_file
from penstock.vfs.real import RealFile


def descriptors(directory: Path) -> int:
    """Those of files in a directory: others come and go with what else this process does."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found += str(each.readlink()).startswith(str(directory))
    return found


def new_file(directory: Path) -> RealFile:
    return RealDisk().open(str(directory / "f"), write=True, create=True)


def test_the_descriptor_is_given_back_with_the_last_reference(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    reader = file
    assert descriptors(tmp_path) == 1
    del file
    assert reader.size() == 0
    del reader
    gc.collect()
    assert descriptors(tmp_path) == 0


def test_closing_twice_does_not_close_the_file_that_got_the_number(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.close()
    other = new_file(tmp_path)
    file.close()
    del file
    assert other.size() == 0


def test_a_descriptor_is_not_inherited_by_programs_that_are_started(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    assert not os.get_inheritable(file._descriptor)


def test_a_new_file_is_not_executable(tmp_path: Path) -> None:
    new_file(tmp_path)
    assert os.stat(tmp_path / "f").st_mode & 0o111 == 0


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """write(2): fewer bytes than asked for may be written, for example when a signal comes."""
    write, write_many = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: write_many(fd, [b"".join(parts)[:3]], at))
    file = new_file(tmp_path)
    file.pwrite([b"0123456789"], 0)
    file.pwrite([b"abcd", b"", b"ef", b"ghijk"], 10)
    assert read_file(RealDisk(), file.path) == b"0123456789abcdefghijk"


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="wrote no bytes"):
        new_file(tmp_path).pwrite([b"a", b"b"], 0)


def test_short_reads_are_continued_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(tmp_path)
    file.pwrite([b"0123456789"], 0)
    read, read_into = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, at: read(fd, min(length, 3), at))
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: read_into(fd, [memoryview(parts[0])[:3]], at))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 1) == b"123456789"
    buffer = bytearray(12)
    assert file.pread_into(buffer, 0) == 10
    assert buffer == b"0123456789\0\0"


def test_a_link_to_nowhere_is_listed_and_one_to_a_directory_counts_as_one(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "nowhere").symlink_to("gone")
    assert RealDisk().list_dir(str(tmp_path)) == [
        Entry("d", True, 0),
        Entry("link", True, 0),
        Entry("nowhere", False, 0),
    ]


def test_the_disk_can_be_sent_to_another_process(tmp_path: Path) -> None:
    new_file(tmp_path).pwrite([b"abc"], 0)
    disk = pickle.loads(pickle.dumps(RealDisk()))
    assert read_file(disk, str(tmp_path / "f")) == b"abc"


LOCK_IN_ANOTHER_PROCESS = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held", flush=True)
else:
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_a_lock_excludes_other_processes_both_ways(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    command = [sys.executable, "-S", "-c", LOCK_IN_ANOTHER_PROCESS, path]
    lock = RealDisk().lock(path)
    with pytest.raises(BlockingIOError):
        RealDisk().lock(path)
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"held\n"
    lock.release()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
        with pytest.raises(BlockingIOError) as caught:
            RealDisk().lock(path)
        assert caught.value.filename == path
        other.communicate()
    RealDisk().lock(path).release()


def test_a_forked_child_does_not_believe_it_holds_its_parents_locks(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = RealDisk().lock(path)
    child = os.fork()
    if child == 0:
        try:
            RealDisk().lock(path)
        except BlockingIOError as error:
            os._exit(0 if "this process" not in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.release()
