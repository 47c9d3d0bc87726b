"""Simulated nodes log in to controllers, and again before their sessions end, under faults."""

from dataclasses import replace

import pytest

from penstock.sim.cluster_scenario import draw_cluster
from penstock.sim.run import Simulation

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} username="node" password="n" user_node="n";',
    "connections.max.reauth.ms": "3000",
}


@pytest.mark.parametrize(
    "seed", [3, 7, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 40))]
)
def test_a_cluster_whose_controllers_ask_for_a_log_in_keeps_its_promises(seed: int) -> None:
    scenario = draw_cluster(seed, 3, 20_000_000)
    scenario = replace(scenario, settings={**scenario.settings, **SECURED})
    outcome = Simulation(scenario).run()
    assert outcome.acked > 0
