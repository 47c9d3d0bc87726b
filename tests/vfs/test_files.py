import errno
from random import Random

import pytest

from penstock.vfs import (
    FaultyDisk,
    MemoryDisk,
    RealDisk,
    Vfs,
    join,
    parent,
    read_file,
    remove_tree,
    replace_file,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a"),
        ("/a", "/"),
        ("/", "/"),
        ("a/b/c", "a/b"),
        ("a", "."),
        ("a/", "."),
        ("/a/b/", "/a"),
        ("", "."),
    ],
)
def test_parent_is_the_directory_of_the_name(path: str, expected: str) -> None:
    assert parent(path) == expected


def test_join_puts_one_slash_between() -> None:
    assert join("a", "b", "c") == "a/b/c"
    assert join("/", "a") == "/a"
    assert join("a/", "", "b") == "a/b"


def test_a_replaced_file_has_the_new_content_and_no_draft_beside_it(vfs: Vfs, root: str) -> None:
    replace_file(vfs, f"{root}/f", b"a long first content")
    replace_file(vfs, f"{root}/f", b"second")
    assert read_file(vfs, f"{root}/f") == b"second"
    assert [entry.name for entry in vfs.list_dir(root)] == ["f"]


def test_a_draft_left_behind_does_no_harm(vfs: Vfs, root: str) -> None:
    vfs.open(f"{root}/f.tmp", write=True, create=True).pwrite([b"longer than what comes"], 0)
    replace_file(vfs, f"{root}/f", b"short")
    assert read_file(vfs, f"{root}/f") == b"short"


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_at_any_point_leaves_the_old_content_or_the_new(seed: int) -> None:
    rng = Random(seed)
    old, new = b"o" * 1500, b"n" * 3000
    disk = MemoryDisk()
    replace_file(disk, "f", old)
    crashes: list[MemoryDisk] = []
    disk.on_change = disk.on_sync = lambda _path: crashes.append(disk.crash_clone(rng))
    replace_file(disk, "f", new)
    assert len(crashes) == 6  # create, truncate, write, sync, rename, sync of the directory
    assert {read_file(crash, "f") for crash in crashes} <= {old, new}
    assert read_file(disk.crash_clone(rng), "f") == new


def test_a_failed_sync_leaves_the_old_content_and_the_next_try_mends_it() -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    replace_file(disk, "f", b"old")
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="injected") as caught:
        replace_file(disk, "f", b"new")
    assert caught.value.errno == errno.EIO
    assert read_file(disk, "f") == b"old"
    replace_file(disk, "f", b"new")
    assert all(read_file(memory.crash_clone(Random(seed)), "f") == b"new" for seed in range(20))


def test_a_tree_is_removed_whole_and_removing_it_again_is_fine(vfs: Vfs, root: str) -> None:
    vfs.make_dirs(f"{root}/t/a/b")
    vfs.make_dirs(f"{root}/t/c")
    for path in ("t/f", "t/a/g", "t/a/b/h"):
        vfs.open(f"{root}/{path}", create=True).close()
    remove_tree(vfs, f"{root}/t")
    assert vfs.list_dir(root) == []
    remove_tree(vfs, f"{root}/t")


def test_removing_a_tree_also_takes_a_plain_file(vfs: Vfs, root: str) -> None:
    vfs.open(f"{root}/f", create=True).close()
    remove_tree(vfs, f"{root}/f")
    assert vfs.list_dir(root) == []


def test_removing_a_tree_does_not_follow_links_out_of_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    tree, elsewhere = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_bytes(b"x")
    (tree / "link").symlink_to(elsewhere)
    (tree / "nowhere").symlink_to("gone")
    remove_tree(RealDisk(), str(tree))
    assert not tree.exists()
    assert (elsewhere / "precious").exists()


def test_a_full_disk_leaves_the_old_content() -> None:
    disk = FaultyDisk(MemoryDisk())
    replace_file(disk, "f", b"old")
    disk.capacity = disk.used + 2
    with pytest.raises(OSError, match="full") as caught:
        replace_file(disk, "f", b"newer")
    assert caught.value.errno == errno.ENOSPC
    assert read_file(disk, "f") == b"old"
