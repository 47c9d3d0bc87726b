"""Files and directories of the memory disk: their visible state, their durable state, and the changes in between.

A file has a visible and a durable content, and the writes and truncates between them. A directory does the same with
names:

    visible   = durable + every unsynced change, in order
    synced    : durable = visible
    power cut : durable + some of the unsynced changes

For a file, survival is decided per sector. A drive writes a sector completely or not at all, but sectors in any order,
and a sector written twice may have been flushed in between:

    durable   [aaaa][aaaa]          each sector: any one of its versions
    write 1   [bbbb][bbbb][bb]      size: that after some number of the operations, or within a write
    write 2         [cccc][cccc]    e.g. [aaaa][cccc][bb00]

Truncation counts as a version too: zeros from the new end on. Bytes that never reached the disk read as zeros.

Of a directory, a number of its first changes survives. A rename within a directory is one change. A rename across two
is one entry of the journal, as on ext4 and XFS: it survives in both or in neither, and syncing either directory
commits it, together with earlier changes of the other one. The name of the target directory itself may be lost, and
with it what was moved into it.
"""

from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from random import Random

SECTOR_BYTES = 512
"""The smallest unit that a drive writes; many drives have larger ones, which tear less."""

FileChange: TypeAlias = tuple[int, bytes | None]
"""A write as (position, data), or a truncation as (length, None)."""


class Survival(Enum):
    """Which unsynced changes survive a power cut."""

    LOST = auto()
    KEPT = auto()
    CUT = auto()
    """The first ones, up to some byte: the most common case for a log."""
    TORN = auto()
    """Any sector in any version."""


class FileNode:
    """A file, independent of its name."""

    __slots__ = ("content", "durable", "modified_ms", "unsynced")

    def __init__(self, modified_ms: int, content: bytearray | None = None) -> None:
        self.content = bytearray() if content is None else content
        """What readers see."""
        self.durable = bytearray(self.content)
        """Content after a power cut if all of `unsynced` is lost. After a failed sync it lacks changes that are
        visible and no longer in `unsynced`."""
        self.unsynced: list[FileChange] = []
        self.modified_ms = modified_ms

    def __deepcopy__(self, memo: object) -> "FileNode":
        copy = FileNode(self.modified_ms, bytearray(self.content))
        copy.durable = bytearray(self.durable)
        copy.unsynced = list(self.unsynced)
        return copy

    def change(self, change: FileChange) -> None:
        _apply(self.content, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        # Another thread may write meanwhile: its writes are left for the next sync.
        count = len(self.unsynced)
        for change in self.unsynced[:count]:
            _apply(self.durable, change)
        del self.unsynced[:count]

    def drop_unsynced(self, rng: "Random | None" = None) -> None:
        """Drop the unsynced changes although they are not durable, as Linux does after a failed sync.

        With an rng some of them reached the disk before the sync failed, without it none.
        """
        if rng is not None:
            self.durable = self.after_power_cut(rng.choice(list(Survival)), rng)
        self.unsynced.clear()

    def after_power_cut(self, survival: Survival, rng: "Random") -> bytearray:
        changes: list[FileChange] = []
        if survival is Survival.TORN:
            return self._torn(rng)
        if survival is Survival.KEPT:
            changes = self.unsynced
        elif survival is Survival.CUT:
            changes = _cut(self.unsynced, rng)
        image = bytearray(self.durable)
        for change in changes:
            _apply(image, change)
        return image

    def _torn(self, rng: "Random") -> bytearray:
        sizes = [len(self.durable)]
        spans: list[tuple[int, bytes]] = []
        for position, data in self.unsynced:
            size = sizes[-1]
            if data is None:
                spans.append((position, bytes(max(0, size - position))))
                sizes.append(position)
            else:
                spans.append((position, data))
                sizes.append(max(size, position + len(data)))

        versions = Counter(sector for start, data in spans for sector in _sectors(start, data))
        kept = {sector: rng.randint(0, versions[sector]) for sector in sorted(versions)}
        image = bytearray(self.durable)
        image.extend(bytes(max(sizes) - len(image)))
        for start, data in spans:
            for sector in _sectors(start, data):
                if kept[sector]:
                    kept[sector] -= 1
                    low = max(start, sector * SECTOR_BYTES)
                    high = min(start + len(data), (sector + 1) * SECTOR_BYTES)
                    image[low:high] = data[low - start : high - start]
        del image[_some_size(sizes, self.unsynced, rng) :]
        return image


class NameChange:
    """One operation's changes to the names of one directory."""

    __slots__ = ("names", "twin")

    def __init__(self, names: "dict[str, Node | None]") -> None:
        self.names = names
        """The new node of each name; None for a removed name."""
        self.twin: tuple[DirNode, NameChange] | None = None
        """The other half of a rename across directories."""

    def apply(self, names: "dict[str, Node]") -> None:
        for name, node in self.names.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class DirNode:
    """A directory, independent of its name."""

    __slots__ = ("durable", "modified_ms", "names", "unsynced")

    def __init__(self, modified_ms: int) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.unsynced: list[NameChange] = []
        """Invariant: of two halves of one rename both are unsynced or neither."""
        self.modified_ms = modified_ms

    def change(self, names: "dict[str, Node | None]", now_ms: int) -> NameChange:
        change = NameChange(names)
        change.apply(self.names)
        self.unsynced.append(change)
        self.modified_ms = now_ms
        return change

    def sync(self) -> None:
        self._commit(len(self.unsynced))

    def _commit(self, count: int) -> None:
        changes = self.unsynced[:count]
        del self.unsynced[:count]
        for change in changes:
            change.apply(self.durable)
            if change.twin is not None:
                other, half = change.twin
                if half in other.unsynced:
                    other._commit(other.unsynced.index(half) + 1)


Node: TypeAlias = FileNode | DirNode


def move(source: DirNode, name: str, target: DirNode, target_name: str, now_ms: int) -> None:
    """Rename a file or directory from source to target; replaces a file of the new name."""
    node = source.names[name]
    if source is target:
        source.change({name: None, target_name: node}, now_ms)
        return
    taken = source.change({name: None}, now_ms)
    given = target.change({target_name: node}, now_ms)
    taken.twin = (target, given)
    given.twin = (source, taken)


def tree_after_power_cut(root: DirNode, rng: "Random") -> DirNode:
    """Return a possible state below root after a power cut.

    With a probability of 1/6 nothing unsynced survives, with 1/6 everything; otherwise it is drawn for each file and
    directory.
    """
    common = {0: Survival.LOST, 1: Survival.KEPT}.get(rng.randrange(6))
    survivors = _surviving_changes(root, common, rng)
    copies: dict[Node, Node] = {}

    def copy(node: Node) -> Node:
        if node in copies:
            return copies[node]
        if isinstance(node, FileNode):
            survival = common or (rng.choice(list(Survival)) if node.unsynced else Survival.LOST)
            file = copies[node] = FileNode(node.modified_ms, node.after_power_cut(survival, rng))
            return file
        directory = copies[node] = DirNode(node.modified_ms)
        names = dict(node.durable)
        for change in node.unsynced[: survivors[node]]:
            change.apply(names)
        directory.names = {name: copy(child) for name, child in names.items()}
        directory.durable = dict(directory.names)
        return directory

    top = copy(root)
    assert isinstance(top, DirNode)
    return top


def _surviving_changes(root: DirNode, survival: Survival | None, rng: "Random") -> dict[DirNode, int]:
    """Draw how many of its first unsynced changes each directory keeps."""
    directories = _directories(root)
    if survival is Survival.LOST:
        return dict.fromkeys(directories, 0)
    if survival is Survival.KEPT:
        return {directory: len(directory.unsynced) for directory in directories}
    survivors = {directory: rng.randint(0, len(directory.unsynced)) for directory in directories}
    settled = False
    while not settled:
        settled = True
        for directory, count in survivors.items():
            for place, change in enumerate(directory.unsynced[:count]):
                if change.twin is None:
                    continue
                other, half = change.twin
                if other.unsynced.index(half) >= survivors[other]:
                    survivors[directory] = place
                    settled = False
                    break
    return survivors


def _directories(root: DirNode) -> list[DirNode]:
    """Return every directory that is, was or may again be below root, in a deterministic order."""
    found: dict[DirNode, None] = {root: None}
    queue = [root]
    for directory in queue:
        near: list[Node | None] = [*directory.durable.values(), *directory.names.values()]
        for change in directory.unsynced:
            near.extend(change.names.values())
            if change.twin is not None:
                near.append(change.twin[0])
        for node in near:
            if isinstance(node, DirNode) and node not in found:
                found[node] = None
                queue.append(node)
    return queue


def _apply(image: bytearray, change: FileChange) -> None:
    position, data = change
    missing = position - len(image)
    if missing > 0:
        image.extend(bytes(missing))
    if data is None:
        del image[position:]
    else:
        image[position : position + len(data)] = data


def _sectors(start: int, data: bytes) -> range:
    if not data:
        return range(0)
    return range(start // SECTOR_BYTES, (start + len(data) - 1) // SECTOR_BYTES + 1)


def _cut(changes: list[FileChange], rng: "Random") -> list[FileChange]:
    """Apply the first of the changes, the last perhaps only in part."""
    count = rng.randint(0, len(changes))
    first = changes[:count]
    if count < len(changes):
        position, data = changes[count]
        if data is not None and (length := rng.randint(0, len(data))):
            first.append((position, data[:length]))
    return first


def _some_size(sizes: list[int], changes: list[FileChange], rng: "Random") -> int:
    """Draw a size after some number of the changes, or within a write that grew the file."""
    count = rng.randrange(len(sizes))
    if count < len(changes) and changes[count][1] is not None and rng.random() < 0.5:
        return rng.randint(sizes[count], sizes[count + 1])
    return sizes[count]
