"""Voters that come back without the end of their metadata log, and those that vote as if nothing were missing."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.raft.node import Node
from penstock.sim.checkers.cluster import MetadataIdentical
from penstock.sim.checkers.disks import DATA
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.faults.disk_damage import cut_metadata
from penstock.sim.run import Simulation
from penstock.vfs import MemoryDisk, make_dirs_durably

FORGETFUL = replace(
    BUSY,
    crash_us_mean=1_000_000,
    cluster=replace(
        BUSY.cluster,
        power_cuts=PowerCuts.ANY,
        cut_us_mean=2_000_000,
        down_us=(10_000, 1_500_000),
        operate_us_mean=300_000,
        lost_metadata_us_mean=400_000,
    ),
    settings=BUSY.settings | {"durability.fsync": "always", "metadata.log.segment.bytes": "10000"},
)
"""The operator changes metadata all the time, so that a voter that loses the end of its log has lost something."""


def test_voters_bear_the_loss_and_fetch_what_they_lost() -> None:
    told = "\n".join(Simulation(FORGETFUL).run().trace)
    assert "its end is lost" in told
    assert "the lost records were fetched" in told


def test_a_voter_that_leads_without_what_it_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Node.__init__

    def make_without(node: Node, *arguments: Any, **options: Any) -> None:
        make(node, *arguments, **options | {"synced_end": None})

    plant(monkeypatch, Node.__init__, make_without)
    assert_caught(FORGETFUL, first=3, by=MetadataIdentical)


def test_the_last_segment_of_the_metadata_log_loses_its_end() -> None:
    disk, directory = MemoryDisk(), f"{DATA}/logs/__cluster_metadata-0"
    assert cut_metadata(disk, Random(1)) is None
    make_dirs_durably(disk, directory)
    for base in (0, 20):
        file = disk.open(f"{directory}/{base:020}.log", write=True, create=True)
        file.pwrite([bytes(100)], 0)
        file.close()
    done = {cut_metadata(disk.kill_clone(), Random(seed)) or "" for seed in range(10)}
    assert all("00000000000000000020.log" in each for each in done)
    assert {"cut at" in each for each in done} == {True, False}
