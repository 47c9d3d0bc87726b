"""`penstock log ls`: what a directory holds."""

from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import GOLDEN, NOW_MS, ORDERS, append_orders, flip, open_data, tree, unpack_unclean
from tests.compat.kafka.everything import load_expected

from penstock.records import build_batch


def test_a_data_directory_is_listed(penstock: Command, data: Path) -> None:
    outcome = penstock("log", "ls", data)
    assert outcome.code == 0
    assert outcome.err == ""
    header, first, second = outcome.out.splitlines()
    assert header.split()[:5] == ["partition", "start", "end", "segments", "bytes"]
    assert first.split()[:4] == ["orders-0", "0", "110", "5"]
    assert first.split()[7] == "yes"
    assert second.split()[:4] == ["orders-1", "0", "1", "1"]


def test_the_logs_inside_a_data_directory_are_the_same(penstock: Command, data: Path) -> None:
    whole = penstock("log", "ls", data, "--json").json()
    inside = penstock("log", "ls", data / "logs", "--json").json()
    assert inside["partitions"] == whole["partitions"]
    assert inside["stoppedCleanly"] is True


def test_a_partition_shows_its_segments(penstock: Command, orders: Path) -> None:
    outcome = penstock("log", "ls", orders)
    assert outcome.code == 0
    assert "largest timestamp" in outcome.out
    assert "2023-11-14 22:13:2" in outcome.out
    (row,) = penstock("log", "ls", orders, "--json").json()["partitions"]
    segments = row["segments"]
    assert [each["baseOffset"] for each in segments[1:]] == [each["endOffset"] for each in segments[:-1]]
    assert segments[-1]["endOffset"] == row["logEnd"] == row["recoveryPoint"]
    for each in segments:
        stem = f"{each['baseOffset']:020d}"
        assert each["sizeBytes"] == (orders / f"{stem}.log").stat().st_size
        assert each["indexBytes"] == (orders / f"{stem}.index").stat().st_size


def test_a_partition_can_be_named_from_where_one_stands(
    penstock: Command, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = penstock("log", "ls", orders, "--json").json()["partitions"][0]
    for here, name in ((orders.parent, "orders-0"), (orders, "."), (orders / "..", "./orders-0/")):
        monkeypatch.chdir(here)
        (row,) = penstock("log", "ls", name, "--json").json()["partitions"]
        assert {**row, "path": ""} == {**expected, "path": ""}


def test_kafkas_partitions_are_listed_as_kafka_has_them(penstock: Command) -> None:
    document = penstock("log", "ls", GOLDEN / "logs", "--json").json()
    rows = {row["partition"]: row for row in document["partitions"]}
    for each in load_expected(GOLDEN / "expected.jsonl.gz").partitions:
        row = rows[each.directory]
        assert (row["logStart"], row["logEnd"]) == (each.log_start, each.log_end)
        assert row["topicId"] == each.topic_id
    assert document["stoppedCleanly"] is True


def test_a_killed_kafka_is_not_clean(penstock: Command, tmp_path: Path) -> None:
    outcome = penstock("log", "ls", unpack_unclean(tmp_path), "--segments")
    assert outcome.code == 0
    assert "Not clean" in outcome.out


def test_listing_writes_nothing(penstock: Command, data: Path) -> None:
    before = tree(data)
    penstock("log", "ls", data, "--segments")
    penstock("log", "ls", data / "logs" / "orders-0")
    assert tree(data) == before


def test_a_running_broker_is_not_disturbed(penstock: Command, tmp_path: Path) -> None:
    """No lock is taken, and what the broker has only in memory is worked out from the log."""
    directory = open_data(tmp_path / "data")
    try:
        log = directory.create(ORDERS, now_ms=NOW_MS)
        append_orders(log)
        for _ in range(3):
            (row,) = penstock("log", "ls", tmp_path / "data", "--segments", "--json").json()["partitions"]
            assert row["logEnd"] == log.log_end
            assert row["isClean"] is False
            assert row["segments"][-1]["maxTimestamp"] == log.segments.active.largest().timestamp
            log.append(build_batch([(b"k", b"v", NOW_MS)] * 3), leader_epoch=1, now_ms=NOW_MS)
    finally:
        directory.abandon()


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_a_damaged_index_does_not_change_what_is_shown(penstock: Command, orders: Path, kind: str) -> None:
    expected = penstock("log", "ls", orders, "--json").json()
    for index in orders.glob(f"*.{kind}"):
        whole = index.read_bytes()
        for position in range(0, len(whole), 3):
            flip(index, position, 0x80)
            assert penstock("log", "ls", orders, "--json").json() == expected
            index.write_bytes(whole)


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(penstock: Command, data: Path) -> None:
    (data / "logs" / "orders-0" / "partition.metadata").write_bytes(b"\xff")
    outcome = penstock("log", "ls", data)
    assert outcome.code == 1
    assert "orders-1" in outcome.out
    assert outcome.err.startswith("penstock: ")
    assert "orders-0/partition.metadata" in outcome.err


def test_an_empty_directory_has_no_partitions(penstock: Command, tmp_path: Path) -> None:
    open_data(tmp_path / "data").close()
    outcome = penstock("log", "ls", tmp_path / "data")
    assert (outcome.code, outcome.out) == (0, "No partitions.\n")


def test_an_offset_that_cannot_be_is_no_traceback(penstock: Command, orders: Path) -> None:
    """No CRC covers a batch's base offset: a flipped bit there must not reach the indexes."""
    log = sorted(orders.glob("*.log"))[-1]
    flip(log, 0, 0x01)
    for command in (("ls",), ("check",), ("rebuild", "--all")):
        assert penstock("log", *command, orders).code in (0, 1)
