"""A node that reads everything ahead of a client that does not read: it is caught, as in `test_planted_cluster`."""

from dataclasses import replace

import pytest
from tests.sim.test_planted_cluster import BUSY, complaint

from penstock.base.client_memory import ClientMemory
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.run import Simulation

SLOW = with_extras(replace(BUSY, duration_us=15_000_000), [Extra.SLOW_READERS])


def test_reading_everything_ahead_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientMemory, "read_ahead", lambda _: 1 << 40)
    assert complaint(SLOW).startswith("BoundedMemory")


def test_the_shipped_node_keeps_little() -> None:
    Simulation(SLOW).run()
