"""The real disk: each call is one system call.

A `RealFile` owns its descriptor and closes it with the last reference. A cache of open files therefore drops its
reference and does not call `close`: a reader on another thread may still use the file, and after `close` its
descriptor number could belong to another file.
"""

import errno
import fcntl
import os
import sys
import threading
from collections.abc import Sequence

from penstock.vfs.interface import Entry, Lock, Stat, Usage, Vfs

IOV_MAX = 1024
"""Maximum number of buffers of one pwritev: UIO_MAXIOV of Linux."""

FILE_MODE = 0o666
"""Before the umask; what open(2) is given by most programs, Kafka's JVM included."""

if sys.platform == "darwin":

    def _sync_descriptor(descriptor: int) -> None:
        # On macOS fsync does not flush the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
else:
    _sync_descriptor = os.fdatasync


class RealFile:
    """A file on the real disk."""

    __slots__ = ("__weakref__", "_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        return self._pread_rest(data, length, position)

    def _pread_rest(self, data: bytes, length: int, position: int) -> bytes:
        """Continue after a short read, until an empty one shows the end of the file."""
        pieces = [data]
        done = len(data)
        while done < length:
            data = os.pread(self._descriptor, length - done, position + done)
            if not data:
                break
            pieces.append(data)
            done += len(data)
        return b"".join(pieces)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        done = os.preadv(self._descriptor, (buffer,), position)
        if done == len(buffer) or not done:
            return done
        with memoryview(buffer) as whole, whole.cast("B") as view:
            while done < len(view):
                with view[done:] as rest:
                    count = os.preadv(self._descriptor, (rest,), position + done)
                if not count:
                    break
                done += count
        return done

    def pwrite(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        count = len(buffers)
        if count == 1:
            data = buffers[0]
            done = os.pwrite(self._descriptor, data, position)
            if done == len(data):
                return
        elif count <= IOV_MAX:
            done = os.pwritev(self._descriptor, buffers, position)
            if done == sum(map(len, buffers)):
                return
        else:
            done = 0
        self._pwrite_rest(buffers, position, done)

    def _pwrite_rest(
        self, buffers: Sequence[bytes | bytearray | memoryview], position: int, done: int
    ) -> None:
        """Continue after the first `done` bytes: a write was short, or there are too many buffers for one call."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        position += done
        first = 0
        while True:
            while first < len(views) and done >= len(views[first]):
                done -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][done:]
            done = os.pwritev(self._descriptor, views[first : first + IOV_MAX], position)
            if not done:
                raise OSError(errno.EIO, "a write wrote no bytes and reported no error", self.path)
            position += done

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    @property
    def descriptor(self) -> int:
        """Valid while this file is referenced; -1 once it is closed."""
        return self._descriptor

    def sync(self) -> None:
        if self._descriptor < 0:  # os.fdatasync would raise ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        _sync_descriptor(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RealDisk(Vfs):
    """The disk of this machine. Has no state, so copies in any process are equivalent."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> RealFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, FILE_MODE))

    def list_dir(self, path: str) -> list[Entry]:
        entries: list[Entry] = []
        with os.scandir(path) as found:
            for item in found:
                if item.is_dir():
                    entries.append(Entry(item.name, True, 0))
                    continue
                try:
                    entries.append(Entry(item.name, False, item.stat().st_size))
                except FileNotFoundError:
                    # Removed meanwhile; a dangling link still counts as an entry.
                    if item.is_symlink():
                        entries.append(Entry(item.name, False, 0))
        entries.sort()
        return entries

    def stat(self, path: str) -> Stat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_dir = found.st_mode & 0o170000 == 0o040000
        return Stat(0 if is_dir else found.st_size, is_dir, found.st_mtime_ns // 1_000_000)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        modified_ns = modified_ms * 1_000_000
        os.utime(path, ns=(modified_ns, modified_ns))

    def usage(self, path: str) -> Usage:
        found = os.statvfs(path)
        # f_bavail, not f_bfree: some blocks are kept for root.
        return Usage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> Lock:
        """Take the same lock as a JVM's `FileLock`, so that Kafka and Penstock exclude each other.

        Such a lock belongs to the process, and the kernel drops it when the process closes any descriptor
        of the file: never open a lock file in another way while it is held.
        """
        with _lock_guard:
            if _identity(path) in _locked:
                raise BlockingIOError(errno.EAGAIN, "this process holds the lock already", path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise OSError(error.errno, error.strerror, path) from None
            found = os.fstat(descriptor)
            identity = (found.st_dev, found.st_ino)
            _locked.add(identity)
        return RealLock(descriptor, identity)


class RealLock:
    """A held lock. Dropping it without `release` keeps the lock until the process ends."""

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._identity = identity

    def release(self) -> None:
        with _lock_guard:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
                _locked.discard(self._identity)


_locked: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked: the kernel would let it lock them again."""

_lock_guard = threading.Lock()
"""Guards `_locked` between check and change: closing a second descriptor would release the lock."""

# A forked child has the set but not the locks.
os.register_at_fork(after_in_child=_locked.clear)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
