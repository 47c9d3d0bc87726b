"""The tables of commands, and the help that they give."""

import pytest
from tests.cli.conftest import Command

from penstock.cli.app import Root
from penstock.cli.command_group import LazyCommand, load
from penstock.cli.commands.lab import Lab
from penstock.cli.commands.log import Log

ENTRIES = [
    pytest.param(name, entry, id=f"{group.__name__.lower()}-{name}")
    for group in (Root, Log, Lab)
    for name, entry in group.table.items()
]
GROUPS = [
    (),
    *((name,) for name, entry in Root.table.items() if entry.target.endswith(":app")),
    ("log", "strays"),
]


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name: str, entry: LazyCommand) -> None:
    help_text = load(name, entry).help
    assert help_text.partition("\n\n")[0] == entry.summary + "."


@pytest.mark.parametrize("group", GROUPS, ids=lambda each: " ".join(each) or "penstock")
def test_no_summary_is_cut_off_in_a_terminal(
    penstock: Command, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = penstock(*group, "-h")
    assert outcome.code == 0
    assert "..." not in outcome.out.partition("\nCommands:\n")[2]
    assert penstock(*group, "--help").out == outcome.out
