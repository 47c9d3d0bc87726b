"""A disk in memory that can lose power.

It behaves as Linux does (an open file outlives its name), and tracks what is durable: `crash_clone` returns a possible
state after a power cut, `kill_clone` the state after kill -9.
`inodes` has the model. To crash at every interesting point, take a clone in `on_change` or `on_sync`:

    disk.on_sync = lambda path: crashes.append(disk.crash_clone(rng))

A file may be written while another thread syncs it, but not synced twice at once.
"""

import errno
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from os import strerror
from typing import TYPE_CHECKING

from penstock.vfs.inodes import DirNode, FileNode, Node, move, tree_after_power_cut
from penstock.vfs.interface import Entry, Lock, Stat, Usage, Vfs

if TYPE_CHECKING:
    from random import Random


TOTAL_BYTES = 1 << 40
"""Reported size of a memory disk, not enforced: use `FaultyDisk` for a full disk."""


class MemoryFile:
    """An open file of a memory disk."""

    __slots__ = ("__weakref__", "_disk", "_is_open", "_node", "_writable", "path")

    def __init__(self, disk: "MemoryDisk", path: str, node: FileNode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._writable = writable
        self._is_open = True

    def pread(self, length: int, position: int) -> bytes:
        self._check(position)
        # Slicing copies in one step that no other thread can interrupt; a view would forbid it to write.
        return bytes(self._node.content[position : position + length])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        self._check(position)
        view = memoryview(buffer).cast("B")
        data = self._node.content[position : position + len(view)]
        view[: len(data)] = data
        return len(data)

    def pwrite(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        self._check(position)
        if not self._writable:
            raise _error(errno.EBADF, self.path)
        data = b"".join(buffers)
        if data:
            self._change((position, data))

    def size(self) -> int:
        self._check()
        return len(self._node.content)

    def truncate(self, length: int) -> None:
        self._check(length)
        if not self._writable:
            raise _error(errno.EINVAL, self.path)
        self._change((length, None))

    def sync(self) -> None:
        self._check()
        self._disk._before_sync(self.path)
        self._node.sync()

    def drop_unsynced(self, rng: "Random | None" = None) -> None:
        """As `MemoryDisk.drop_unsynced`, for a file that may have lost its name."""
        self._node.drop_unsynced(rng)

    def close(self) -> None:
        self._is_open = False

    def _check(self, position: int = 0) -> None:
        if not self._is_open:
            raise _error(errno.EBADF, self.path)
        if position < 0:
            raise _error(errno.EINVAL, self.path)

    def _change(self, change: tuple[int, bytes | None]) -> None:
        self._disk._before_change(self.path)
        self._node.change(change)
        self._node.modified_ms = self._disk.now_ms


class MemoryDisk(Vfs):
    """A whole disk. Paths start at its root with or without a leading slash."""

    def __init__(self) -> None:
        self.now_ms = 0
        """The modification time of changes; set by the owner of the disk."""
        self.on_sync: Callable[[str], None] | None = None
        """Called with the path just before each `File.sync` and `sync_dir` takes effect; it may raise."""
        self.on_change: Callable[[str], None] | None = None
        """The same before each create, write, truncate, rename (with the old path) and removal."""
        self.sync_count = 0
        self.change_count = 0
        self._root = DirNode(0)
        self._locked: set[FileNode] = set()

    def crash_clone(self, rng: "Random") -> "MemoryDisk":
        """Return a possible state after a power cut: everything synced, and some of the rest, torn.

        Everything is durable on the clone. The disk itself does not change.
        """
        return self._clone(tree_after_power_cut(self._root, rng))

    def kill_clone(self) -> "MemoryDisk":
        """Return the state after kill -9: everything. The clone can still lose unsynced changes."""
        return self._clone(deepcopy(self._root))

    def _clone(self, root: DirNode) -> "MemoryDisk":
        clone = MemoryDisk()
        clone.now_ms = self.now_ms
        clone._root = root
        return clone

    def drop_unsynced(self, path: str, rng: "Random | None" = None) -> None:
        """Treat a file as Linux does after a failed fsync: its pages are clean, though never persisted.

        Reads still show them; a later sync persists only what is written again. With an rng some of the
        changes reached the disk before the failure, without it none.
        """
        node = self._node(path)
        if isinstance(node, FileNode):
            node.drop_unsynced(rng)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
        return MemoryFile(self, path, self._file(path, create), write)

    def list_dir(self, path: str) -> list[Entry]:
        names = self._directory(path).names
        return sorted(Entry(name, isinstance(node, DirNode), _size(node)) for name, node in names.items())

    def stat(self, path: str) -> Stat | None:
        try:
            node = self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(_size(node), isinstance(node, DirNode), node.modified_ms)

    def make_dirs(self, path: str) -> None:
        node: Node = self._root
        parts = _parts(path)
        for depth, part in enumerate(parts, 1):
            if not isinstance(node, DirNode):
                raise _error(errno.ENOTDIR, path)
            child = node.names.get(part)
            if child is None:
                self._before_change("/".join(parts[:depth]))
                child = DirNode(self.now_ms)
                node.change({part: child}, self.now_ms)
            node = child
        if not isinstance(node, DirNode):
            raise _error(errno.EEXIST, path)

    def rename(self, source: str, target: str) -> None:
        source_dir, source_name = self._place(source)
        target_dir, target_name = self._place(target)
        node = source_dir.names.get(source_name)
        if node is None:
            raise _error(errno.ENOENT, source)
        old = target_dir.names.get(target_name)
        if old is node:
            return
        source_parts, target_parts = _parts(source), _parts(target)
        if target_parts[: len(source_parts)] == source_parts:
            raise _error(errno.EINVAL, source)
        if source_parts[: len(target_parts)] == target_parts:
            raise _error(errno.ENOTEMPTY, target)
        if old is not None:
            _check_replaceable(node, old, target)
        self._before_change(source)
        move(source_dir, source_name, target_dir, target_name, self.now_ms)

    def remove(self, path: str) -> None:
        directory, name = self._place(path)
        if isinstance(self._node(path), DirNode):
            raise _error(errno.EISDIR, path)
        self._before_change(path)
        directory.change({name: None}, self.now_ms)

    def remove_dir(self, path: str) -> None:
        directory, name = self._place(path)
        if self._directory(path).names:
            raise _error(errno.ENOTEMPTY, path)
        self._before_change(path)
        directory.change({name: None}, self.now_ms)

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._before_sync(path)
        directory.sync()

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def usage(self, path: str) -> Usage:
        self._node(path)
        return Usage(TOTAL_BYTES, max(0, TOTAL_BYTES - _bytes_below(self._root)))

    def lock(self, path: str) -> Lock:
        node = self._file(path, create=True)
        if node in self._locked:
            raise BlockingIOError(errno.EAGAIN, "the lock is held already", path)
        self._locked.add(node)
        return MemoryLock(self._locked, node)

    def _before_change(self, path: str) -> None:
        if self.on_change is not None:
            self.on_change(path)
        self.change_count += 1

    def _before_sync(self, path: str) -> None:
        if self.on_sync is not None:
            self.on_sync(path)
        self.sync_count += 1

    def _node(self, path: str) -> Node:
        return self._walk(_parts(path), path)

    def _directory(self, path: str) -> DirNode:
        node = self._node(path)
        if not isinstance(node, DirNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str, create: bool) -> FileNode:
        if not _parts(path):
            raise _error(errno.EISDIR, path)
        directory, name = self._place(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._before_change(path)
            node = FileNode(self.now_ms)
            directory.change({name: node}, self.now_ms)
        if isinstance(node, DirNode):
            raise _error(errno.EISDIR, path)
        return node

    def _place(self, path: str) -> tuple[DirNode, str]:
        """Return the directory of the last name of path, and that name."""
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        node = self._walk(parts[:-1], path)
        if not isinstance(node, DirNode):
            raise _error(errno.ENOTDIR, path)
        return node, parts[-1]

    def _walk(self, parts: tuple[str, ...], path: str) -> Node:
        node: Node = self._root
        for part in parts:
            if not isinstance(node, DirNode):
                raise _error(errno.ENOTDIR, path)
            child = node.names.get(part)
            if child is None:
                raise _error(errno.ENOENT, path)
            node = child
        return node


class MemoryLock:
    """A lock held on a memory disk."""

    __slots__ = ("_locked", "_node")

    def __init__(self, locked: set[FileNode], node: FileNode) -> None:
        self._locked = locked
        self._node: FileNode | None = node

    def release(self) -> None:
        if self._node is not None:
            self._locked.discard(self._node)
            self._node = None


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _size(node: Node) -> int:
    return len(node.content) if isinstance(node, FileNode) else 0


def _bytes_below(node: Node) -> int:
    return _size(node) + (sum(map(_bytes_below, node.names.values())) if isinstance(node, DirNode) else 0)


def _check_replaceable(node: Node, old: Node, target: str) -> None:
    """Linux: a file replaces a file, a directory an empty directory, and neither the other."""
    if isinstance(old, DirNode):
        if not isinstance(node, DirNode):
            raise _error(errno.EISDIR, target)
        if old.names:
            raise _error(errno.ENOTEMPTY, target)
    elif isinstance(node, DirNode):
        raise _error(errno.ENOTDIR, target)


def _error(code: int, path: str) -> OSError:
    return OSError(code, strerror(code), path)
