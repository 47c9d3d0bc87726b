"""The disk, as the storage engine sees it.

Everything below `server` reaches files through a `Vfs`, so that the same code runs on the real disk,
on a memory disk that can lose power, and on a disk that fails on demand.

Every implementation guarantees three things, and callers rely on nothing else:

- A write is visible to every reader at once, but survives a power cut only after `File.sync`.
- A name that was created, renamed or removed survives a power cut only after `sync_dir` of its directory.
  A rename replaces its target atomically: after a crash there is the old file or the new one.
- After a failed `sync` it is unknown what reached the disk, and a later successful one does not help: the kernel may
  have dropped the pages (the "fsyncgate" of 2018). Unsynced bytes must be written again.

Errors are `OSError` with the errno of Linux. Paths are plain strings with `/`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_dir: bool
    size: int


class Stat(NamedTuple):
    size: int
    is_dir: bool
    modified_ms: int


class Usage(NamedTuple):
    """Size of the volume of a path, and the space left for us."""

    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file. Reads and writes name their position, so that threads may share it."""

    path: str

    def pread(self, length: int, position: int) -> bytes:
        """Up to length bytes from position; fewer only at the end of the file."""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill buffer from position; return how many bytes there were."""

    def pwrite(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        """Write all buffers in order from position; after an error any part may be written."""

    def size(self) -> int: ...

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Make contents and size durable (fdatasync)."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock file; released by `release` or with the process."""

    def release(self) -> None: ...


class Vfs(Protocol):
    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open an existing file, or with `create` create an empty one if there is none."""

    def list_dir(self, path: str) -> list[Entry]:
        """The entries of a directory, sorted by name."""

    def stat(self, path: str) -> Stat | None:
        """Status of path; None if it does not exist."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its missing parents; one that exists is fine."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file of that name atomically."""

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def usage(self, path: str) -> Usage:
        """Usage of the volume of path, which must exist."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file, creating it; `BlockingIOError` when another process holds it."""
