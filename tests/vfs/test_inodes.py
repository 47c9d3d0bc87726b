"""What is left after a power cut: never less than was synced, never more than was written."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.vfs import File, MemoryDisk, read_file
from penstock.vfs.inodes import SECTOR_BYTES, FileNode, Survival

SEEDS = range(150)

Command = tuple[int, bytes | None] | None
"""A write, a truncation, or a sync."""

positions = st.integers(0, 4 * SECTOR_BYTES)
commands = st.one_of(
    st.tuples(
        positions, st.builds(lambda byte, length: byte * length, st.binary(min_size=1, max_size=1), positions)
    ),
    st.tuples(positions, st.none()),
    st.none(),
)


def durable_file(disk: MemoryDisk, content: bytes, path: str = "f") -> File:
    file = disk.open(path, write=True, create=True)
    file.pwrite([content], 0)
    file.sync()
    disk.sync_dir("/")
    return file


def crashes(disk: MemoryDisk) -> Iterator[MemoryDisk]:
    return (disk.crash_clone(Random(seed)) for seed in SEEDS)


def contents(disk: MemoryDisk, path: str = "f") -> set[bytes]:
    return {read_file(crash, path) for crash in crashes(disk)}


def names(disk: MemoryDisk, path: str = "/") -> set[tuple[str, ...]]:
    return {tuple(entry.name for entry in crash.list_dir(path)) for crash in crashes(disk)}


class TestFiles:
    def test_what_was_synced_is_there_after_every_power_cut(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"abc" * 1000)
        assert contents(disk) == {b"abc" * 1000}

    def test_unsynced_sectors_survive_one_by_one_and_in_any_version(self) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"a" * 2 * SECTOR_BYTES)
        file.pwrite([b"b" * 2 * SECTOR_BYTES], 0)
        file.pwrite([b"c" * SECTOR_BYTES], SECTOR_BYTES)
        found = {(content[:SECTOR_BYTES], content[SECTOR_BYTES:]) for content in contents(disk)}
        whole = {(x * SECTOR_BYTES, y * SECTOR_BYTES) for x in (b"a", b"b") for y in (b"a", b"b", b"c")}
        assert whole <= found
        assert {second for _, second in found if len(set(second)) == 1} == {second for _, second in whole}

    def test_a_write_within_a_sector_leaves_the_rest_of_it_alone(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"a" * 1000).pwrite([b"b" * 100], 450)
        for content in contents(disk):
            assert len(content) == 1000
            assert content[:450] + content[550:] == b"a" * 900

    def test_the_size_is_anything_from_the_durable_to_the_current(self) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"a" * 100)
        file.pwrite([b"b" * 100], 100)
        file.pwrite([b"c" * 100], 200)
        sizes = {len(content) for content in contents(disk)}
        assert {100, 200, 300} < sizes
        assert min(sizes) == 100
        assert max(sizes) == 300

    def test_a_size_without_its_data_shows_zeros(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"").pwrite([b"b" * 100], 0)
        assert bytes(100) in contents(disk)

    def test_an_unsynced_truncation_may_be_undone_by_a_power_cut(self) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"a" * 1000)
        file.truncate(10)
        assert {b"a" * 1000, b"a" * 10} <= contents(disk)
        file.sync()
        assert contents(disk) == {b"a" * 10}

    def test_what_was_cut_away_may_come_back_behind_what_was_written_after(self) -> None:
        """The trap for a log that truncates and appends without a sync in between."""
        disk = MemoryDisk()
        file = durable_file(disk, b"a" * 2 * SECTOR_BYTES)
        file.truncate(0)
        file.pwrite([b"b" * SECTOR_BYTES], 0)
        assert b"b" * SECTOR_BYTES + b"a" * SECTOR_BYTES in contents(disk)

    def test_bytes_cut_away_durably_do_not_come_back(self) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"a" * 1000)
        file.truncate(0)
        file.sync()
        file.truncate(1000)
        assert {bytes(1000), b""} == {content for content in contents(disk) if len(content) in (0, 1000)}
        assert not any(content.strip(b"\0") for content in contents(disk))

    def test_dropped_pages_are_visible_but_not_durable_until_written_again(self) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"aaa")
        file.pwrite([b"bbb"], 3)
        disk.drop_unsynced("f")
        file.pwrite([b"ccc"], 6)
        file.sync()
        assert read_file(disk, "f") == b"aaabbbccc"
        assert contents(disk) == {b"aaa\0\0\0ccc"}
        file.pwrite([b"bbb"], 3)
        file.sync()
        assert contents(disk) == {b"aaabbbccc"}

    def test_dropping_the_pages_of_a_directory_does_nothing(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"a")
        disk.drop_unsynced("/")
        assert contents(disk) == {b"a"}

    def test_a_clone_is_durable_as_it_is(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"a" * 1000).pwrite([b"b" * 5000], 500)
        for seed in range(10):
            crash = disk.crash_clone(Random(seed))
            assert contents(crash) == {read_file(crash, "f")}

    @settings(max_examples=150, deadline=None)
    @given(st.lists(commands, max_size=8), st.integers(0, 2**32))
    def test_every_byte_is_durable_or_was_written_there_or_is_zero(
        self, script: list[Command], seed: int
    ) -> None:
        disk = MemoryDisk()
        file = durable_file(disk, b"")
        versions = [b""]  # the visible contents since the last sync
        for command in script:
            match command:
                case None:
                    file.sync()
                    versions = [versions[-1]]
                case (length, None):
                    file.truncate(length)
                    versions.append(read_file(disk, "f"))
                case (position, data):
                    file.pwrite([data], position)
                    versions.append(read_file(disk, "f"))
        found = read_file(disk.crash_clone(Random(seed)), "f")
        assert min(map(len, versions)) <= len(found) <= max(map(len, versions))
        for sector in range(0, len(found), SECTOR_BYTES):
            # Beyond a version's end there are zeros, and the new end may lie before that of any version.
            piece = found[sector : sector + SECTOR_BYTES]
            allowed = {(old[sector:] + bytes(SECTOR_BYTES))[: len(piece)] for old in versions}
            assert piece in allowed or _is_cut_write(piece, sector, versions)


def _is_cut_write(piece: bytes, sector: int, versions: list[bytes]) -> bool:
    """Whether this is a sector of one version with the start of the next."""
    for before, after in pairwise(versions):
        old = (before[sector:] + bytes(SECTOR_BYTES))[: len(piece)]
        new = (after[sector:] + bytes(SECTOR_BYTES))[: len(piece)]
        if any(piece == new[:cut] + old[cut:] for cut in range(len(piece) + 1)):
            return True
    return False


class TestDirectories:
    def test_a_synced_file_without_a_synced_name_may_be_missing(self) -> None:
        disk = MemoryDisk()
        file = disk.open("f", write=True, create=True)
        file.pwrite([b"abc"], 0)
        file.sync()
        assert names(disk) == {(), ("f",)}
        assert {read_file(crash, "f") for crash in crashes(disk) if crash.stat("f")} == {b"abc"}

    def test_names_survive_in_the_order_in_which_they_came(self) -> None:
        disk = MemoryDisk()
        for name in "abc":
            disk.open(name, create=True)
        disk.remove("a")
        assert names(disk) == {(), ("a",), ("a", "b"), ("a", "b", "c"), ("b", "c")}
        disk.sync_dir("/")
        assert names(disk) == {("b", "c")}

    def test_a_rename_leaves_the_old_file_or_the_new_one(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"old")
        durable_file(disk, b"new", "g")
        disk.rename("g", "f")
        assert contents(disk) == {b"old", b"new"}
        assert names(disk) == {("f", "g"), ("f",)}

    def test_a_removed_file_may_come_back_with_what_was_durable(self) -> None:
        disk = MemoryDisk()
        durable_file(disk, b"abc").pwrite([b"xyz"], 3)
        disk.remove("f")
        found = {read_file(crash, "f") for crash in crashes(disk) if crash.stat("f")}
        assert b"abc" in found
        assert all(content.startswith(b"abc") for content in found)

    def test_a_directory_without_a_synced_name_takes_everything_in_it_along(self) -> None:
        disk = MemoryDisk()
        disk.make_dirs("d")
        disk.open("d/f", create=True).sync()
        disk.sync_dir("d")
        assert names(disk) == {(), ("d",)}
        disk.sync_dir("/")
        assert names(disk, "d") == {("f",)}

    def test_a_rename_across_directories_survives_in_both_or_in_neither(self) -> None:
        disk = MemoryDisk()
        disk.make_dirs("a")
        disk.make_dirs("b")
        disk.open("a/f", create=True)
        for directory in ("a", "b", "/"):
            disk.sync_dir(directory)
        disk.open("a/before", create=True)
        disk.rename("a/f", "b/g")
        found = {
            tuple(entry.name for directory in "ab" for entry in crash.list_dir(directory))
            for crash in crashes(disk)
        }
        assert found == {("f",), ("before", "f"), ("before", "g")}

    @pytest.mark.parametrize("synced", ["a", "b"])
    def test_syncing_either_directory_makes_a_rename_across_them_durable(self, synced: str) -> None:
        disk = MemoryDisk()
        disk.make_dirs("a")
        disk.make_dirs("b")
        disk.sync_dir("/")
        disk.open("a/f", create=True)
        disk.rename("a/f", "b/f")
        disk.rename("b/f", "a/g")
        disk.rename("a/g", "b/h")
        disk.sync_dir(synced)
        assert names(disk, "a") == {()}
        assert names(disk, "b") == {("h",)}

    def test_a_rename_through_a_directory_that_is_gone_can_still_be_crashed(self) -> None:
        disk = MemoryDisk()
        disk.make_dirs("a")
        disk.make_dirs("b")
        disk.open("a/f", create=True)
        disk.rename("a/f", "b/f")
        disk.rename("b/f", "a/f")
        disk.remove_dir("b")
        disk.sync_dir("/")
        assert names(disk) == {("a",)}
        assert names(disk, "a") == {(), ("f",)}

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.booleans()), max_size=12))
    def test_files_moved_to_and_fro_are_never_lost_nor_doubled(
        self, script: list[tuple[str, str, bool]]
    ) -> None:
        disk = MemoryDisk()
        for directory in "abc":
            disk.make_dirs(directory)
            disk.open(f"{directory}/{directory}", create=True)
            disk.sync_dir(directory)
        disk.sync_dir("/")
        for source, target, is_synced in script:
            for entry in disk.list_dir(source):
                disk.rename(f"{source}/{entry.name}", f"{target}/{entry.name}")
            if is_synced:
                disk.sync_dir(source)
        for seed in range(5):
            crash = disk.crash_clone(Random(seed))
            found = sorted(entry.name for directory in "abc" for entry in crash.list_dir(directory))
            assert found == ["a", "b", "c"]


class TestChance:
    def busy_disk(self) -> MemoryDisk:
        disk = MemoryDisk()
        for n in range(8):
            disk.make_dirs(f"d{n}")
            file = disk.open(f"d{n}/f", write=True, create=True)
            if n % 2:
                disk.sync_dir(f"d{n}")
            for m in range(4):
                file.pwrite([bytes([m + 1]) * 1000], m * 700)
        return disk

    def view(self, disk: MemoryDisk) -> list[tuple[str, str, bytes]]:
        return [
            (top.name, entry.name, read_file(disk, f"{top.name}/{entry.name}"))
            for top in disk.list_dir("/")
            for entry in disk.list_dir(top.name)
        ]

    def test_the_same_seed_gives_the_same_crash(self) -> None:
        disk = self.busy_disk()
        for seed in range(20):
            first = self.view(disk.crash_clone(Random(seed)))
            assert self.view(disk.crash_clone(Random(seed))) == first
            assert self.view(self.busy_disk().crash_clone(Random(seed))) == first

    def test_the_same_seed_gives_the_same_crash_in_another_process(self) -> None:
        script = (
            "from random import Random; from penstock.vfs import *; disk = MemoryDisk()\n"
            "for n in range(9):\n"
            "    disk.open(str(n), write=True, create=True).pwrite([b'x' * 3000], n)\n"
            "for seed in range(20):\n"
            "    crash = disk.crash_clone(Random(seed))\n"
            "    print([(entry.name, read_file(crash, entry.name)) for entry in crash.list_dir('/')])\n"
        )
        outputs = {
            subprocess.run(
                [sys.executable, "-c", script],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(outputs) == 1

    def test_nothing_and_everything_are_both_likely(self) -> None:
        disk = self.busy_disk()
        disk.sync_dir("/")
        nothing = [(f"d{n}", "f", b"") for n in range(8) if n % 2]
        found = [self.view(crash) for crash in crashes(disk)]
        assert found.count(nothing) > len(SEEDS) // 12
        assert found.count(self.view(disk)) > len(SEEDS) // 12
        assert len({str(view) for view in found}) > len(SEEDS) // 2

    def test_crashing_does_not_change_the_disk(self) -> None:
        disk = self.busy_disk()
        before = self.view(disk)
        for _ in crashes(disk):
            pass
        assert self.view(disk) == before
        assert self.view(disk.kill_clone()) == before


def test_a_sync_beside_a_writer_leaves_later_writes_for_the_next() -> None:
    class Intruder(bytes):
        """Data that, when it is copied to the durable content, lets another write happen."""

        def __len__(self) -> int:
            if node.unsynced and len(node.unsynced) == 1 and node.durable == b"":
                node.unsynced.append((0, b"late"))
            return super().__len__()

    node = FileNode(0)
    node.unsynced.append((0, Intruder(b"data")))
    node.sync()
    assert node.durable == b"data"
    assert node.unsynced == [(0, b"late")]


def test_a_cut_keeps_a_prefix_of_what_was_appended() -> None:
    node = FileNode(0)
    whole = b""
    for n in range(10):
        data = bytes([n]) * 100
        node.change((len(whole), data))
        whole += data
    for seed in SEEDS:
        assert whole.startswith(node.after_power_cut(Survival.CUT, Random(seed)))


def torn(node: FileNode) -> set[bytes]:
    return {bytes(node.after_power_cut(Survival.TORN, Random(seed))) for seed in SEEDS}


def test_the_zeros_of_a_truncation_are_a_version_of_each_sector() -> None:
    old, zeros = b"a" * SECTOR_BYTES, bytes(SECTOR_BYTES)
    node = FileNode(0, bytearray(old * 2))
    node.change((0, None))
    node.change((2 * SECTOR_BYTES, None))
    assert torn(node) == {b"", old + old, zeros + old, old + zeros, zeros + zeros}


def test_a_torn_file_may_end_within_a_write() -> None:
    node = FileNode(0)
    node.change((0, b"a" * 100))
    sizes = {len(content) for content in torn(node)}
    assert {0, 100} < sizes <= set(range(101))
