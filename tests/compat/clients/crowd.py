"""Members of a group as processes, and what they went through: who owned which partition from when to when.

with Crowd(bootstrap, "group", "topic") as crowd:
    one, other = crowd.join("confluent"), crowd.join("aiokafka")
    crowd.wait_balanced()       # all partitions are owned, and evenly
    one.crash()
    crowd.wait_balanced()
    assert crowd.double_owners() == []

A member owns a partition from when it is told so to when it has let go: until its own word, or until the test ended
or stopped it. A member that was out without knowing may believe for a while that it owns what is another's by then;
its library calls that `lost`. That counts only if a commit of it is taken: what the group decided is what the broker
lets happen.
"""

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from tests.compat.clients.lives import HEARTBEAT_MS, SESSION_MS

WAIT_S_MAX = 90.0
"""Far more than any rebalance takes; a group that never settles fails its test instead of hanging it."""

PROGRAM = (sys.executable, "-m", "tests.compat.clients.member")


class Owned(NamedTuple):
    """A member owned a partition from one moment to another, in nanoseconds."""

    partition: int
    member: str
    start: int
    end: float
    """Infinite while it does."""
    is_lost: bool = False
    """The end is when it heard that it had been out for some time."""


class Committed(NamedTuple):
    partition: int
    member: str
    since: int
    """When the commit was sent, or a little before."""
    offset: int


@dataclass
class Member:
    name: str
    process: subprocess.Popen[str]
    changed: threading.Condition
    """Of the whole crowd: notified with every word of any member."""
    intervals: list[Owned] = field(default_factory=list)
    """What it owned, and no longer does."""
    owned: dict[int, int] = field(default_factory=dict)
    """What it owns now, and since when."""
    read: set[tuple[int, int]] = field(default_factory=set)
    committed: list[Committed] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    changes: int = 0
    """How often it was assigned something or lost something."""
    is_idle: bool = False
    is_in: bool = True
    """Whether it takes part: not before its end, and not while it is stopped or idle."""

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    # -- what it says ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self._take(json.loads(line))
                self.changed.notify_all()
        with self.changed:
            self._let_go(self.owned, time.monotonic_ns())
            self.is_in = False
            self.changed.notify_all()

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "assigned" if self.is_idle:
                pass  # some libraries join again behind the back of a program that does nothing
            case "assigned":
                self.changes += 1
                for partition in said["partitions"]:
                    # A member that goes on in a new round is assigned again what it never let go.
                    self.owned.setdefault(partition, said["since"])
            case "revoked" | "lost":
                self.changes += 1
                self._let_go(said["partitions"], said["at"], is_lost=said["event"] == "lost")
            case "read":
                self.read.update(map(tuple, said["records"]))
            case "committed":
                self.committed += [
                    Committed(int(partition), self.name, said["since"], offset)
                    for partition, offset in said["offsets"].items()
                ]
            case "refused":
                self.refused.append(said["reason"])
            case "idle":
                self.is_idle = True
                self._let_go(self.owned, said["at"])

    def _let_go(self, partitions: Iterable[int], at: int, *, is_lost: bool = False) -> None:
        for partition in list(partitions):
            start = self.owned.pop(partition, None)
            if start is not None:
                self.intervals.append(Owned(partition, self.name, start, at, is_lost))

    # -- what is done to it ----------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the group as a program does that ends well."""
        with self.changed:
            self.is_in = False
        self._tell("leave")
        assert self.process.wait(WAIT_S_MAX) == 0, f"{self.name} could not leave"
        self._end()

    def crash(self) -> None:
        """kill -9: it tells nobody."""
        with self.changed:
            self.is_in = False
        self.process.kill()
        self.process.wait()
        self._end()

    def stop(self) -> None:
        """SIGSTOP: no heartbeat, no poll, nothing, until `go_on`."""
        with self.changed:
            self.is_in = False
            self.process.send_signal(signal.SIGSTOP)
            self._let_go(self.owned, time.monotonic_ns())

    def idle(self) -> None:
        """It sends heartbeats and does not poll, until `go_on`."""
        with self.changed:
            self.is_in = False
        self._tell("idle")
        self.wait(lambda: self.is_idle, "be idle")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._tell("go")
        with self.changed:
            self.is_in, self.is_idle = True, False

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, WAIT_S_MAX), f"{self.name} did not {what}"

    def _tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def _end(self) -> None:
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # one that is stopped, too
            self.process.wait()
        self._end()


class Crowd:
    """The members of one group, now and before."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.group, self.topic, self.partitions = bootstrap, group, topic, partitions
        self.members: list[Member] = []
        self.changed = threading.Condition()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.close()

    def join(self, library: str, assignor: str = "range", instance: str | None = None, **more: int) -> Member:
        wish = {
            "library": library,
            "assignor": assignor,
            "instance": instance,
            "bootstrap": self.bootstrap,
            "group": self.group,
            "topic": self.topic,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "poll_ms_max": SESSION_MS,
            **more,
        }
        process = subprocess.Popen(
            [*PROGRAM, json.dumps(wish)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        member = Member(f"{len(self.members)}-{library}", process, self.changed)
        self.members.append(member)
        return member

    # -- waiting ---------------------------------------------------------------------------------------

    def owners(self) -> dict[str, list[int]]:
        return {each.name: sorted(each.owned) for each in self.members if each.is_in}

    def is_balanced(self) -> bool:
        """All who take part own everything together, each its share."""
        shares = [sorted(each.owned) for each in self.members if each.is_in]
        everything = sorted(partition for share in shares for partition in share)
        sizes = [len(share) for share in shares]
        return everything == list(range(self.partitions)) and max(sizes) - min(sizes) <= 1

    def wait_balanced(self) -> None:
        self.wait(self.is_balanced, "be balanced")

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        with self.changed:
            if not self.changed.wait_for(holds, WAIT_S_MAX):
                ends = {each.name: each.process.poll() for each in self.members}
                raise AssertionError(
                    f"the group never came to {what}: {self.owners()}, processes {ends}, "
                    f"refused {[each.refused[-3:] for each in self.members]}"
                )

    def wait_read(self, wanted: set[tuple[int, int]]) -> None:
        self.wait(lambda: wanted <= self.read, f"read all of {len(wanted)} records")

    def wait_committed(self, wanted: dict[int, int]) -> None:
        def reached() -> dict[int, int]:
            offsets: dict[int, int] = {}
            for commit in (commit for each in self.members for commit in each.committed):
                offsets[commit.partition] = max(commit.offset, offsets.get(commit.partition, 0))
            return offsets

        self.wait(lambda: reached() == wanted, "commit all that was read")

    # -- what happened ---------------------------------------------------------------------------------

    @property
    def read(self) -> set[tuple[int, int]]:
        return set().union(*(each.read for each in self.members))

    def intervals(self) -> list[Owned]:
        return [
            owned
            for each in self.members
            for owned in (
                *each.intervals,
                *(Owned(number, each.name, since, math.inf) for number, since in each.owned.items()),
            )
        ]

    def double_owners(self) -> list[tuple[Owned, Owned]]:
        """Pairs of owners of one partition at one time, of which the earlier one still committed.

        A member that is late to hear of its group's next generation, on a busy machine, believes for a moment longer
        that it owns a partition. Its commits are refused, so this does no harm.
        """
        commits = [commit for each in self.members for commit in each.committed]
        return [
            (earlier, later)
            for earlier, later in overlaps(self.intervals())
            if any(
                commit.member == earlier.member
                and commit.partition == earlier.partition
                and later.start < commit.since <= earlier.end
                for commit in commits
            )
        ]

    def strangers(self) -> list[Committed]:
        """Commits that were taken from members that did not own the partition."""
        commits = [commit for each in self.members for commit in each.committed]
        return foreign(commits, self.intervals())


def overlaps(intervals: Iterable[Owned]) -> list[tuple[Owned, Owned]]:
    """Pairs of different owners of one partition at one time."""
    found: list[tuple[Owned, Owned]] = []
    latest: dict[int, Owned] = {}
    for each in sorted((owned for owned in intervals if not owned.is_lost), key=lambda owned: owned.start):
        before = latest.get(each.partition)
        if before is not None and before.end > each.start and before.member != each.member:
            found.append((before, each))
        if before is None or each.end > before.end:
            latest[each.partition] = each
    return found


def foreign(commits: Iterable[Committed], intervals: Iterable[Owned]) -> list[Committed]:
    """Commits from outside of every interval of their member and partition."""
    owned: dict[tuple[int, str], list[Owned]] = {}
    for each in intervals:
        owned.setdefault((each.partition, each.member), []).append(each)
    return [
        commit
        for commit in commits
        if not any(
            each.start <= commit.since <= each.end
            for each in owned.get((commit.partition, commit.member), ())
        )
    ]
