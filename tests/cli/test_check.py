"""`penstock log check`: what it says, and how it ends. What it finds is tested with the checker itself."""

from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import GOLDEN, flip, tree, unpack_unclean

DAMAGED = (
    "logs/orders-0/*.log",
    "logs/orders-0/*.index",
    "logs/orders-0/*.timeindex",
    "logs/orders-0/*.txnindex",
    "logs/orders-0/*.snapshot",
    "logs/orders-0/*.sequences",
    "logs/orders-0/leader-epoch-checkpoint",
    "logs/orders-0/partition.metadata",
    "logs/meta.properties",
    "logs/recovery-point-offset-checkpoint",
    "meta/checkpoint.json",
)


def test_a_sound_directory_is_well(penstock: Command, data: Path) -> None:
    before = tree(data)
    outcome = penstock("log", "check", data, "--deep")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Checked 2 partitions, 6 segments, ")
    assert outcome.out.endswith(": no errors.\n")
    assert tree(data) == before


def test_kafkas_directory_is_well(penstock: Command) -> None:
    outcome = penstock("log", "check", GOLDEN / "logs", "--deep")
    assert outcome.code == 0
    assert "no errors" in outcome.out


def test_one_partition_can_be_checked(penstock: Command, orders: Path) -> None:
    outcome = penstock("log", "check", orders)
    assert outcome.code == 0
    assert outcome.out.startswith("Checked 1 partition, 5 segments, ")


def test_notes_do_not_count(penstock: Command, tmp_path: Path) -> None:
    outcome = penstock("log", "check", unpack_unclean(tmp_path))
    assert outcome.code == 0
    assert outcome.out.startswith("note: ")
    assert "no errors, 4 notes" in outcome.out


@pytest.mark.parametrize("pattern", DAMAGED)
def test_a_flipped_byte_is_found_and_the_other_tools_go_on(
    penstock: Command, data: Path, pattern: str
) -> None:
    path = next(each for each in sorted(data.glob(pattern)) if each.stat().st_size)
    flip(path, -11 if path.name == "meta.properties" else 0, 0x42)
    outcome = penstock("log", "check", data)
    assert outcome.code == 1
    first, *_ = outcome.out.splitlines()
    assert first.startswith(f"error: {path}")
    assert "found" in first
    (finding, *_) = penstock("log", "check", data, "--json").json()["findings"]
    assert finding["path"] == str(path)
    assert finding["position"] is not None or path.suffix == ".txnindex"

    assert penstock("log", "ls", data, "--segments").code in (0, 1)
    assert penstock("log", "dump", path, "--records").code in (0, 1)


def test_json_is_one_document(penstock: Command, data: Path, orders: Path) -> None:
    document = penstock("log", "check", data, "--json").json()
    assert document["ok"] is True
    assert document["findings"] == []
    assert document["checked"]["partitions"] == 2
    flip(sorted(orders.glob("*.log"))[0], 80)
    document = penstock("log", "check", data, "--json").json()
    assert document["ok"] is False
    (finding,) = document["findings"]
    assert finding.keys() == {"severity", "path", "position", "problem", "found", "expected"}
