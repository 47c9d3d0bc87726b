"""Bits that change under nodes that run: who reads them next finds out, and nobody is given them."""

from dataclasses import replace
from random import Random

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY
from tests.storage.world import NOW_MS, P, append, make_batch, open_small

from penstock.replica.partition import Partition
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.faults.disk_damage import flip_unread
from penstock.sim.run import Simulation
from penstock.storage.segment import Segment
from penstock.vfs import MemoryDisk

BAD = replace(
    BUSY,
    crash_us_mean=2_000_000,
    rereaders=(ConsumerPlan("rereader", "orders", max_wait_ms=500, pause_us_max=300_000, bytes_max=1 << 20),),
    cluster=replace(
        BUSY.cluster,
        power_cuts=PowerCuts.NONE,
        cut_us_mean=0,
        down_us=(10_000, 500_000),
        bad_sectors_us_mean=500_000,
    ),
)
"""Nodes come and go, so that there is something on their disks that they have not read; and it is read soon."""


def test_nodes_bear_bits_that_flip_while_they_run() -> None:
    told = "\n".join(line for seed in range(3, 6) for line in Simulation(replace(BAD, seed=seed)).run().trace)
    assert "while it is in use" in told
    assert "damaged records are not served" in told
    assert "is damaged on this broker; handing over leadership to an in-sync replica" in told
    assert "was damaged: it is truncated to" in told


def test_damage_that_nobody_looks_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Segment.check, lambda _, __, data, *___: len(data))
    assert_caught(BAD, by="CorruptBatch")


@pytest.mark.long
def test_a_damaged_leader_that_stays_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = replace(BAD, settle_us_max=15_000_000)
    Simulation(replace(impatient, seed=1)).run()
    plant(monkeypatch, Partition.hand_over, lambda _: None)
    assert_caught(impatient, first=1, by="Progress")


def test_only_what_the_node_has_neither_written_nor_read_flips() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(3))
    assert flip_unread(disk, directory.logs.values(), Random(1)) is None
    directory.close()
    directory = open_small(disk)
    log = directory.logs[P]
    found = flip_unread(disk, directory.logs.values(), Random(1))
    assert found is not None
    assert "in use" in found
    append(log, make_batch(3))
    end = log.segments.active.checked_from
    before = disk.open(log.segments.active.ref.path).pread(1 << 20, end)
    for seed in range(20):
        flip_unread(disk, directory.logs.values(), Random(seed))
    assert disk.open(log.segments.active.ref.path).pread(1 << 20, end) == before
