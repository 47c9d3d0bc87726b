"""`penstock lab crash`: kill a writer, lose nothing."""

from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import open_data

from penstock.cli.commands.lab import crash


def test_nothing_acknowledged_is_lost(penstock: Command) -> None:
    outcome = penstock("lab", "crash")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Killed with SIGKILL" in outcome.out
    assert "as many as were added" in outcome.out
    assert "truncated a torn tail of" in outcome.out
    assert "No acknowledged record was lost." in outcome.out
    assert "no errors" in outcome.out
    assert len(outcome.out.splitlines()) <= 45


def test_the_data_can_be_kept_and_killed_again(penstock: Command, tmp_path: Path) -> None:
    data = tmp_path / "lab"
    assert penstock("lab", "crash", "--data", data).code == 0
    (first,) = penstock("log", "ls", data, "--json").json()["partitions"]
    assert penstock("lab", "crash", "--data", data).code == 0
    (second,) = penstock("log", "ls", data, "--json").json()["partitions"]
    assert second["logEnd"] > first["logEnd"]
    assert penstock("log", "check", data, "--deep").code == 0


def test_a_loss_is_not_passed_over(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a record acknowledged that is not there, the lab would say so."""
    honest = crash._write_and_kill
    monkeypatch.setattr(crash, "_write_and_kill", lambda path: honest(path) + 1_000_000)
    outcome = penstock("lab", "crash")
    assert outcome.code == 1
    assert "ACKNOWLEDGED RECORDS WERE LOST" in outcome.out


def test_a_directory_with_other_data_is_refused(penstock: Command, tmp_path: Path) -> None:
    open_data(tmp_path / "data").close()
    outcome = penstock("lab", "crash", "--data", tmp_path / "data")
    assert outcome.code == 2
    assert "has other files" in outcome.err


def test_a_writer_that_cannot_write_is_one_sentence(penstock: Command, tmp_path: Path) -> None:
    directory = open_data(tmp_path / "lab")
    (tmp_path / "lab" / "logs" / "lab-crash-0").mkdir()
    try:
        outcome = penstock("lab", "crash", "--data", tmp_path / "lab")
    finally:
        directory.abandon()
    assert outcome.code == 2
    assert "the writer ended early" in outcome.err
    assert "in use by another process" in outcome.err
