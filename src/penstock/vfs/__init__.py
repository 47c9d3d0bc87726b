"""The disk behind an interface: the real disk, a memory disk that can lose power, a disk that fails on demand."""

from typing import TYPE_CHECKING, Any

from penstock.vfs.files import Draft, join, make_dirs_durably, parent, read_file, remove_tree, replace_file
from penstock.vfs.interface import Entry, File, Lock, Stat, Usage, Vfs
from penstock.vfs.real import RealDisk

if TYPE_CHECKING:
    from penstock.vfs.faulty import FaultyDisk
    from penstock.vfs.memory import MemoryDisk

__all__ = [
    "Draft",
    "Entry",
    "FaultyDisk",
    "File",
    "Lock",
    "MemoryDisk",
    "RealDisk",
    "Stat",
    "Usage",
    "Vfs",
    "join",
    "make_dirs_durably",
    "parent",
    "read_file",
    "remove_tree",
    "replace_file",
]


def __getattr__(name: str) -> Any:
    """Import the test disks on first use, so that a broker does not load them."""
    if name == "MemoryDisk":
        from penstock.vfs.memory import MemoryDisk  # noqa: PLC0415

        return MemoryDisk
    if name == "FaultyDisk":
        from penstock.vfs.faulty import FaultyDisk  # noqa: PLC0415

        return FaultyDisk
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
