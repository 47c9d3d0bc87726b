"""A node ends at every moment of a transaction's life; whatever it was, all of it is decided one way afterwards.

One run is made, and the disk is copied whenever something has happened. Each copy is what kill -9 leaves, or, with
what was not synced lost at random, a power cut. A node is started on each, and the producer comes back. One partition
takes its marker later than the others: so there are copies with some of the markers and not all.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from tests.handlers.producers import Txn, read_committed
from tests.nodes import StillNode
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode
from penstock.vfs import MemoryDisk

NONE = ErrorCode.NONE
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
PARTITIONS = 2
VALUES = [b"one", b"two"]


class Moment(NamedTuple):
    disk: MemoryDisk
    now_ms: int
    told: str
    """What the producer knew."""
    state: str
    """Of the transaction, as its coordinator had it."""
    open_partitions: int
    """Partitions of the transaction that had no marker."""


class WatchedWorld(StillWorld):
    """Says when something has happened."""

    def __init__(self, start_ms: int = START_MS) -> None:
        super().__init__(start_ms=start_ms)
        self.after: Callable[[], None] = lambda: None

    def step(self) -> bool:
        stepped = super().step()
        self.after()
        return stepped


def moments(speaks: int, commit: bool, copy: Callable[[MemoryDisk], MemoryDisk]) -> list[Moment]:
    """A transaction over two partitions and a group, from its first request to its completion."""
    world = WatchedWorld()
    node = StillNode(settings=FEW, world=world)
    node.create_topic("orders", PARTITIONS)
    producer = Txn(node, "mine", speaks=speaks)
    assert producer.init() is NONE
    found: list[Moment] = []
    told = "open"

    context = node.node.context

    def keep() -> None:
        assert isinstance(node.disk, MemoryDisk)
        current = context.transactions.shards.of("mine").coordinator.current("mine")
        assert current is not None
        left = sum(each.last_stable < each.high_watermark for each in context.replicas.partitions.values())
        found.append(Moment(copy(node.disk), world.now_ms(), told, current.state.title, left))

    world.after = keep
    for number, value in enumerate(VALUES):
        assert producer.send("orders", number, value) is NONE
    assert producer.commit_offsets("readers", "orders", 0, 7) is NONE
    late = context.replicas.find("orders", 1)
    late.isr_size = 0  # nobody writes to it
    told = "ended"
    assert producer.end(commit=commit) is NONE
    told = "decided"
    world.advance(30)
    late.isr_size = 1
    world.advance(100)
    world.after = lambda: None
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
    return found


def outcome_after(moment: Moment) -> str:
    """What a new node makes of a disk: all of the transaction or nothing of it, and nothing left open."""
    node = StillNode(moment.disk, settings=FEW, world=StillWorld(1, start_ms=moment.now_ms + 1000))
    producer = Txn(node, "mine")
    assert producer.init() is NONE  # which aborts what is open, and waits for markers
    node.world.advance(200)
    replicas = node.node.context.replicas
    for name, partition in replicas.partitions.items():
        assert partition.last_stable == partition.high_watermark, f"{name} hangs"
    values = [read_committed(node, "orders", number) for number in range(PARTITIONS)]
    shards = node.node.context.groups.shards
    committed = node.node.context.groups.committed("readers", "orders", 0) if shards.count else None
    offset = None if committed is None else committed.offset
    assert (values, offset) in (([[], []], None), ([[each] for each in VALUES], 7)), "one way, everywhere"
    # It goes on from there, and what was decided stays.
    assert producer.send("orders", 0, b"next") is NONE
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    assert read_committed(node, "orders", 0) == [*values[0], b"next"]
    return "committed" if offset == 7 else "aborted"


def check(found: list[Moment], commit: bool) -> list[str]:
    stages = {(moment.state, moment.open_partitions) for moment in found}
    prepared = "PrepareCommit" if commit else "PrepareAbort"
    assert stages >= {("Ongoing", 3), (prepared, 3), (prepared, 1), (prepared, 0)}
    return [check_one(moment, commit) for moment in found]


def check_one(moment: Moment, commit: bool) -> str:
    outcome = outcome_after(moment)
    if moment.told == "open" or not commit:
        assert outcome == "aborted", moment
    if moment.told == "decided" and commit:
        assert outcome == "committed", moment
    return outcome


@pytest.mark.parametrize("speaks", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_decided_one_way_after_a_kill(speaks: int, commit: bool) -> None:
    found = moments(speaks, commit, MemoryDisk.kill_clone)
    outcomes = check(thinned(found), commit)
    if commit:
        assert {"committed", "aborted"} == set(outcomes)


@pytest.mark.parametrize("speaks", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_transaction_is_decided_one_way_after_a_power_cut(speaks: int, commit: bool, seed: int) -> None:
    rng = Random(seed)
    found = moments(speaks, commit, lambda disk: disk.crash_clone(rng))
    outcomes = check(thinned(found, seed), commit)
    if commit:
        assert {"committed", "aborted"} == set(outcomes)


def thinned(found: list[Moment], offset: int = 0) -> list[Moment]:
    """Every moment around the end, where most happens, and some of the others."""
    return [
        moment for number, moment in enumerate(found) if moment.told != "open" or (number + offset) % 8 == 0
    ]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 2))])
def test_a_transaction_is_decided_one_way_after_a_kill_and_a_power_cut(commit: bool, seed: int) -> None:
    """What a killed node leaves may not be on disk yet: the next one must not act on it before it is."""
    rng = Random(seed)
    for moment in moments(2, commit, MemoryDisk.kill_clone):
        if moment.told == "ended":
            for after in second_ends(moment, rng):
                check_one(after, commit)


def second_ends(moment: Moment, rng: Random) -> list[Moment]:
    """The node starts on what a killed one left, and the power goes at any moment of that."""
    world = WatchedWorld(moment.now_ms + 1000)
    found: list[Moment] = []
    world.after = lambda: found.append(
        moment._replace(disk=moment.disk.crash_clone(rng), now_ms=world.now_ms())
    )
    StillNode(moment.disk, settings=FEW, world=world)
    world.advance(20)
    world.stop()
    return found
