"""`penstock log rebuild`: indexes come back from the log, to the byte."""

import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import INTERVAL_BYTES, copy_golden, flip, open_data, tree, unpack_unclean

INDEXES = (".index", ".timeindex", ".txnindex")
INTERVAL = ("--index-interval-bytes", INTERVAL_BYTES)


def indexes(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.suffix in INDEXES}


def test_there_is_nothing_to_do_in_a_sound_directory(penstock: Command, data: Path) -> None:
    before = indexes(data)
    outcome = penstock("log", "rebuild", data)
    assert outcome.code == 0
    assert outcome.out.startswith("Nothing to rebuild")
    assert indexes(data) == before


def test_lost_indexes_come_back_to_the_byte(penstock: Command, data: Path) -> None:
    before = tree(data / "logs" / "orders-0")
    for path in indexes(data):
        if not path.endswith(".txnindex") or Path(path).stat().st_size:
            Path(path).unlink()
    (data / "logs" / "orders-0" / "leader-epoch-checkpoint").unlink()
    outcome = penstock("log", "rebuild", data, *INTERVAL)
    assert outcome.code == 0
    assert "the index is missing" in outcome.out
    after = tree(data / "logs" / "orders-0")
    assert {name: content for name, (_, content) in after.items()} == {
        name: content for name, (_, content) in before.items()
    }
    assert penstock("log", "check", data).code == 0


def test_kafkas_indexes_come_back_to_the_byte(penstock: Command, tmp_path: Path) -> None:
    """Of sealed segments, that is: the last ones were opened again, from where Kafka counts the interval anew.

    And not of compacted partitions, where the cleaner wrote the indexes with steps of its own.
    """
    logs = copy_golden(tmp_path / "logs")
    for compacted in logs.glob("compacted-*"):
        shutil.rmtree(compacted)
    before = indexes(logs)
    for path in before:
        if "-delete" not in path:
            Path(path).unlink()
    penstock("log", "rebuild", logs, *INTERVAL)
    after = indexes(logs)
    active = {str(max(each.glob("*.log")).with_suffix("")) for each in logs.iterdir() if each.is_dir()}
    sealed = {path: content for path, content in before.items() if path.rpartition(".")[0] not in active}
    assert len(sealed) > 20
    assert {path: after.get(path) for path in sealed} == sealed
    assert penstock("log", "check", logs).code == 0


@pytest.mark.parametrize("kind", INDEXES)
def test_a_wrong_index_is_replaced_and_the_others_are_left(
    penstock: Command, orders: Path, kind: str
) -> None:
    before = tree(orders)
    wrong = next(each for each in sorted(orders.glob(f"*{kind}")) if each.stat().st_size)
    flip(wrong, 3)
    document = penstock("log", "rebuild", orders, *INTERVAL, "--json").json()
    assert [change["path"] for change in document["changes"]] == [str(wrong)]
    after = tree(orders)
    assert after[wrong.name][1] == before[wrong.name][1]
    assert {name for name in after if after[name] != before[name]} == {wrong.name}


def test_zeros_that_a_killed_kafka_left_are_trimmed(penstock: Command, tmp_path: Path) -> None:
    logs = unpack_unclean(tmp_path)
    outcome = penstock("log", "rebuild", logs)
    assert outcome.code == 0
    assert "not trimmed" in outcome.out
    assert (logs / "crashed-0" / "00000000000000000018.index").stat().st_size == 24
    assert "no errors." in penstock("log", "check", logs).out


def test_a_dry_run_changes_nothing(penstock: Command, data: Path, orders: Path) -> None:
    next(iter(orders.glob("*.index"))).unlink()
    before = tree(data)
    outcome = penstock("log", "rebuild", data, "--dry-run")
    assert outcome.code == 0
    assert outcome.out.endswith("1 would be rebuilt.\n")
    assert tree(data) == before


def test_all_of_them_are_rebuilt_on_request(penstock: Command, orders: Path) -> None:
    document = penstock("log", "rebuild", orders, "--all", "--index-interval-bytes", 100, "--json").json()
    assert document["changes"]
    assert penstock("log", "check", orders).code == 0


@pytest.mark.parametrize("what", ["", "logs", "logs/orders-0"])
def test_a_directory_that_is_open_is_refused(penstock: Command, data: Path, what: str) -> None:
    next(iter((data / "logs" / "orders-0").glob("*.index"))).unlink()
    directory = open_data(data)
    try:
        before = tree(data / "logs")
        outcome = penstock("log", "rebuild", data / what)
        assert outcome.code == 2
        assert "is in use by another process" in outcome.err
        assert tree(data / "logs") == before
    finally:
        directory.abandon()


def test_a_damaged_log_is_said_and_passed_over(penstock: Command, data: Path, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    flip(log, 70)
    log.with_suffix(".index").unlink()
    outcome = penstock("log", "rebuild", data, *INTERVAL)
    assert outcome.code == 1
    assert "this is damage to the log, which rebuilding indexes cannot repair" in outcome.err
    found = penstock("log", "check", data, "--json").json()["findings"]
    assert [each["path"] for each in found] == [str(log)]


def test_what_was_rebuilt_opens(penstock: Command, data: Path) -> None:
    for path in indexes(data):
        Path(path).unlink()
    penstock("log", "rebuild", data, "--all")
    directory = open_data(data)
    assert {str(partition): log.log_end for partition, log in directory.logs.items()} == {
        "orders-0": 110,
        "orders-1": 1,
    }
    directory.close()
