"""Damage to disks, mostly while their machine is down: flipped bits and lost metadata.

The kind of file (`Target`) is drawn first, so that the few small files are hit as often as the many large ones.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from fnmatch import fnmatchcase
from random import Random

from penstock.base.internal_topics import METADATA_TOPIC
from penstock.sim.checkers.disks import DATA
from penstock.storage import Log
from penstock.storage.layout import layout_of
from penstock.vfs import MemoryDisk
from penstock.vfs.files import remove_tree
from penstock.vfs.memory import MemoryFile

FLIPS_MAX = 3
"""Bits that change together: sectors go bad, not single bits."""
SPAN_BYTES = 64
"""Range in which they change."""


class Target(Enum):
    """Kinds of files that may be hit, as shell patterns below the data directory."""

    RECORDS = "*/logs/*/*.log"
    INDEXES = "*/logs/*/*index"
    PRODUCERS = "*/logs/*/*.snapshot"
    METADATA = f"*/logs/{METADATA_TOPIC}-0/*.log"
    SNAPSHOTS = f"*/logs/{METADATA_TOPIC}-0/*.checkpoint"


PARTITIONS = (Target.RECORDS, Target.RECORDS, Target.INDEXES, Target.PRODUCERS)
"""Files of a broker; records are hit as often as all others together."""
QUORUM = (Target.METADATA, Target.SNAPSHOTS)
"""Files of a voter."""


def flip_bits(disk: MemoryDisk, targets: tuple[Target, ...], rng: Random) -> str | None:
    """Flip some bits of a file durably; return a description, or None if there is no such file."""
    target = rng.choice(targets)
    paths = [path for path in _files(disk, DATA) if _fits(path, target)]
    if not paths:
        return None
    path = rng.choice(paths)
    file = disk.open(path, write=True)
    start = _flip(file, 0, file.size(), rng)
    file.sync()
    file.close()
    return f"bits of {path} flip at {start}"


def flip_unread(disk: MemoryDisk, logs: Iterable[Log], rng: Random) -> str | None:
    """Flip some bits that the node with these open logs has not read yet; return a description, or None if there are
    none. What the node has written or read is in the page cache.

    As with all unsynced changes, it is random whether the flip survives a power cut.
    """
    unread = [
        (segment.ref.path, segment.checked_to, segment.checked_from)
        for log in logs
        for segment in log.segments
        if segment.checked_to < segment.checked_from
    ]
    if not unread:
        return None
    path, begin, end = rng.choice(unread)
    file = disk.open(path, write=True)
    start = _flip(file, begin, end, rng)
    file.close()
    return f"bits of {path} flip at {start} while it is in use"


def remove_metadata(disk: MemoryDisk) -> None:
    """Remove the metadata log, as an operator does when it is damaged."""
    logs = layout_of(disk, DATA).logs
    remove_tree(disk, f"{logs}/{METADATA_TOPIC}-0")
    disk.sync_dir(logs)


def cut_metadata(disk: MemoryDisk, rng: Random) -> str | None:
    """Cut off the end of the metadata log, or flip bits near it; return a description, or None if there is no log."""
    paths = [path for path in _files(disk, DATA) if _fits(path, Target.METADATA)]
    if not paths:
        return None
    path = max(paths)
    file = disk.open(path, write=True)
    if rng.random() < 0.5:
        start = rng.randrange(file.size())
        file.truncate(start)
        done = f"{path} is cut at {start}"
    else:
        start = _flip(file, max(0, file.size() - SPAN_BYTES), file.size(), rng)
        done = f"bits of {path} flip at {start}, near its end"
    file.sync()
    file.close()
    return done


def _flip(file: MemoryFile, begin: int, end: int, rng: Random) -> int:
    """Flip some bits close to each other between two positions; return the start of the damaged range."""
    start = rng.randrange(begin, end)
    end = min(start + SPAN_BYTES, end)
    for position in (rng.randrange(start, end) for _ in range(rng.randint(1, FLIPS_MAX))):
        (byte,) = file.pread(1, position)
        file.pwrite([bytes([byte ^ (1 << rng.randrange(8))])], position)
    return start


def _fits(path: str, target: Target) -> bool:
    is_metadata = f"/{METADATA_TOPIC}-0/" in path
    return fnmatchcase(path, target.value) and is_metadata == (target in QUORUM)


def _files(disk: MemoryDisk, directory: str) -> Iterator[str]:
    """Yield all files that are not empty."""
    for entry in disk.list_dir(directory) if disk.stat(directory) else ():
        path = f"{directory}/{entry.name}"
        if entry.is_dir:
            yield from _files(disk, path)
        elif entry.size:
            yield path
