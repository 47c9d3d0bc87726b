"""Shared memory with which the campaign controls faults of a broker's disk and clock.

A file of 64-bit numbers, one for each `Switch`, mapped by both sides. The campaign sets a switch, and the broker's
next disk operation sees it. Reading a switch takes no system call, so a disk without a fault is not slower.
"""

import errno
import mmap
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from penstock.vfs import FaultyDisk, RealDisk

FILE_BYTES = 4096

METADATA = ("/__cluster_metadata-", "/meta/")
"""Parts of the paths of the metadata log and of a node's own files about its logs."""


class Switch(IntEnum):
    """0 is off."""

    FULL = 0
    """Files do not grow: ENOSPC."""
    READ_ONLY = 1
    """Writes, creations, renames and removals fail: EROFS."""
    FAIL_WRITES = 2
    FAIL_SYNCS = 3
    FAIL_READS = 4
    SLOW = 5
    """Every sync takes `SLOW_S` longer. Reads and writes do not, since they mostly use the page cache."""
    SPARES_METADATA = 6
    """The other switches do not affect the metadata log and a node's own files, as if one of several disks failed."""
    CLOCK_AHEAD_MS = 7
    """Offset of the wall clock; negative if it is behind."""


SLOW_S = 0.7


class Switches:
    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(FILE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FILE_BYTES)
        self._values = memoryview(self._map).cast("q")

    def set(self, switch: Switch, value: int = 1) -> None:
        self._values[switch] = value

    def get(self, switch: Switch) -> int:
        return self._values[switch]

    def clear(self) -> None:
        """Switch off every fault of the disk. The clock's offset stays."""
        for switch in Switch:
            if switch is not Switch.CLOCK_AHEAD_MS:
                self._values[switch] = 0

    def close(self) -> None:
        self._values.release()
        self._map.close()


_CHANGES = frozenset({"write", "truncate", "make_dirs", "rename", "remove", "remove_dir", "set_modified_ms"})
_GROWS = frozenset({"write", "make_dirs"})


class SwitchedDisk(FaultyDisk):
    """The real disk with the faults that are switched on. Pickled to a child process, it uses the same switches."""

    def __init__(self, path: str) -> None:
        super().__init__(RealDisk(), sleep=time.sleep)
        self._switches = switches = Switches(Path(path))

        def when(switch: Switch, *operations: str) -> Callable[[str, str], bool]:
            def applies(operation: str, path: str) -> bool:
                return (
                    operation in operations
                    and switches.get(switch) != 0
                    and not (switches.get(Switch.SPARES_METADATA) and any(each in path for each in METADATA))
                )

            return applies

        self.fail("*", error=errno.ENOSPC, when=when(Switch.FULL, *_GROWS))
        self.fail("*", error=errno.EROFS, when=when(Switch.READ_ONLY, *_CHANGES))
        self.fail("*", error=errno.EIO, when=when(Switch.FAIL_WRITES, "write"))
        self.fail("*", error=errno.EIO, when=when(Switch.FAIL_SYNCS, "sync", "sync_dir"))
        self.fail("*", error=errno.EIO, when=when(Switch.FAIL_READS, "read"))
        self.delay("*", SLOW_S, when=when(Switch.SLOW, "sync", "sync_dir"))

    def __reduce__(self) -> tuple[Any, ...]:
        return SwitchedDisk, (str(self._switches.path),)
