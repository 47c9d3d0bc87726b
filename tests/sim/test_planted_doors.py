"""Faults planted behind HTTP and the line protocol: each is caught on a simulated cluster, and by which rule."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.gateway.idempotency.topic_keys import TopicKeys
from penstock.gateway.membership.members import Members
from penstock.sim.checkers.doors import DoorGroupsGoOn, SameKeySameOffset
from penstock.sim.clients.http_clients import DoorsPlan
from penstock.sim.run import Simulation
from penstock.sim.scenario import TopicPlan

DOORS = replace(
    BUSY,
    topics=(TopicPlan("doors", 2, {}, replication=3),),
    producers=(),
    consumers=(),
    crash_us_mean=3_000_000,
    cluster=replace(BUSY.cluster, cut_us_mean=0),
    doors=DoorsPlan("doors", 2, pace_us=50_000, repeats=0.3, drops_link=0.05, leaves=0.02),
)


def test_doors_serve_their_clients_while_nodes_crash() -> None:
    told = "\n".join(Simulation(DOORS).run().trace)
    for what in ("poster-1 has written", "web-1 has committed", "liner-1 has written", "is killed"):
        assert what in told


def test_keys_that_are_forgotten_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, TopicKeys.find, lambda *_: None)
    assert_caught(DOORS, by=SameKeySameOffset)


def test_members_that_begin_anew_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_the_beginning(*_: Any) -> Iterator[Any]:
        yield from ()
        return 0

    plant(monkeypatch, Members._position, from_the_beginning)
    assert_caught(DOORS, by=DoorGroupsGoOn)
