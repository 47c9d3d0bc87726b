"""A bounded cache of open files: 10,000 partitions must not need 10,000 descriptors.

A `FileRef` identifies one file while it has its name: when another file takes the name (a cleaned segment replaces an
old one), it gets a new ref, so that a late reader never caches the old file for the new one. Dropping a file from the
cache does not close it for its readers: it is closed with the last reference.

Unsynced data of a file that is closed early is not lost: a later sync through another descriptor covers it, and since
Linux 4.17 reports a write-back error that was not reported yet.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from penstock.vfs import File, Vfs

OPEN_FILES_MAX = 4096
"""Well below the customary descriptor limit of services (65,536), and enough that hot segments stay open."""


SMALL_FILE_BYTES = 1024
SMALL_FILES_MAX = 16384
"""Size and number of sealed indexes that stay in memory once read (about 20 MB at most)."""


class FileRef:
    """A file by identity; two refs to one path are two files."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class OpenFiles:
    """One cache for all partitions of a data directory, used from any thread: each dictionary operation is atomic, and
    a race at worst opens or reads a file twice."""

    def __init__(self, vfs: Vfs, open_max: int = OPEN_FILES_MAX, *, read_only: bool = False) -> None:
        self.vfs = vfs
        self.read_only = read_only
        self.sync_failed: Callable[[], None] = lambda: None
        """Called, on any thread, after a failed sync: the page cache may have bytes that the disk lacks."""
        self._open_max = open_max
        self._files: OrderedDict[FileRef, File] = OrderedDict()
        self._small: OrderedDict[FileRef, bytes] = OrderedDict()

    def open(self, ref: FileRef, *, create: bool = False) -> File:
        file = self._files.get(ref)
        if file is not None:
            try:  # noqa: SIM105  # suppress() costs more than all the rest, on every read and write
                self._files.move_to_end(ref)
            except KeyError:
                pass  # dropped by another thread; this file stays valid
            return file
        file = self.vfs.open(ref.path, write=not self.read_only, create=create)
        self._files[ref] = file
        while len(self._files) > self._open_max:
            try:
                self._files.popitem(last=False)
            except KeyError:
                break
        return file

    def held(self, ref: FileRef) -> File | None:
        """The file, if it is open."""
        return self._files.get(ref)

    def read_small(self, ref: FileRef) -> bytes | None:
        """The contents of a small file that does not change, cached; None if it is not small.

        The file is not kept open.
        """
        data = self._small.get(ref)
        if data is None:
            file = self._files.get(ref) or self.vfs.open(ref.path)
            data = file.pread(SMALL_FILE_BYTES + 1, 0)
            if len(data) > SMALL_FILE_BYTES:
                return None
            self._small[ref] = data
            if len(self._small) > SMALL_FILES_MAX:
                with suppress(KeyError):  # another thread made room
                    self._small.popitem(last=False)
        return data

    def forget_small(self, ref: FileRef) -> None:
        """Drop the cached contents of a file that changed."""
        self._small.pop(ref, None)

    def forget(self, ref: FileRef) -> None:
        self._files.pop(ref, None)
        self._small.pop(ref, None)

    def __len__(self) -> int:
        return len(self._files)

    def close(self) -> None:
        self._files.clear()
        self._small.clear()
