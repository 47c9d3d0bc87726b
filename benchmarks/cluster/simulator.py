"""How much faster than real time the simulator is: three nodes under load, on one core."""

import time

from penstock.sim.play import play_cluster

SEEDS = range(1, 7)
"""Of even and odd numbers: with and without groups and transactions."""


def speed(minutes: float) -> float:
    """Simulated time for real time, over all seeds."""
    play_cluster(SEEDS[1], minutes / 10, 3)  # what is loaded at its first use is loaded then
    simulated = 0.0
    began = time.perf_counter()
    for seed in SEEDS:
        result = play_cluster(seed, minutes, 3)
        if result.outcome is None:
            raise RuntimeError(f"seed {seed}: {result.failure}")
        simulated += result.outcome.virtual_ms / 1000
    return simulated / (time.perf_counter() - began)
