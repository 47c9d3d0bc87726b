"""Clusters whose settings do not name them, and whose nodes crash while the id is drawn and told."""

from dataclasses import replace

import pytest

from penstock.sim.checkers.disks import DATA
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.run import Simulation
from penstock.storage.checkpoints import META_PROPERTIES, MetaProperties
from penstock.vfs import read_file

SECOND_US = 1_000_000


@pytest.mark.parametrize("seed", [2, 5])
def test_all_nodes_agree_on_an_id_whoever_crashes_while_it_is_drawn(seed: int) -> None:
    scenario = with_extras(draw_cluster(seed, 3, 4 * SECOND_US), [Extra.UNNAMED])
    plan = replace(scenario.cluster, down_us=(1_000, 800_000), cut_us_mean=300_000)
    simulation = Simulation(replace(scenario, crash_us_mean=120_000, cluster=plan))
    simulation.run()
    path = f"{DATA}/logs/{META_PROPERTIES}"
    found = {
        MetaProperties.decode(read_file(each.disk, path), path).cluster_id
        for each in simulation._cluster.machines
    }
    assert len(found) == 1
    assert "" not in found


def test_the_extra_leaves_everything_else_as_the_seed_has_it() -> None:
    for seed in range(1, 6):
        plain = draw_cluster(seed, 3, MINUTE_US)
        unnamed = with_extras(plain, [Extra.UNNAMED])
        assert replace(unnamed, extras=(), cluster=replace(unnamed.cluster, is_named=True)) == plain
