"""Histories from seeds: crashes, power cuts, a bad network, snapshots and changing voters, with all checkers on.

.venv/bin/python -m tests.raft.test_simulation three-voters 17     replays one and prints its trace
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.raft.sim import CHANGING, ROUGH, Cluster, Faults, run_seed

from penstock.base.errors import ErrorCode
from penstock.raft.messages import AddVoter, RemoveVoter


class World(NamedTuple):
    voters: int
    observers: int
    faults: Faults
    seeds: int
    """How many in the default run."""


FRANTIC = Faults(
    crash_every_ms=120,
    cut_every_ms=150,
    resign_every_ms=300,
    power_cut_every_ms=500,
    crash_in_ready=0.01,
    sync_ms_max=40,
)

WORLDS = {
    "three-voters": World(3, 0, ROUGH, 20),
    "five-voters": World(5, 0, ROUGH, 10),
    "frantic": World(3, 0, FRANTIC, 10),
    "one-voter": World(1, 1, FRANTIC, 10),
    "observers": World(3, 2, replace(ROUGH, snapshot_every_ms=80), 10),
    "changing-voters": World(3, 2, CHANGING, 10),
    "restless-voters": World(
        4, 1, replace(FRANTIC, change_voters_every_ms=20, power_cut_every_ms=1500, crash_every_ms=300), 10
    ),
    "forgetful": World(3, 0, replace(ROUGH, forget_every_ms=300), 10),
    "forgetful-five": World(5, 1, replace(FRANTIC, forget_every_ms=100, power_cut_every_ms=1500), 10),
    "forgetful-changing": World(3, 2, replace(CHANGING, forget_every_ms=200), 10),
    "reading": World(3, 0, replace(ROUGH, read_every_ms=5, cut_every_ms=300), 10),
    "reading-changing": World(3, 2, replace(CHANGING, read_every_ms=5, cut_every_ms=300), 10),
    "one-by-one": World(5, 0, replace(FRANTIC, fetch_records_max=1, power_cut_every_ms=0), 10),
}

SEEDS_FILE = Path(__file__).with_name("seeds.txt")
"""Every seed that ever failed, with its world and what it found."""

_CHUNK = 10


def run(world: str, seed: int) -> Cluster:
    voters, observers, faults, _ = WORLDS[world]
    try:
        return run_seed(seed, voters, observers, faults)
    except Exception as error:
        error.add_note(f"replay: .venv/bin/python -m tests.raft.test_simulation {world} {seed}")
        raise


def failed_before() -> list[tuple[str, int]]:
    lines = [line.split("#")[0].split() for line in SEEDS_FILE.read_text().splitlines()]
    return [(words[0], int(words[1])) for words in lines if words]


@pytest.mark.parametrize(
    ("world", "first"),
    [(name, first) for name, world in WORLDS.items() for first in range(0, world.seeds, _CHUNK)],
)
def test_raft_keeps_its_promises(world: str, first: int) -> None:
    """Raft figure 3, all five, at every event; and progress once the faults stop."""
    for seed in range(first, first + _CHUNK):
        run(world, seed)


@pytest.mark.parametrize(("world", "seed"), failed_before() or [("three-voters", 0)])
def test_seeds_that_failed_once_do_not_fail_again(world: str, seed: int) -> None:
    run(world, seed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("world", "first"), [(name, first) for name in WORLDS for first in range(0, 2000, 100)]
)
def test_raft_keeps_its_promises_for_many_seeds(world: str, first: int) -> None:
    for seed in range(first, first + 100):
        run(world, seed)


def test_the_histories_are_eventful() -> None:
    """A quiet simulation proves nothing."""
    worlds = ("frantic", "changing-voters")
    traces = [line for seed in range(8) for world in worlds for line in run(world, seed).trace]
    for event, least in {
        "is leader of": 25,
        "is resigned of": 20,
        "is candidate of": 30,
        "truncates from": 5,
        "loads snapshot": 5,
        "crash ": 100,
        "cut ": 50,
        "asked to add": 20,
        "asked to remove": 15,
    }.items():
        assert sum(event in line for line in traces) >= least, event


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    """DESIGN 8: no order taken from a set or an address, whatever PYTHONHASHSEED is."""
    outputs = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.raft.test_simulation", "changing-voters", "3"]
        done = subprocess.run(
            command,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].decode().splitlines() == run("changing-voters", 3).trace


def test_other_seeds_give_other_traces() -> None:
    assert run("three-voters", 1).trace != run("three-voters", 2).trace


def test_one_partitioned_node_does_not_disturb_the_others() -> None:
    """KIP-996: it canvasses in vain, keeps its epoch, and on its return the leader stays."""
    cluster = Cluster(5, 3, faults=replace(ROUGH, **dict.fromkeys(_TROUBLE, 0)))
    cluster.run(1500)
    leader = cluster.leader()
    assert leader is not None
    assert leader.node is not None
    epoch = leader.node.epoch
    lonely = next(host for host in cluster.hosts.values() if host is not leader)
    others = [each for each in cluster.hosts if each != lonely.id]
    cluster.cut = {(lonely.id, each) for each in others} | {(each, lonely.id) for each in others}
    cluster.run(3000)
    assert lonely.node is not None
    assert lonely.node.epoch == epoch
    cluster.cut.clear()
    cluster.run(1000)
    assert cluster.leader() is leader
    assert leader.node.epoch == epoch
    assert lonely.node.leader_id == leader.id


def test_a_leader_that_is_cut_off_resigns_and_another_takes_over() -> None:
    """Check quorum (KAFKA-15489): clients of the old leader do not wait for ever."""
    cluster = Cluster(5, 3, faults=replace(ROUGH, **dict.fromkeys(_TROUBLE, 0)))
    cluster.run(1500)
    old = cluster.leader()
    assert old is not None
    others = [each for each in cluster.hosts if each != old.id]
    cluster.cut = {(old.id, each) for each in others} | {(each, old.id) for each in others}
    cluster.run(1500)
    new = cluster.leader()
    assert new is not None
    assert new is not old
    assert old.node is not None
    assert not old.node.is_leader
    assert cluster.propose(new) is not None


@pytest.mark.parametrize("seed", range(10))
def test_a_voter_that_lost_its_disk_joins_again_as_another(seed: int) -> None:
    """KIP-853, failed disk: it finds the leader through its bootstrap servers, catches up from the snapshot, and votes
    again once its former self is removed and it is added."""
    cluster = Cluster(seed, 3, faults=replace(ROUGH, **dict.fromkeys(_TROUBLE, 0)))
    cluster.run(1500)
    old = cluster.leader()
    assert old is not None
    for _ in range(5):
        cluster.propose(old, 3)
    cluster.run(200)
    for host in cluster.hosts.values():
        cluster.snapshot(host)
    lost = old if seed % 2 else next(host for host in cluster.hosts.values() if host is not old)
    former = lost.local.key
    cluster.replace_disk(lost)
    cluster.run(2000)
    leader = cluster.leader()
    assert leader is not None
    assert leader.node is not None
    assert leader is not lost
    removed = cluster.change(leader, RemoveVoter(0, former, 1000))
    cluster.run(500)
    added = cluster.change(leader, AddVoter(0, lost.local, 1000))
    cluster.run(500)
    assert [cluster.replies[each].error for each in (removed, added)] == [ErrorCode.NONE] * 2
    cluster.settle()
    assert lost.node is not None
    assert lost.node.is_voter
    assert lost.log.start_offset > 0


@pytest.mark.parametrize("seed", range(10))
def test_leadership_is_handed_over_quickly(seed: int) -> None:
    """KIP-595: with EndQuorumEpoch the successor stands at once, not after a fetch timeout."""
    cluster = Cluster(seed, 5, faults=replace(ROUGH, **dict.fromkeys(_TROUBLE, 0)))
    cluster.run(1500)
    old = cluster.leader()
    assert old is not None
    cluster.with_node(old, lambda node: node.close(cluster.local_ms(old)))
    cluster.run(100)
    new = cluster.leader()
    assert new is not None, cluster.trace[-20:]
    assert new is not old


_TROUBLE = [
    "loss",
    "duplicate",
    "slow",
    "crash_in_ready",
    "crash_every_ms",
    "cut_every_ms",
    "snapshot_every_ms",
    "resign_every_ms",
    "power_cut_every_ms",
]

if __name__ == "__main__":
    print("\n".join(run(sys.argv[1], int(sys.argv[2])).trace))
