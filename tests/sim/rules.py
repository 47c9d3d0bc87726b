"""Which rule catches a planted fault."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
from tests.planting import plant

from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.records import Checker, Rules
from penstock.sim.run import Failure, Simulation
from penstock.sim.scenario import Scenario

SEEDS_MAX = 60


def assert_caught(scenario: Scenario, by: type | str, first: int = 0) -> None:
    """Play seeds from `first` on until the rule `by` fails one of them.

    A checker is alone, so that no other ends the run first; a run that another part of the simulation ends does not
    count. `first` is where the search is known to be short.
    """
    rule = by if isinstance(by, str) else by.__name__
    is_checker = isinstance(by, type) and issubclass(by, Checker)
    others: Counter[str] = Counter()
    with only(by) if is_checker else nullcontext():
        for seed in range(first, first + SEEDS_MAX):
            try:
                Simulation(replace(scenario, seed=seed)).run()
            except Failure as failure:
                broken = failure.reason.partition(":")[0]
                if broken == rule:
                    return
                others[broken] += 1
    pytest.fail(f"{rule} failed none of {SEEDS_MAX} seeds; other rules failed {dict(others)}")


@contextmanager
def only(rule: type[Checker]) -> Iterator[None]:
    begin = AllCheckers.__init__

    def begin_with_one(all_checkers: AllCheckers, rules: Rules) -> None:
        begin(all_checkers, rules)
        all_checkers._checkers = [each for each in all_checkers._checkers if isinstance(each, rule)]
        all_checkers._alone = {
            event: [each for each in alone if isinstance(each, rule)]
            for event, alone in all_checkers._alone.items()
        }
        assert all_checkers._checkers, f"the scenario has no use for {rule.__name__}"

    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch, begin, begin_with_one)
        yield
