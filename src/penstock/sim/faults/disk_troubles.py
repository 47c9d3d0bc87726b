"""Disks that fail for a while: full, read-only, failing for one log or for all, or slow.

    full         writes that need room fail (ENOSPC); deleting frees room
    read-only    every change fails (EROFS)
    failing      writes, syncs or reads of some files fail (EIO)
    slow         a sync takes seconds and blocks its thread, or the event loop if it runs there

One disk is in trouble at a time, so that the other replicas of each partition work. A trouble outlives the process: a
node that exits because it cannot write its metadata gets the same disk when it starts again.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from penstock.vfs import FaultyDisk
from penstock.vfs.faulty import Rule

TROUBLE_US_MAX: Final = 20_000_000

ROOM_BYTES_MAX: Final = 3000
"""Room left on a full disk: some batches fit."""

SYNC_S_MAX: Final = 5.0


class Trouble(Enum):
    FULL = "is full"
    READ_ONLY = "is read-only"
    WRITES_FAIL = "fails writes"
    SYNCS_FAIL = "fails syncs"
    READS_FAIL = "fails reads"
    SLOW = "is slow"


FAILING: Final = (Trouble.READ_ONLY, Trouble.WRITES_FAIL, Trouble.SYNCS_FAIL, Trouble.READS_FAIL)


class ActiveTrouble(NamedTuple):
    """The current trouble of one disk."""

    kind: Trouble
    path: str
    """Shell pattern of the affected files."""
    room_bytes: int = 0
    """Room left on a full disk."""
    sync_s: float = 0.0
    """Duration of a sync on a slow disk."""

    def __str__(self) -> str:
        return self.kind.value if self.path == "*" else f"{self.kind.value} of {self.path}"


@dataclass(frozen=True)
class DiskPlan:
    """Kinds and frequency of disk troubles."""

    troubles: tuple[Trouble, ...] = ()
    mean_us: int = 0
    """Mean time between the end of one trouble and the start of the next."""

    def __bool__(self) -> bool:
        return bool(self.troubles)

    def beside(self, other: "DiskPlan") -> "DiskPlan":
        """Return a plan with the troubles of both, at the higher frequency."""
        if not self or not other:
            return self or other
        return DiskPlan((*self.troubles, *other.troubles), min(self.mean_us, other.mean_us))


NO_TROUBLES: Final = DiskPlan()


def draw_trouble(plan: DiskPlan, logs: list[str], rng: Random) -> ActiveTrouble:
    """Draw a trouble; `logs` are the names of partition directories on the disk."""
    kind = rng.choice(plan.troubles)
    if kind is Trouble.FULL:
        return ActiveTrouble(kind, "*", room_bytes=rng.choice((0, rng.randrange(ROOM_BYTES_MAX))))
    if kind is Trouble.SLOW:
        return ActiveTrouble(kind, "*", sync_s=rng.uniform(0.2, SYNC_S_MAX))
    if kind is Trouble.READ_ONLY:
        return ActiveTrouble(kind, "*")
    name = rng.choice(logs) if logs and rng.random() < 0.5 else "*"
    return ActiveTrouble(kind, f"*/logs/{name}/*.log")


_CHANGES: Final = (
    "write",
    "truncate",
    "make_dirs",
    "rename",
    "remove",
    "remove_dir",
    "set_modified_ms",
)


def apply_trouble(trouble: ActiveTrouble, disk: FaultyDisk) -> Rule | None:
    """Make a disk fail until its rules are cleared; return the rule by which syncs fail, if they do."""
    kind, path = trouble.kind, trouble.path
    if kind is Trouble.FULL:
        disk.capacity = disk.used + trouble.room_bytes
    elif kind is Trouble.READ_ONLY:
        disk.fail("*", error=errno.EROFS, when=lambda operation, _: operation in _CHANGES)
    elif kind is Trouble.SLOW:
        disk.delay("sync", trouble.sync_s)
        disk.delay("sync_dir", trouble.sync_s)
    else:
        operation = {
            Trouble.WRITES_FAIL: "write",
            Trouble.SYNCS_FAIL: "sync",
            Trouble.READS_FAIL: "read",
        }[kind]
        rule = disk.fail("*", path=path, error=errno.EIO, when=lambda found, _: found == operation)
        return rule if kind is Trouble.SYNCS_FAIL else None
    return None


class DiskTroubles:
    """Makes disks fail, one at a time."""

    def __init__(
        self,
        plan: DiskPlan,
        rng: Random,
        later: Callable[[int, Callable[[], None]], object],
        begin: Callable[[Random], Callable[[], None] | None],
    ) -> None:
        """`begin` makes a disk fail and returns the function that ends it, or None if no disk may fail now."""
        self._plan = plan
        self._rng = rng
        self._later = later
        self._begin = begin
        self._end: Callable[[], None] | None = None
        self._is_over = False

    def start(self) -> None:
        if self._plan and not self._is_over:
            self._later(round(self._rng.expovariate(1 / self._plan.mean_us)) + 1, self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        self._end = self._begin(self._rng)
        length_us = self._rng.randrange(200_000, TROUBLE_US_MAX)
        self._later(length_us if self._end is not None else 0, self._mend)

    def _mend(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None
        self.start()

    def end(self) -> None:
        """End the current trouble, and start no other."""
        self._is_over = True
        self._mend()
