"""Runs one seed and returns the result as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.cluster_scenario import MINUTE_US, draw_cluster
from penstock.sim.run import Failure, RunOutcome, Simulation
from penstock.sim.scenario import STEPS_DEFAULT, Scenario, draw

NODES_DEFAULT = 3
MINUTES_DEFAULT = 1.0


@dataclass(frozen=True)
class Result:
    seed: int
    outcome: RunOutcome | None
    failure: str | None
    """The violation, which begins with the rule's name."""
    trace: list[str]
    command: str
    """Command that reproduces the failure."""

    @property
    def summary(self) -> str:
        assert self.outcome is not None
        each = self.outcome
        return (
            f"seed {each.seed}: {each.events:,} events in {each.virtual_ms:,} ms, {each.processes} processes,"
            f" {each.power_cuts} power cuts, {each.acked:,} batches acknowledged,"
            f" {each.transactions:,} transactions, {each.commits:,} commits of offsets,"
            f" {each.read:,} records in the end, fingerprint {each.fingerprint[:16]}"
        )

    def as_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {"seed": self.seed, "ok": self.failure is None}
        if self.failure is not None:
            return result | {"failure": self.failure, "replay": self.command}
        assert self.outcome is not None
        values = {name: value for name, value in vars(self.outcome).items() if name != "trace"}
        return result | values


def play(seed: int, steps: int | None = None, extras: Iterable[Extra] = ()) -> Result:
    """Run one node for `steps` events."""
    return play_scenario(with_extras(draw(seed, steps or STEPS_DEFAULT), extras))


def play_cluster(
    seed: int,
    minutes: float = MINUTES_DEFAULT,
    nodes: int = NODES_DEFAULT,
    extras: Iterable[Extra] = (),
) -> Result:
    return play_scenario(with_extras(draw_cluster(seed, nodes, round(minutes * MINUTE_US)), extras))


def play_scenario(scenario: Scenario) -> Result:
    try:
        outcome = Simulation(scenario).run()
    except Failure as failure:
        return Result(scenario.seed, None, failure.reason, failure.trace, failure.command)
    return Result(scenario.seed, outcome, None, outcome.trace, "")
