"""Removes, truncates or rolls back files of a stopped node before it starts again.

One node at a time, while the others have everything: the node must start, and get everything back from them.

    __cluster_metadata-0     removed, or put back as it was at an earlier stop
    a partition              removed, or put back, or its last segment truncated
    a small file             removed: recovery points, high watermarks, cleaner points, leader epochs

At the end of the run all nodes lose their metadata at once (`all_metadata_lost`).
"""

from collections.abc import Callable
from enum import Enum
from random import Random

from penstock.base.internal_topics import METADATA_TOPIC
from penstock.sim.checkers.disks import DATA
from penstock.sim.faults.metadata_loss import has_lost_metadata
from penstock.sim.world.machine import Machine, State
from penstock.sim.world.machines import SimCluster
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.boot_marker import BOOT
from penstock.storage.layout import layout_of
from penstock.vfs import MemoryDisk, make_dirs_durably, read_file, remove_tree, replace_file

METADATA = f"{METADATA_TOPIC}-0"
COPIES_MAX = 3
"""Older states kept of each disk."""

Files = dict[str, bytes]
"""Files of a directory, by name."""


class RollbackKind(Enum):
    METADATA_GONE = "metadata gone"
    METADATA_BACK = "metadata back"
    PARTITION_GONE = "partition gone"
    PARTITION_BACK = "partition back"
    SEGMENT_CUT = "segment cut"
    FILE_GONE = "file gone"


OF_METADATA = (RollbackKind.METADATA_GONE, RollbackKind.METADATA_BACK)
SMALL = (ck.RECOVERY_POINTS, ck.HIGH_WATERMARKS, ck.CLEANER_POINTS)
BESIDE = (names.LEADER_EPOCHS,)
"""Files of a partition that are rebuilt from its log at start. (Indexes are rebuilt on first use.)"""


class Rollbacks:
    def __init__(self, cluster: SimCluster, rng: Random, trace: Callable[[str], None]) -> None:
        self._cluster = cluster
        self.rng = rng
        self._trace = trace
        self._chosen: Machine | None = None
        self.copies: dict[Machine, list[dict[str, Files]]] = {each: [] for each in cluster.machines}
        """Directories of each machine as they were at earlier stops."""

    def end(self) -> None:
        self._chosen = None

    def strike(self) -> None:
        machine = self.rng.choice(self._cluster.machines)
        if self._chosen is None and machine.state is State.UP and self._cluster.may_be_harmed(machine):
            self._chosen = machine
            machine.stop()

    def before_start(self, machine: Machine) -> None:
        """Damage the files of the chosen machine before it starts again, and sometimes copy the directories."""
        if machine is self._chosen:
            self._chosen = None
            if self._cluster.may_be_harmed(machine):
                self._befall(machine)
        copies = self.copies[machine]
        if self.rng.random() < 0.5 or not copies:
            copies.append(read_directories(machine.disk))
            del copies[:-COPIES_MAX]

    def _befall(self, machine: Machine) -> None:
        kind = self.rng.choice(list(RollbackKind))
        others = (each for each in self._cluster.machines if each is not machine)
        if kind in OF_METADATA and (
            not self._cluster.may_lose_metadata(machine) or any(has_lost_metadata(each) for each in others)
        ):
            return
        done = self._do(kind, machine.disk, self.copies[machine])
        if done is None:
            return
        self._trace(f"{machine.host}: {done}")
        if kind in OF_METADATA:
            machine.lacks_metadata = True
        else:
            forget_boot(machine.disk)
            machine.lost_power = machine.is_distrusted = True

    def _do(self, kind: RollbackKind, disk: MemoryDisk, copies: list[dict[str, Files]]) -> str | None:
        """Apply a rollback; return a description, or None if there is nothing to apply it to."""
        name = METADATA
        if kind not in OF_METADATA:
            partitions = [each for each in directories(disk) if each != METADATA]
            if not partitions:
                return None
            name = self.rng.choice(partitions)
        if kind in (RollbackKind.METADATA_BACK, RollbackKind.PARTITION_BACK):
            return put_back(disk, name, self.rng.choice(copies)) if copies else None
        if kind in (RollbackKind.METADATA_GONE, RollbackKind.PARTITION_GONE):
            return take_away(disk, name)
        cut = _cut_last if kind is RollbackKind.SEGMENT_CUT else _remove_small
        return cut(disk, f"{layout_of(disk, DATA).logs}/{name}", self.rng)


# -- what is done to a disk ------------------------------------------------------------------------------


def directories(disk: MemoryDisk) -> list[str]:
    """Return the directories of partitions, including the metadata log."""
    logs = layout_of(disk, DATA).logs
    if disk.stat(logs) is None:
        return []
    return [each.name for each in disk.list_dir(logs) if each.is_dir and names.parse_partition_dir(each.name)]


def read_directories(disk: MemoryDisk) -> dict[str, Files]:
    logs = layout_of(disk, DATA).logs
    return {
        name: {
            each.name: read_file(disk, f"{logs}/{name}/{each.name}")
            for each in disk.list_dir(f"{logs}/{name}")
        }
        for name in directories(disk)
    }


def take_away(disk: MemoryDisk, name: str) -> str | None:
    logs = layout_of(disk, DATA).logs
    if disk.stat(f"{logs}/{name}") is None:
        return None
    remove_tree(disk, f"{logs}/{name}")
    disk.sync_dir(logs)
    return f"{name} is removed"


def put_back(disk: MemoryDisk, name: str, copy: dict[str, Files]) -> str | None:
    """Restore a directory from a copy; return None if the copy does not have it."""
    if name not in copy or take_away(disk, name) is None:
        return None
    path = f"{layout_of(disk, DATA).logs}/{name}"
    make_dirs_durably(disk, path)
    for file, data in copy[name].items():
        replace_file(disk, f"{path}/{file}", data)
    return f"{name} is rolled back"


def forget_boot(disk: MemoryDisk) -> None:
    """Remove the boot marker, as an operator does when restoring a backup (`docs/storage.md`)."""
    path = f"{layout_of(disk, DATA).meta}/{BOOT}"
    if disk.stat(path) is not None:
        disk.remove(path)


def _cut_last(disk: MemoryDisk, directory: str, rng: Random) -> str | None:
    segments = [each for each in disk.list_dir(directory) if each.name.endswith(names.LOG)]
    if not segments or not segments[-1].size:
        return None
    path = f"{directory}/{segments[-1].name}"
    file = disk.open(path, write=True)
    size = rng.randrange(segments[-1].size)
    file.truncate(size)
    file.sync()
    file.close()
    return f"{path} is cut at {size}"


def _remove_small(disk: MemoryDisk, directory: str, rng: Random) -> str | None:
    logs = directory.rpartition("/")[0]
    beside = [each.name for each in disk.list_dir(directory) if each.name.endswith(BESIDE)]
    path = rng.choice([*(f"{directory}/{each}" for each in beside), *(f"{logs}/{each}" for each in SMALL)])
    if disk.stat(path) is None:
        return None
    disk.remove(path)
    disk.sync_dir(path.rpartition("/")[0])
    return f"{path} is removed"
