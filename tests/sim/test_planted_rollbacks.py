"""Nodes whose files vanish or go back between two lives, and those that delete records for lack of metadata."""

from dataclasses import replace
from random import Random

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.replica.unclaimed import Unclaimed
from penstock.sim.checkers.disks import DATA
from penstock.sim.faults.rollbacks import (
    METADATA,
    directories,
    put_back,
    read_directories,
    take_away,
)
from penstock.sim.run import Simulation
from penstock.vfs import MemoryDisk, make_dirs_durably, read_file, replace_file

ROLLED_BACK = replace(
    BUSY,
    crash_us_mean=3_000_000,
    cluster=replace(BUSY.cluster, rollback_us_mean=700_000, operate_us_mean=0),
    settings=BUSY.settings | {"log.segment.delete.delay.ms": "1000"},
)


@pytest.mark.long
def test_nodes_bear_it_and_keep_every_record_when_all_lose_their_metadata() -> None:
    told = "\n".join(Simulation(ROLLED_BACK).run().trace)
    assert f"{METADATA} is " in told
    assert "creates the topics again" in told
    assert "They are kept as strays" in told


@pytest.mark.long
def test_a_node_that_deletes_what_the_metadata_does_not_have_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, Unclaimed.may_be_deleted, lambda *_: True)
    assert_caught(ROLLED_BACK, by="RecordsAreKept")


@pytest.mark.long
def test_a_node_that_cuts_logs_for_metadata_that_went_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Unclaimed.is_ahead, lambda *_: False)
    assert_caught(ROLLED_BACK, first=6, by="RecordsAreKept")


def test_directories_go_and_come_back_as_they_were() -> None:
    disk, path = MemoryDisk(), f"{DATA}/logs/orders-0"
    assert directories(disk) == []
    make_dirs_durably(disk, path)
    replace_file(disk, f"{path}/00000000000000000000.log", b"old")
    copy = read_directories(disk)
    replace_file(disk, f"{path}/00000000000000000000.log", b"newer")
    assert put_back(disk, METADATA, copy) is None
    assert put_back(disk, "orders-0", copy) == "orders-0 is rolled back"
    after = disk.crash_clone(Random(1))
    assert read_file(after, f"{path}/00000000000000000000.log") == b"old"
    assert take_away(disk, "orders-0") == "orders-0 is removed"
    assert directories(disk.crash_clone(Random(1))) == []
