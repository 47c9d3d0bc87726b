"""A node that reads everything ahead of a client that does not read: it is caught, as in `test_planted_cluster`."""

from dataclasses import replace

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.client_memory import ClientMemory
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.run import Simulation

SLOW = with_extras(replace(BUSY, duration_us=15_000_000), [Extra.SLOW_READERS])


def test_reading_everything_ahead_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, ClientMemory.read_ahead, lambda _: 1 << 40)
    assert_caught(SLOW, by="BoundedMemory")


def test_the_shipped_node_keeps_little() -> None:
    Simulation(SLOW).run()
