"""Disks that flip bits or are gone, and nodes that take no notice: each fault is caught by a rule that it breaks."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY, _fence_and_keep

from penstock.metadata.controller import brokers
from penstock.records import RecordBatch, build_batch
from penstock.replica.partition import Partition
from penstock.replica.replicas import Replicas
from penstock.sim.checkers.disks import DATA, are_records_sound, read_records
from penstock.sim.checkers.records import AckedNotLost
from penstock.sim.cluster_plan import Harm, PowerCuts
from penstock.sim.faults.disk_damage import PARTITIONS, QUORUM, Target, flip_bits
from penstock.sim.run import Simulation
from penstock.sim.scenario import Scenario
from penstock.storage.segment import Segment
from penstock.vfs import MemoryDisk, make_dirs_durably

FLIPPED = replace(
    BUSY,
    crash_us_mean=4_000_000,
    cluster=replace(
        BUSY.cluster,
        power_cuts=PowerCuts.SOME,
        cut_us_mean=0,
        down_us=(10_000, 500_000),
        harm=Harm.FLIPS,
        harm_us_mean=1_500_000,
    ),
)
"""Bits flip all the time, of one disk after the other."""

WIPED = replace(FLIPPED, cluster=replace(FLIPPED.cluster, harm=Harm.WIPES))


def told_by(scenario: Scenario) -> str:
    return "\n".join(Simulation(scenario).run().trace)


@pytest.mark.long
def test_nodes_bear_flipped_bits_and_say_what_they_found() -> None:
    told = "".join(told_by(replace(FLIPPED, seed=seed)) for seed in range(6))
    assert ".log flip at" in told
    assert "is damaged on this broker; handing over leadership to an in-sync replica" in told
    assert "was damaged: it is truncated to" in told


@pytest.mark.long
def test_nodes_bear_empty_disks() -> None:
    assert "gets an empty disk" in told_by(WIPED)


@pytest.mark.long
def test_damage_that_nobody_looks_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was on disk is given out as it is."""
    plant(monkeypatch, Segment.check, lambda _, __, data, *___: len(data))
    assert_caught(FLIPPED, first=2, by="CorruptBatch")


@pytest.mark.long
def test_a_damaged_leader_that_stays_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Partition.hand_over, lambda _: None)
    assert_caught(FLIPPED, by="Progress")


@pytest.mark.long
def test_a_damaged_replica_that_is_cut_off_while_others_count_on_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cuts off what it has vouched for, and leads with what is left."""

    def cut_off(partition: Partition) -> None:
        partition.log.cut_damage()
        partition.high_watermark = min(partition.high_watermark, partition.log.log_end)

    plant(monkeypatch, Partition.hand_over, cut_off)
    plant(monkeypatch, Replicas._is_spare, lambda *_: True)
    assert_caught(FLIPPED, first=2, by=AckedNotLost)


def test_a_node_with_an_empty_disk_that_stays_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, brokers._former_life, lambda *_: ())
    plant(monkeypatch, brokers._fenced, _fence_and_keep)
    assert_caught(WIPED, by=AckedNotLost)


# -- what flips ---------------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> MemoryDisk:
    """With a file of each kind, and others."""
    disk = MemoryDisk()
    for path in (
        "logs/orders-0/00000000000000000000.log",
        "logs/orders-0/00000000000000000000.index",
        "logs/orders-0/00000000000000000000.timeindex",
        "logs/orders-0/00000000000000000009.snapshot",
        "logs/__cluster_metadata-0/00000000000000000000.log",
        "logs/__cluster_metadata-0/00000000000000000007-0000000001.checkpoint",
        "logs/__cluster_metadata-0/quorum-state",
        "meta/broker.id",
    ):
        directory = f"{DATA}/{path}".rpartition("/")[0]
        make_dirs_durably(disk, directory)
        file = disk.open(f"{DATA}/{path}", write=True, create=True)
        file.pwrite([bytes(100)], 0)
        file.sync()
        disk.sync_dir(directory)
    return disk


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (PARTITIONS, (".log", ".index", ".timeindex", ".snapshot")),
        (QUORUM, (".log", ".checkpoint")),
        ((Target.RECORDS,), ("orders-0/00000000000000000000.log",)),
    ],
)
def test_bits_flip_in_the_files_that_are_meant_and_for_good(
    disk: MemoryDisk, targets: tuple[Target, ...], names: tuple[str, ...]
) -> None:
    rng = Random(3)
    hit = {flip_bits(disk, targets, rng) for _ in range(60)}
    for name in names:
        assert any(name in (each or "") for each in hit), name
    is_quorum = targets is QUORUM
    assert all(("__cluster_metadata" in (each or "")) == is_quorum for each in hit)
    clone = disk.crash_clone(rng)
    file = clone.open(f"{DATA}/logs/{'__cluster_metadata' if is_quorum else 'orders'}-0/{'0' * 20}.log")
    assert any(file.pread(100, 0))


def test_where_there_is_no_such_file_nothing_flips() -> None:
    disk = MemoryDisk()
    disk.make_dirs(DATA)
    assert flip_bits(disk, PARTITIONS, Random(1)) is None
    assert flip_bits(MemoryDisk(), PARTITIONS, Random(1)) is None


def test_the_same_chance_flips_the_same_bits(disk: MemoryDisk) -> None:
    def flipped(make: Callable[[], MemoryDisk]) -> list[str | None]:
        rng, copy = Random(9), make()
        return [flip_bits(copy, PARTITIONS, rng) for _ in range(5)]

    assert flipped(disk.kill_clone) == flipped(disk.kill_clone)


def test_records_that_were_changed_are_not_sound(disk: MemoryDisk) -> None:
    assert not are_records_sound(disk)  # zeros are no batches


@pytest.mark.parametrize(
    ("first", "epoch"),
    [(2, 0), (4, 0), (9, 0), (2, 1), (4, 1), (2, 2**18), (9, -(2**31))],
    ids=str,
)
def test_records_under_an_offset_or_a_leader_epoch_that_is_not_their_own_are_not_sound(
    first: int, epoch: int
) -> None:
    """No CRC covers the two. There are three batches, of two records each; it is the second that changes."""
    disk, directory = MemoryDisk(), f"{DATA}/logs/orders-0"
    make_dirs_durably(disk, directory)

    def write(at: int, base_offset: int, leader_epoch: int, path: str) -> int:
        batch = RecordBatch.parse(bytearray(build_batch([(None, b"%05d" % at, 1), (None, b"behind it", 1)])))
        batch.place(base_offset, leader_epoch)
        disk.open(path, write=True, create=True).pwrite([batch.view], at)
        return at + batch.size

    log = f"{directory}/00000000000000000000.log"
    behind = write(write(write(0, 0, 0, log), 2, 0, log), 4, 0, log)
    assert are_records_sound(disk)
    assert sorted(read_records(disk, directory)) == [0, 1, 2, 3, 4, 5]
    write(behind // 3, first, epoch, log)
    is_changed = (first, epoch) != (2, 0)
    assert are_records_sound(disk) != is_changed
    if is_changed:
        assert sorted(read_records(disk, directory)) == [0, 1, 4, 5]


def test_of_two_batches_that_overlap_the_one_that_follows_the_last_is_sound() -> None:
    disk, directory = MemoryDisk(), f"{DATA}/logs/orders-0"
    make_dirs_durably(disk, directory)
    log = disk.open(f"{directory}/00000000000000000000.log", write=True, create=True)
    for offset, value in ((0, b"first"), (0, b"moved here from 1"), (2, b"third")):
        batch = RecordBatch.parse(bytearray(build_batch([(None, value, 1)])))
        batch.place(offset, 0)
        log.pwrite([batch.view], log.size())
    assert not are_records_sound(disk)
    assert read_records(disk, directory) == {0: b"first", 2: b"third"}
