"""The memory disk looks like Linux from above; what it keeps below is in `test_inodes`."""

import tempfile
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.vfs import File, MemoryDisk, RealDisk, Vfs, read_file

PATHS = ["a", "b", "d", "d/a", "d/e", "d/e/a", "a/x"]
paths = st.sampled_from(PATHS)
places = st.integers(0, 1500)
contents = st.binary(max_size=40)
commands = st.one_of(
    st.tuples(st.just("write"), paths, contents, places),
    st.tuples(st.just("truncate"), paths, places),
    st.tuples(st.just("hold"), paths),
    st.tuples(st.just("write_held"), contents, places),
    st.tuples(st.just("make_dirs"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("remove_dir"), paths),
    st.tuples(st.just("sync_dir"), paths),
    st.tuples(st.just("set_modified_ms"), paths, st.integers(1, 10**13)),
)


class Driver:
    """Runs commands below one directory of a disk, and tells what came of them."""

    def __init__(self, vfs: Vfs, root: str) -> None:
        self.vfs = vfs
        self.root = root
        self.held: list[File] = []

    def run(self, command: tuple[Any, ...]) -> int | None:
        """The errno, if there was an error."""
        name, *arguments = command
        try:
            getattr(self, name)(*arguments)
        except OSError as error:
            return error.errno
        return None

    def write(self, path: str, data: bytes, position: int) -> None:
        self.vfs.open(self._at(path), write=True, create=True).pwrite([data[:7], data[7:]], position)

    def truncate(self, path: str, length: int) -> None:
        self.vfs.open(self._at(path), write=True).truncate(length)

    def hold(self, path: str) -> None:
        self.held.append(self.vfs.open(self._at(path), write=True, create=True))

    def write_held(self, data: bytes, position: int) -> None:
        for file in self.held:
            file.pwrite([data], position)

    def make_dirs(self, path: str) -> None:
        self.vfs.make_dirs(self._at(path))

    def rename(self, source: str, target: str) -> None:
        self.vfs.rename(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        self.vfs.remove(self._at(path))

    def remove_dir(self, path: str) -> None:
        self.vfs.remove_dir(self._at(path))

    def sync_dir(self, path: str) -> None:
        self.vfs.sync_dir(self._at(path))

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.vfs.set_modified_ms(self._at(path), modified_ms)
        found = self.vfs.stat(self._at(path))
        assert found is not None
        assert found.modified_ms == modified_ms

    def view(self) -> object:
        held = [file.pread(10_000, 0) for file in self.held]
        return tree(self.vfs, self.root), held

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}"


def tree(vfs: Vfs, path: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, is_dir, size in vfs.list_dir(path):
        below = f"{path}/{name}"
        found[name] = tree(vfs, below) if is_dir else read_file(vfs, below)
        assert is_dir or len(read_file(vfs, below)) == size
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(commands, max_size=25))
def test_any_operations_look_the_same_as_on_the_real_disk(script: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        real, memory = Driver(RealDisk(), directory), Driver(MemoryDisk(), "/data")
        memory.vfs.make_dirs("/data")
        for command in script:
            assert memory.run(command) == real.run(command), command
        assert memory.view() == real.view()
        clone = memory.vfs.kill_clone()  # type: ignore[attr-defined]
        assert tree(clone, "/data") == tree(real.vfs, directory)


def test_changes_are_stamped_with_the_time_that_the_disk_was_given() -> None:
    disk = MemoryDisk()
    file = disk.open("f", write=True, create=True)
    assert disk.stat("f") == (0, False, 0)
    disk.now_ms = 5
    file.pwrite([b"x"], 0)
    assert disk.stat("f") == (1, False, 5)
    disk.now_ms = 6
    file.pwrite([b""], 0)
    assert disk.stat("f") == (1, False, 5)
    file.truncate(0)
    assert disk.stat("f") == (0, False, 6)
    disk.now_ms = 7
    disk.rename("f", "g")
    assert disk.stat("/") == (0, True, 7)
    assert disk.kill_clone().stat("g") == (0, False, 6)


def test_the_callbacks_come_before_each_change_and_each_sync() -> None:
    disk = MemoryDisk()
    seen: list[tuple[str, str, object]] = []
    disk.on_change = lambda path: seen.append(("change", path, tree(disk, "")))
    disk.on_sync = lambda path: seen.append(("sync", path, tree(disk, "")))
    disk.make_dirs("d")
    file = disk.open("d/f", write=True, create=True)
    file.pwrite([b"abc"], 0)
    file.sync()
    file.truncate(1)
    disk.rename("d/f", "g")
    disk.sync_dir("d")
    disk.remove("g")
    disk.remove_dir("d")
    assert seen == [
        ("change", "d", {}),
        ("change", "d/f", {"d": {}}),
        ("change", "d/f", {"d": {"f": b""}}),
        ("sync", "d/f", {"d": {"f": b"abc"}}),
        ("change", "d/f", {"d": {"f": b"abc"}}),
        ("change", "d/f", {"d": {"f": b"a"}}),
        ("sync", "d", {"d": {}, "g": b"a"}),
        ("change", "g", {"d": {}, "g": b"a"}),
        ("change", "d", {"d": {}}),
    ]
    assert (disk.change_count, disk.sync_count) == (7, 2)


def test_a_callback_that_raises_stops_the_operation() -> None:
    def refuse(path: str) -> None:
        raise OSError(path)

    disk = MemoryDisk()
    file = disk.open("f", write=True, create=True)
    disk.sync_dir("/")
    file.pwrite([b"abc"], 0)
    disk.on_change = disk.on_sync = refuse
    for use in (file.sync, lambda: file.truncate(0), lambda: disk.remove("f"), lambda: disk.make_dirs("d")):
        with pytest.raises(OSError, match=r"f|d"):
            use()
    assert tree(disk, "") == {"f": b"abc"}
    assert {read_file(disk.crash_clone(Random(seed)), "f") for seed in range(20)} > {b"", b"abc"}


def test_what_was_not_synced_before_a_kill_can_still_be_lost_by_a_power_cut_after_it() -> None:
    disk = MemoryDisk()
    disk.open("f", write=True, create=True).pwrite([b"abc"], 0)
    killed = disk.kill_clone()
    assert read_file(killed, "f") == b"abc"
    assert any(killed.crash_clone(Random(seed)).stat("f") is None for seed in range(20))


def test_a_clone_and_its_disk_go_separate_ways() -> None:
    disk = MemoryDisk()
    file = disk.open("f", write=True, create=True)
    disk.lock("lock")
    disk.now_ms = 9
    disk.sync_dir("/")
    for clone in (disk.kill_clone(), disk.crash_clone(Random(0))):
        assert clone.now_ms == 9
        clone.lock("lock")  # the process that held it is gone
        clone.open("f", write=True).pwrite([b"clone"], 0)
        file.pwrite([b"disk"], 0)
        assert read_file(clone, "f") == b"clone"
        assert read_file(disk, "f") == b"disk"


def test_the_root_can_be_neither_removed_nor_renamed() -> None:
    disk = MemoryDisk()
    with pytest.raises(OSError, match="busy"):
        disk.remove("/")
    with pytest.raises(OSError, match="busy"):
        disk.remove_dir("")
    with pytest.raises(OSError, match="busy"):
        disk.rename("/", "a")


def test_small_writes_to_a_big_file_do_not_cost_its_size() -> None:
    """A hundred thousand appends to 64 MB would copy terabytes if each copied the file."""
    disk = MemoryDisk()
    file = disk.open("f", write=True, create=True)
    file.truncate(64 << 20)
    file.sync()
    for n in range(20_000):
        file.pwrite([b"0123456789"], (64 << 20) + n * 10)
        if n % 100 == 0:
            file.sync()
    assert file.size() == (64 << 20) + 200_000
