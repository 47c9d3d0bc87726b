"""What every disk owes its callers, stated once and held against each of them."""

import errno

import pytest

from penstock.vfs import Entry, File, Vfs, read_file


def put(vfs: Vfs, path: str, data: bytes) -> None:
    file = vfs.open(path, write=True, create=True)
    file.pwrite([data], 0)
    file.close()


@pytest.fixture
def file(vfs: Vfs, root: str) -> File:
    return vfs.open(f"{root}/f", write=True, create=True)


class TestOpenFile:
    def test_a_new_file_is_empty_and_knows_its_path(self, file: File, root: str) -> None:
        assert file.path == f"{root}/f"
        assert file.size() == 0
        assert file.pread(10, 0) == b""

    def test_what_was_written_is_read_at_once_through_any_handle(
        self, vfs: Vfs, root: str, file: File
    ) -> None:
        reader = vfs.open(f"{root}/f")
        file.pwrite([b"abcdef"], 0)
        assert reader.pread(3, 2) == b"cde"
        reader.close()

    def test_buffers_of_every_kind_are_written_one_after_the_other(self, file: File) -> None:
        file.pwrite([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b"", memoryview(b"")], 1)
        assert file.pread(100, 0) == b"\0abcdef"

    def test_a_view_of_wider_items_is_written_whole(self, file: File) -> None:
        file.pwrite([memoryview(b"abcdefgh").cast("I")], 0)
        file.pwrite([memoryview(b"ijklmnop").cast("I"), b"q"], 8)
        assert file.pread(100, 0) == b"abcdefghijklmnopq"

    def test_more_buffers_than_one_system_call_takes_are_written(self, file: File) -> None:
        pieces = [bytes([n % 251]) * (n % 3) for n in range(2500)]
        file.pwrite(pieces, 7)
        assert file.pread(10_000, 7) == b"".join(pieces)

    @pytest.mark.parametrize("buffers", [[], [b""], [b"", b""]])
    def test_writing_nothing_beyond_the_end_changes_nothing(self, file: File, buffers: list[bytes]) -> None:
        file.pwrite(buffers, 100)
        assert file.size() == 0

    def test_a_gap_reads_as_zeros(self, file: File) -> None:
        file.pwrite([b"a"], 0)
        file.pwrite([b"b"], 4)
        assert file.pread(10, 0) == b"a\0\0\0b"

    def test_reading_stops_at_the_end(self, file: File) -> None:
        file.pwrite([b"abc"], 0)
        assert file.pread(10, 1) == b"bc"
        assert file.pread(10, 3) == b""
        assert file.pread(10, 99) == b""
        assert file.pread(0, 0) == b""

    def test_reading_into_a_buffer_says_how_much_there_was(self, file: File) -> None:
        file.pwrite([b"abc"], 0)
        buffer = bytearray(b"......")
        assert file.pread_into(buffer, 1) == 2
        assert buffer == b"bc...."
        assert file.pread_into(memoryview(buffer)[2:4], 0) == 2
        assert buffer == b"bcab.."
        assert file.pread_into(buffer, 3) == 0

    def test_truncating_cuts_and_extends_with_zeros(self, file: File) -> None:
        file.pwrite([b"abcdef"], 0)
        file.truncate(2)
        assert file.size() == 2
        file.truncate(4)
        assert file.pread(10, 0) == b"ab\0\0"

    def test_sync_keeps_what_is_visible(self, file: File) -> None:
        file.pwrite([b"abc"], 0)
        file.sync()
        assert file.pread(10, 0) == b"abc"

    def test_an_open_file_outlives_its_name(self, vfs: Vfs, root: str, file: File) -> None:
        file.pwrite([b"old"], 0)
        vfs.remove(f"{root}/f")
        put(vfs, f"{root}/f", b"new")
        file.pwrite([b"er"], 3)
        file.sync()
        assert file.pread(10, 0) == b"older"
        assert read_file(vfs, f"{root}/f") == b"new"

    def test_an_open_file_follows_its_rename(self, vfs: Vfs, root: str, file: File) -> None:
        vfs.rename(f"{root}/f", f"{root}/g")
        file.pwrite([b"abc"], 0)
        assert read_file(vfs, f"{root}/g") == b"abc"

    def test_an_open_file_that_was_replaced_keeps_its_content(self, vfs: Vfs, root: str, file: File) -> None:
        file.pwrite([b"old"], 0)
        put(vfs, f"{root}/g", b"new")
        vfs.rename(f"{root}/g", f"{root}/f")
        assert file.pread(10, 0) == b"old"
        assert read_file(vfs, f"{root}/f") == b"new"

    def test_a_closed_file_refuses_everything_but_another_close(self, file: File) -> None:
        file.close()
        file.close()
        for use in (
            lambda: file.pread(1, 0),
            lambda: file.pread_into(bytearray(1), 0),
            lambda: file.pwrite([b"x"], 0),
            lambda: file.pwrite([b"x", b"y"], 0),
            file.size,
            lambda: file.truncate(0),
            file.sync,
        ):
            with pytest.raises(OSError, match="descriptor") as caught:
                use()
            assert caught.value.errno == errno.EBADF

    @pytest.mark.usefixtures("file")
    def test_a_file_opened_for_reading_refuses_changes(self, vfs: Vfs, root: str) -> None:
        reader = vfs.open(f"{root}/f")
        with pytest.raises(OSError, match="descriptor"):
            reader.pwrite([b"x"], 0)
        with pytest.raises(OSError, match="nvalid"):
            reader.truncate(0)
        reader.sync()
        reader.close()

    def test_a_negative_position_is_invalid(self, file: File) -> None:
        with pytest.raises(OSError, match="nvalid"):
            file.pread(1, -1)
        with pytest.raises(OSError, match="nvalid"):
            file.pwrite([b"x"], -1)
        with pytest.raises(OSError, match="nvalid"):
            file.truncate(-1)


class TestNames:
    def test_opening_what_is_not_there_needs_create(self, vfs: Vfs, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            vfs.open(f"{root}/none")
        with pytest.raises(FileNotFoundError):
            vfs.open(f"{root}/none", write=True)
        with pytest.raises(FileNotFoundError):
            vfs.open(f"{root}/none/below", write=True, create=True)

    def test_creating_a_file_that_exists_keeps_its_content(self, vfs: Vfs, root: str) -> None:
        put(vfs, f"{root}/f", b"abc")
        vfs.open(f"{root}/f", write=True, create=True).close()
        assert read_file(vfs, f"{root}/f") == b"abc"

    def test_a_directory_is_not_a_file(self, vfs: Vfs, root: str) -> None:
        with pytest.raises(IsADirectoryError):
            vfs.open(root, write=True)
        with pytest.raises(IsADirectoryError):
            read_file(vfs, root)
        with pytest.raises(IsADirectoryError):
            vfs.remove(root)

    @pytest.mark.usefixtures("file")
    def test_a_file_is_not_a_directory(self, vfs: Vfs, root: str) -> None:
        for use in (vfs.list_dir, vfs.sync_dir, vfs.remove_dir, lambda path: vfs.open(f"{path}/x")):
            with pytest.raises(NotADirectoryError):
                use(f"{root}/f")
        with pytest.raises(NotADirectoryError):
            vfs.make_dirs(f"{root}/f/a/b")
        with pytest.raises(FileExistsError):
            vfs.make_dirs(f"{root}/f")

    def test_what_is_missing_is_missing_for_every_operation(self, vfs: Vfs, root: str) -> None:
        for use in (
            vfs.list_dir,
            vfs.remove,
            vfs.remove_dir,
            vfs.sync_dir,
            lambda path: vfs.set_modified_ms(path, 1),
            lambda path: vfs.rename(path, f"{root}/other"),
        ):
            with pytest.raises(FileNotFoundError):
                use(f"{root}/none")

    def test_listing_is_sorted_with_sizes_of_files(self, vfs: Vfs, root: str) -> None:
        for name, data in (("b", b"12"), ("a", b""), ("c", b"123")):
            put(vfs, f"{root}/{name}", data)
        vfs.make_dirs(f"{root}/bb/deep")
        assert vfs.list_dir(root) == [
            Entry("a", False, 0),
            Entry("b", False, 2),
            Entry("bb", True, 0),
            Entry("c", False, 3),
        ]

    def test_stat_tells_file_from_directory_from_nothing(self, vfs: Vfs, root: str) -> None:
        put(vfs, f"{root}/f", b"abc")
        vfs.set_modified_ms(f"{root}/f", 1_700_000_000_123)
        assert vfs.stat(f"{root}/f") == (3, False, 1_700_000_000_123)
        directory = vfs.stat(root)
        assert directory is not None
        assert directory[:2] == (0, True)
        assert vfs.stat(f"{root}/none") is None
        assert vfs.stat(f"{root}/none/none") is None
        assert vfs.stat(f"{root}/f/none") is None

    def test_directories_are_made_with_their_parents_and_again(self, vfs: Vfs, root: str) -> None:
        vfs.make_dirs(f"{root}/a/b/c")
        vfs.make_dirs(f"{root}/a/b/c/")
        assert vfs.list_dir(f"{root}/a/b") == [Entry("c", True, 0)]

    def test_only_an_empty_directory_can_be_removed(self, vfs: Vfs, root: str) -> None:
        vfs.make_dirs(f"{root}/a")
        put(vfs, f"{root}/a/f", b"")
        with pytest.raises(OSError, match="not empty"):
            vfs.remove_dir(f"{root}/a")
        vfs.remove(f"{root}/a/f")
        vfs.remove_dir(f"{root}/a")
        assert vfs.list_dir(root) == []

    def test_rename_moves_a_directory_with_what_is_in_it(self, vfs: Vfs, root: str) -> None:
        vfs.make_dirs(f"{root}/a/b")
        vfs.make_dirs(f"{root}/z")
        put(vfs, f"{root}/a/b/f", b"abc")
        vfs.rename(f"{root}/a", f"{root}/z/y")
        assert read_file(vfs, f"{root}/z/y/b/f") == b"abc"
        assert vfs.stat(f"{root}/a") is None

    def test_rename_refuses_what_linux_refuses(self, vfs: Vfs, root: str) -> None:
        vfs.make_dirs(f"{root}/d/e")
        vfs.make_dirs(f"{root}/empty")
        put(vfs, f"{root}/f", b"abc")
        with pytest.raises(IsADirectoryError):
            vfs.rename(f"{root}/f", f"{root}/d")
        with pytest.raises(NotADirectoryError):
            vfs.rename(f"{root}/d", f"{root}/f")
        with pytest.raises(OSError, match="not empty"):
            vfs.rename(f"{root}/empty", f"{root}/d")
        with pytest.raises(OSError, match="nvalid"):
            vfs.rename(f"{root}/d", f"{root}/d/e/f")
        put(vfs, f"{root}/d/e/g", b"")
        for path in ("d/e/g", "d/e"):
            with pytest.raises(OSError, match="not empty"):
                vfs.rename(f"{root}/{path}", f"{root}/d")
        vfs.rename(f"{root}/d", f"{root}/empty")
        vfs.rename(f"{root}/f", f"{root}/f")
        assert [entry.name for entry in vfs.list_dir(root)] == ["empty", "f"]
        assert read_file(vfs, f"{root}/f") == b"abc"

    @pytest.mark.usefixtures("file")
    def test_a_directory_can_be_synced(self, vfs: Vfs, root: str) -> None:
        vfs.sync_dir(root)
        assert [entry.name for entry in vfs.list_dir(root)] == ["f"]

    def test_the_volume_has_a_size_and_no_more_room_than_that(self, vfs: Vfs, root: str) -> None:
        total, usable = vfs.usage(root)
        assert 0 <= usable <= total
        assert total > 0
        with pytest.raises(FileNotFoundError):
            vfs.usage(f"{root}/nowhere")


class TestLock:
    def test_a_lock_excludes_until_it_is_released(self, vfs: Vfs, root: str) -> None:
        lock = vfs.lock(f"{root}/.lock")
        for _ in range(2):  # the refusal must not loosen the lock
            with pytest.raises(BlockingIOError):
                vfs.lock(f"{root}/.lock")
        other = vfs.lock(f"{root}/other")
        lock.release()
        again = vfs.lock(f"{root}/.lock")
        lock.release()
        with pytest.raises(BlockingIOError):
            vfs.lock(f"{root}/.lock")
        again.release()
        other.release()
        assert [entry.name for entry in vfs.list_dir(root)] == [".lock", "other"]
