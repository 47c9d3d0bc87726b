"""Campaigns against real brokers: faults that are planted must be caught, and long ones go well."""

import os
from pathlib import Path

import pytest

from penstock.chaos import campaign
from penstock.chaos.campaign import Plan
from penstock.chaos.faults import KINDS, Kill, KillAll
from penstock.chaos.play import play

QUICK = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


def short(directory: Path, *names: str, seconds: float = 1.0, seed: int = 1) -> Plan:
    return Plan(seed, seconds, directory, faults=names, settings=QUICK, allows_root=False)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_quarters_of_an_hour_of_every_fault_break_no_rule(tmp_path: Path, seed: int) -> None:
    said: list[str] = []
    outcome = play(Plan(seed, 900, tmp_path), said.append)
    assert outcome.violations == [], "\n".join(said)


class Sabotage(KillAll):
    """Kills all brokers, and takes the end of a log from every replica before they start again."""

    async def heal(self) -> None:
        for broker in self.concerns:
            for log in sorted((broker.data / "logs" / "orders-0").glob("*.log")):
                os.truncate(log, log.stat().st_size // 2)
        await super().heal()


@pytest.mark.long
def test_records_that_are_gone_from_every_replica_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "kill-all", Sabotage)
    outcome = play(short(tmp_path, "kill-all"))
    assert outcome.violations, "nobody missed them"
    assert "orders-0" in " ".join(outcome.violations)


class NeverStarted(Kill):
    """The broker stays away."""

    async def heal(self) -> None:
        campaign.ALLOWANCE_S = 2.0  # nobody need wait longer to see that


@pytest.mark.long
def test_replicas_that_do_not_come_back_after_a_fault_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "ALLOWANCE_S", campaign.ALLOWANCE_S)
    monkeypatch.setitem(KINDS, "kill", NeverStarted)
    outcome = play(short(tmp_path, "kill"))
    assert outcome.violations
    assert outcome.violations[0].startswith("Progress: 2 s ")
