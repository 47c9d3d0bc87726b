"""A disk that fails on demand; wraps any other disk.

    disk = FaultyDisk(MemoryDisk(), rng=rng)
    disk.fail("sync", path="*.log", error=errno.EIO, times=1)
    disk.delay("sync", 0.2)
    disk.tear_writes(path="*.index", times=1)
    disk.capacity = disk.used + 4096

A rule matches operations by name and paths by shell pattern (`*` crosses slashes); a rename matches by
either of its paths. A rule applies a number of times, or until `cancel`, and may skip the
first matches (`after`). If several rules match, delays add up, and the oldest failure wins.

A failed sync drops the unsynced pages of a memory disk, as Linux does (see `File.sync`): with an `rng` some of the
writes may be durable, without it none. Directory entries do not change when the sync of a directory fails.
"""

import errno
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from os import strerror
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.vfs.interface import Entry, File, Lock, Stat, Usage, Vfs
from penstock.vfs.memory import MemoryFile

if TYPE_CHECKING:
    from random import Random

Operation: TypeAlias = Literal[
    "open",
    "read",
    "write",
    "size",
    "truncate",
    "sync",
    "list_dir",
    "stat",
    "make_dirs",
    "rename",
    "remove",
    "remove_dir",
    "sync_dir",
    "set_modified_ms",
    "usage",
    "lock",
]
Predicate: TypeAlias = Callable[[str, str], bool]
"""Whether a rule applies to (operation, path)."""


class Rule:
    """One injected fault; returned by the methods of `FaultyDisk`."""

    def __init__(self, applies: Predicate, times: int | None, after: int) -> None:
        self.hits = 0
        """Number of operations it was applied to."""
        self._applies = applies
        self._left = times
        self._to_pass = after

    def cancel(self) -> None:
        self._left = 0

    def strikes(self, operation: Operation, *paths: str) -> bool:
        """Whether the rule applies to this operation; counts it."""
        if self._left == 0 or not any(self._applies(operation, path) for path in paths):
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        return True


class FaultyDisk(Vfs):
    """Forwards everything to the inner disk, unless a rule or the capacity prevents it."""

    def __init__(
        self,
        inner: Vfs,
        *,
        rng: "Random | None" = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.inner = inner
        self.capacity: int | None = None
        """Limit of `used`; None for a disk that is never full. A write beyond it writes what fits and fails with
        ENOSPC."""
        self.used = 0
        """Bytes by which files grew through this wrapper, less those freed by truncating and removing. Negative if
        more was freed than written: earlier contents of the disk do not count."""
        self._rng = rng
        self._sleep = sleep
        self._failures: list[tuple[Rule, int]] = []
        self._delays: list[tuple[Rule, float]] = []
        self._tears: list[Rule] = []

    def fail(
        self,
        operation: Operation | Literal["*"],
        *,
        path: str = "*",
        error: int = errno.EIO,
        times: int | None = None,
        after: int = 0,
        when: Predicate | None = None,
    ) -> Rule:
        """Fail with this errno and do nothing."""
        rule = Rule(_predicate(operation, path, when), times, after)
        self._failures.append((rule, error))
        return rule

    def delay(
        self,
        operation: Operation | Literal["*"],
        seconds: float,
        *,
        path: str = "*",
        times: int | None = None,
        after: int = 0,
        when: Predicate | None = None,
    ) -> Rule:
        """Sleep before the operation."""
        if self._sleep is None:
            raise ValueError("a FaultyDisk without sleep= cannot delay")
        rule = Rule(_predicate(operation, path, when), times, after)
        self._delays.append((rule, seconds))
        return rule

    def tear_writes(self, *, path: str = "*", times: int | None = None, after: int = 0) -> Rule:
        """Write a part from the start, of random length (half without an rng), then fail with EIO."""
        rule = Rule(_predicate("write", path, None), times, after)
        self._tears.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and the capacity."""
        for rules in (self._failures, self._delays, self._tears):
            rules.clear()
        self.capacity = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> "FaultyFile":
        self._strike("open", path)
        return FaultyFile(self, self.inner.open(path, write=write, create=create))

    def list_dir(self, path: str) -> list[Entry]:
        self._strike("list_dir", path)
        return self.inner.list_dir(path)

    def stat(self, path: str) -> Stat | None:
        self._strike("stat", path)
        return self.inner.stat(path)

    def make_dirs(self, path: str) -> None:
        self._strike("make_dirs", path)
        self.inner.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._strike("rename", source, target)
        replaced = self.inner.stat(target)
        self.inner.rename(source, target)
        # A rename onto itself replaces nothing, and leaves the source where it was.
        if replaced is not None and self.inner.stat(source) is None:
            self.used -= replaced.size

    def remove(self, path: str) -> None:
        self._strike("remove", path)
        found = self.inner.stat(path)
        self.inner.remove(path)
        if found is not None:
            self.used -= found.size

    def remove_dir(self, path: str) -> None:
        self._strike("remove_dir", path)
        self.inner.remove_dir(path)

    def sync_dir(self, path: str) -> None:
        self._strike("sync_dir", path)
        self.inner.sync_dir(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._strike("set_modified_ms", path)
        self.inner.set_modified_ms(path, modified_ms)

    def usage(self, path: str) -> Usage:
        self._strike("usage", path)
        found, room = self.inner.usage(path), self._room()
        return found if room is None else found._replace(usable_bytes=min(found.usable_bytes, room))

    def lock(self, path: str) -> Lock:
        self._strike("lock", path)
        return self.inner.lock(path)

    def _strike(self, operation: Operation, *paths: str) -> None:
        """Delay or fail the operation if a rule matches."""
        for rule, seconds in self._delays:
            if self._sleep is not None and rule.strikes(operation, *paths):
                self._sleep(seconds)
        for rule, code in self._failures:
            if rule.strikes(operation, *paths):
                raise OSError(code, f"injected: {strerror(code)}", paths[0])

    def _room(self) -> int | None:
        return None if self.capacity is None else max(0, self.capacity - self.used)

    def _torn_length(self, path: str, length: int) -> int | None:
        """Return how many bytes are written before the write fails; None for all."""
        if not any(rule.strikes("write", path) for rule in self._tears):
            return None
        return self._rng.randrange(length) if self._rng and length else length // 2


class FaultyFile:
    """An open file of a faulty disk."""

    __slots__ = ("__weakref__", "_disk", "_inner", "path")

    def __init__(self, disk: FaultyDisk, inner: File) -> None:
        self.path = inner.path
        self._disk = disk
        self._inner = inner

    def pread(self, length: int, position: int) -> bytes:
        self._disk._strike("read", self.path)
        return self._inner.pread(length, position)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        self._disk._strike("read", self.path)
        return self._inner.pread_into(buffer, position)

    def pwrite(self, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> None:
        disk = self._disk
        disk._strike("write", self.path)
        data = b"".join(buffers)
        torn_length = disk._torn_length(self.path, len(data))
        if torn_length is not None:
            self._write(data[:torn_length], position)
            raise OSError(errno.EIO, f"injected: torn after {torn_length} of {len(data)} bytes", self.path)
        self._write(data, position)

    def _write(self, data: bytes, position: int) -> None:
        """Write what fits on the disk."""
        disk = self._disk
        size = self._inner.size()
        room = disk._room()
        # Overwritten bytes take no space.
        fits = len(data) if room is None else min(len(data), max(0, size + room - position))
        try:
            self._inner.pwrite([data[:fits]], position)
        finally:
            disk.used += self._inner.size() - size
        if fits < len(data):
            raise OSError(errno.ENOSPC, f"injected: full after {fits} of {len(data)} bytes", self.path)

    def size(self) -> int:
        self._disk._strike("size", self.path)
        return self._inner.size()

    def truncate(self, length: int) -> None:
        self._disk._strike("truncate", self.path)
        size = self._inner.size()
        self._inner.truncate(length)
        self._disk.used += length - size

    def sync(self) -> None:
        try:
            self._disk._strike("sync", self.path)
        except OSError:
            self.drop_unsynced(self._disk._rng)
            raise
        self._inner.sync()

    def drop_unsynced(self, rng: "Random | None" = None) -> None:
        """Drop the unsynced pages, if the inner disk supports that."""
        if isinstance(self._inner, MemoryFile | FaultyFile):
            self._inner.drop_unsynced(rng)

    def close(self) -> None:
        self._inner.close()


def _predicate(operation: str, pattern: str, when: Predicate | None) -> Predicate:
    def applies(found: str, path: str) -> bool:
        return (
            operation in ("*", found) and fnmatchcase(path, pattern) and (when is None or when(found, path))
        )

    return applies
