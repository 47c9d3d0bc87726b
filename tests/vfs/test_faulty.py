import errno
from random import Random

import pytest

from penstock.vfs import FaultyDisk, File, MemoryDisk, RealDisk, read_file, replace_file


def new_file(disk: FaultyDisk, path: str = "f") -> File:
    return disk.open(path, write=True, create=True)


def test_a_failure_strikes_its_operation_on_its_paths_as_often_as_told() -> None:
    disk = FaultyDisk(MemoryDisk())
    log, index = new_file(disk, "0.log"), new_file(disk, "0.index")
    rule = disk.fail("write", path="*.log", error=errno.EROFS, times=2)
    index.pwrite([b"x"], 0)
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only") as caught:
            log.pwrite([b"x"], 0)
        assert (caught.value.errno, caught.value.filename) == (errno.EROFS, "0.log")
    log.pwrite([b"x"], 0)
    assert rule.hits == 2


def test_a_failure_without_times_lasts_until_it_is_cancelled() -> None:
    disk = FaultyDisk(MemoryDisk())
    rule = disk.fail("stat")
    for _ in range(5):
        with pytest.raises(OSError, match="injected"):
            disk.stat("f")
    rule.cancel()
    assert disk.stat("f") is None


def test_a_failure_can_let_the_first_operations_pass() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("open", after=2, times=1)
    new_file(disk)
    new_file(disk)
    with pytest.raises(OSError, match="injected"):
        new_file(disk)
    new_file(disk)


def test_a_failure_can_be_chosen_by_any_predicate() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("*", when=lambda operation, path: operation == "open" and len(path) > 3)
    new_file(disk, "abc")
    with pytest.raises(OSError, match="injected"):
        new_file(disk, "abcd")


def test_a_rename_is_struck_by_either_of_its_paths() -> None:
    disk = FaultyDisk(MemoryDisk())
    new_file(disk, "f.tmp")
    disk.fail("rename", path="*.json")
    with pytest.raises(OSError, match="injected"):
        disk.rename("f.tmp", "f.json")
    disk.rename("f.tmp", "g")


def test_every_operation_can_fail_and_then_does_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.make_dirs("d")
    file = new_file(disk, "d/f")
    file.pwrite([b"abc"], 0)
    disk.fail("*")
    for use in (
        lambda: disk.open("d/f"),
        lambda: disk.list_dir("d"),
        lambda: disk.stat("d"),
        lambda: disk.make_dirs("e"),
        lambda: disk.rename("d/f", "d/g"),
        lambda: disk.remove("d/f"),
        lambda: disk.remove_dir("d"),
        lambda: disk.sync_dir("d"),
        lambda: disk.set_modified_ms("d/f", 1),
        lambda: disk.lock("d/lock"),
        lambda: file.pread(1, 0),
        lambda: file.pread_into(bytearray(1), 0),
        lambda: file.pwrite([b"x"], 0),
        file.size,
        lambda: file.truncate(0),
        file.sync,
    ):
        with pytest.raises(OSError, match="injected"):
            use()
    disk.clear()
    assert read_file(disk, "d/f") == b"abc"
    assert [entry.name for entry in disk.list_dir("/")] == ["d"]
    assert [entry.name for entry in disk.list_dir("d")] == ["f"]


def test_delays_go_through_the_given_sleep_and_add_up() -> None:
    slept: list[float] = []
    disk = FaultyDisk(MemoryDisk(), sleep=slept.append)
    file = new_file(disk)
    disk.delay("sync", 0.5)
    disk.delay("*", 0.25, times=1)
    file.sync()
    file.sync()
    assert slept == [0.5, 0.25, 0.5]


def test_a_delay_without_a_sleep_is_refused() -> None:
    with pytest.raises(ValueError, match="sleep"):
        FaultyDisk(MemoryDisk()).delay("sync", 1)


@pytest.mark.parametrize("rng", [None, *map(Random, range(10))])
def test_a_torn_write_leaves_a_part_from_the_start(rng: Random | None) -> None:
    disk = FaultyDisk(MemoryDisk(), rng=rng)
    file = new_file(disk)
    disk.tear_writes(times=1)
    with pytest.raises(OSError, match="torn") as caught:
        file.pwrite([b"01234", b"56789"], 0)
    assert caught.value.errno == errno.EIO
    assert b"0123456789".startswith(file.pread(20, 0))
    assert file.size() < 10
    file.pwrite([b"0123456789"], 0)
    assert file.pread(20, 0) == b"0123456789"


def test_a_full_disk_writes_what_fits() -> None:
    disk = FaultyDisk(MemoryDisk())
    file = new_file(disk)
    disk.capacity = 10
    file.pwrite([b"0123456"], 0)
    with pytest.raises(OSError, match="full after 3 of 5") as caught:
        file.pwrite([b"abcde"], 7)
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(20, 0) == b"0123456abc"
    with pytest.raises(OSError, match="full after 0 of 1"):
        new_file(disk, "g").pwrite([b"x"], 0)


def test_overwriting_needs_no_room() -> None:
    disk = FaultyDisk(MemoryDisk())
    file = new_file(disk)
    file.pwrite([b"0123"], 0)
    disk.capacity = 4
    file.pwrite([b"abcd"], 0)
    with pytest.raises(OSError, match="full after 2 of 3"):
        file.pwrite([b"xyz"], 2)
    assert file.pread(10, 0) == b"abxy"


def test_truncating_removing_and_replacing_give_room_back() -> None:
    disk = FaultyDisk(MemoryDisk())
    for name in "abc":
        new_file(disk, name).pwrite([b"0123456789"], 0)
    assert disk.used == 30
    new_file(disk, "a").truncate(4)
    assert disk.used == 24
    disk.remove("b")
    assert disk.used == 14
    disk.rename("c", "c")
    assert disk.used == 14
    disk.rename("c", "a")
    assert disk.used == 10


def test_a_failed_sync_drops_the_pages_as_linux_does() -> None:
    """The "fsyncgate" of 2018: the second fsync reports success, and the data is not on the disk."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    file = new_file(disk)
    disk.sync_dir("/")
    disk.fail("sync", times=1)
    file.pwrite([b"abc"], 0)
    with pytest.raises(OSError, match="injected"):
        file.sync()
    file.sync()
    assert file.pread(10, 0) == b"abc"
    assert {read_file(memory.crash_clone(Random(seed)), "f") for seed in range(20)} == {b""}
    file.pwrite([b"abc"], 0)
    file.sync()
    assert {read_file(memory.crash_clone(Random(seed)), "f") for seed in range(20)} == {b"abc"}


def test_a_failed_sync_reaches_a_memory_disk_below_two_wrappers_under_any_name() -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(FaultyDisk(memory))
    file = new_file(disk)
    disk.rename("f", "g")
    disk.sync_dir("/")
    disk.fail("sync", times=1)
    file.pwrite([b"abc"], 0)
    with pytest.raises(OSError, match="injected"):
        file.sync()
    file.sync()
    assert read_file(memory.crash_clone(Random(0)), "g") == b""


def test_with_an_rng_a_failed_sync_may_have_written_something() -> None:
    found = set()
    for seed in range(40):
        memory = MemoryDisk()
        disk = FaultyDisk(memory, rng=Random(seed))
        file = new_file(disk)
        disk.sync_dir("/")
        disk.fail("sync", times=1)
        file.pwrite([b"abc"], 0)
        with pytest.raises(OSError, match="injected"):
            file.sync()
        found.add(read_file(memory.crash_clone(Random(seed)), "f"))
    assert {b"", b"abc"} <= found


def test_a_failed_sync_on_the_real_disk_is_only_an_error(tmp_path: object) -> None:
    disk = FaultyDisk(RealDisk())
    disk.fail("sync", times=1)
    with pytest.raises(OSError, match="injected"):
        replace_file(disk, f"{tmp_path}/f", b"abc")
    replace_file(disk, f"{tmp_path}/f", b"abc")
    assert read_file(disk, f"{tmp_path}/f") == b"abc"


def test_a_disk_with_a_capacity_says_how_much_room_is_left() -> None:
    disk = FaultyDisk(MemoryDisk())
    file = new_file(disk)
    file.pwrite([b"abc"], 0)
    total, usable = disk.usage("/")
    assert usable == total - 3
    disk.capacity = disk.used + 10
    assert disk.usage("/") == (total, 10)
    file.pwrite([b"defg"], 3)
    assert disk.usage("/").usable_bytes == 6
    disk.fail("usage", times=1)
    with pytest.raises(OSError, match="injected"):
        disk.usage("/")
