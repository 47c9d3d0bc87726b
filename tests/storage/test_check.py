"""The checker: silent about what is sound, and exact about what is not."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.cli.data import (
    GOLDEN,
    NOW_MS,
    ORDERS,
    SETTINGS,
    append_orders,
    flip,
    open_data,
    unpack_unclean,
    write_data,
)
from tests.storage.housekeeping import compact

from penstock.records import build_batch
from penstock.storage.check import (
    FINDINGS_PER_FILE_MAX,
    Finding,
    SavedPartition,
    check_directory,
    check_partition,
    read_saved_offsets,
)
from penstock.storage.directory import open_directory
from penstock.storage.findings import Tally
from penstock.storage.layout import layout_of
from penstock.vfs import RealDisk


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("written") / "data")


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture
def orders(data: Path) -> Path:
    return data / "logs" / "orders-0"


def check(path: Path, *, deep: bool = False) -> list[Finding]:
    layout = layout_of(RealDisk(), str(path))
    return list(check_directory(RealDisk(), layout.logs, layout.meta, deep=deep))


def errors(path: Path, *, deep: bool = False) -> list[Finding]:
    return [finding for finding in check(path, deep=deep) if finding.severity == "error"]


def files(directory: Path, pattern: str) -> Iterator[Path]:
    return (each for each in sorted(directory.glob(pattern)) if each.stat().st_size)


def test_nothing_is_found_in_a_directory_after_a_clean_stop(data: Path) -> None:
    assert check(data, deep=True) == []


def test_nothing_is_wrong_in_a_directory_that_kafka_wrote() -> None:
    tally = Tally()
    logs = str(GOLDEN / "logs")
    found = list(check_directory(RealDisk(), logs, logs + ".meta", deep=True, tally=tally))
    assert [finding for finding in found if finding.severity == "error"] == []
    assert tally.partitions == 21
    assert tally.records > 700
    assert tally.notes == len(found)


def test_what_a_killed_kafka_leaves_is_noted_and_not_wrong(tmp_path: Path) -> None:
    """Its indexes were made at full size, and are zeros behind the last entry."""
    found = check(unpack_unclean(tmp_path), deep=True)
    assert {finding.severity for finding in found} == {"note"}
    assert all("zeros at the end" in finding.problem for finding in found)


def test_an_open_directory_is_not_wrong_for_what_is_in_memory_yet(tmp_path: Path) -> None:
    directory = open_data(tmp_path / "data")
    append_orders(directory.create(ORDERS, now_ms=NOW_MS, topic_id=bytes(15) + b"1"))
    try:
        assert errors(tmp_path / "data") == []
    finally:
        directory.abandon()


def test_a_crashed_directory_is_not_wrong(tmp_path: Path) -> None:
    directory = open_data(tmp_path / "data")
    append_orders(directory.create(ORDERS, now_ms=NOW_MS, topic_id=bytes(15) + b"1"))
    directory.checkpoint()
    append_orders(directory.create(ORDERS._replace(partition=5), now_ms=NOW_MS))
    directory.abandon()
    assert errors(tmp_path / "data") == []


# -- logs ---------------------------------------------------------------------------------------------------


def test_every_bit_of_a_batch_counts(data: Path, orders: Path) -> None:
    """Base offset and leader epoch lie outside the CRC: neighbours and the epoch checkpoint tell on them."""
    log = next(files(orders, "*.log"))
    whole = log.read_bytes()
    second = int.from_bytes(whole[8:12], "big") + 12
    third = second + int.from_bytes(whole[second + 8 : second + 12], "big") + 12
    for position in range(second, third):
        mask = 1 << (position % 8)
        flip(log, position, mask)
        found = errors(data)
        assert found, f"byte {position} xor {mask:#x} was not noticed"
        assert any(str(log) == finding.path for finding in found)
        log.write_bytes(whole)


def test_a_flipped_byte_is_named_with_the_position_of_its_batch(data: Path, orders: Path) -> None:
    log = next(files(orders, "*.log"))
    size = int.from_bytes(log.read_bytes()[8:12], "big") + 12
    flip(log, size + 70)
    (first, *_) = errors(data)
    assert (first.path, first.position) == (str(log), size)
    assert first.problem == "CRC mismatch"
    assert first.found.startswith("CRC 0x")
    assert first.expected.startswith("0x")


def test_damage_in_one_batch_is_one_error(data: Path, orders: Path) -> None:
    """What lies behind it is still checked, and indexes are not blamed."""
    log = next(files(orders, "*.log"))
    flip(log, 70)
    assert len(check(data)) == 1


def test_a_batch_with_a_wrong_length_is_passed_over(data: Path, orders: Path) -> None:
    log = next(files(orders, "*.log"))
    flip(log, 10, 0x40)
    (only,) = errors(data)
    assert only.position == 0


def test_a_torn_end_is_named(data: Path) -> None:
    log = sorted((data / "logs" / "orders-1").glob("*.log"))[-1]
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(build_batch([(b"k", b"v", NOW_MS)])[:40])
    (only,) = errors(data)
    assert (only.position, only.found) == (size, "40 bytes to the end of the file")


def test_a_segment_under_a_wrong_name_is_named(data: Path, orders: Path) -> None:
    first, second, *_ = sorted(orders.glob("*.log"))
    base = int(second.stem)
    second.rename(orders / f"{base - 1:020d}.log")
    found = errors(data)
    assert any("reaches into the next segment" in finding.problem for finding in found)
    assert any(finding.path == str(first) for finding in found)


def test_offsets_that_go_back_are_named(data: Path, orders: Path) -> None:
    last = sorted(orders.glob("*.log"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + whole)
    found = errors(data)
    assert found[0].problem == "offsets go back"
    assert found[0].position == len(whole)


def test_deep_decodes_records(data: Path, orders: Path) -> None:
    """A batch with a good CRC over bad records is only found by decoding them."""
    from penstock.records.batch import seal  # noqa: PLC0415

    log = next(files(orders, "*.log"))
    whole = bytearray(log.read_bytes())
    size = int.from_bytes(whole[8:12], "big") + 12
    batch = whole[:size]
    batch[61] ^= 0x40
    seal(batch)
    log.write_bytes(batch + whole[size:])
    assert errors(data) == []
    (only,) = errors(data, deep=True)
    assert (only.problem, only.position) == ("the records cannot be decoded", 0)


# -- indexes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
def test_every_byte_of_an_index_counts(data: Path, orders: Path, kind: str) -> None:
    """But any offset of the right batch will do in a time index: older Kafkas named the record itself."""
    index = next(files(orders, f"*.{kind}"))
    whole = index.read_bytes()
    for position in range(len(whole)):
        flip(index, position, 0x10)
        found = errors(data)
        assert found, f"byte {position} was not noticed"
        assert all(finding.path == str(index) for finding in found)
        width = {"index": 8, "timeindex": 12, "txnindex": 34}[kind]
        assert any(finding.position in (None, position // width * width) for finding in found)
        index.write_bytes(whole)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_a_missing_index_is_named(data: Path, orders: Path, kind: str) -> None:
    index = next(files(orders, f"*.{kind}"))
    index.unlink()
    (only,) = errors(data)
    assert (only.path, only.problem) == (str(index), "the index is missing")


def test_a_missing_transaction_index_is_named_where_something_was_aborted(data: Path, orders: Path) -> None:
    lost = next(files(orders, "*.txnindex"))
    lost.unlink()
    assert {finding.path for finding in errors(data)} == {str(lost)}
    for empty in orders.glob("*.txnindex"):
        if not empty.stat().st_size:
            empty.unlink()
    assert {finding.path for finding in errors(data)} == {str(lost)}


def test_an_index_that_ends_inside_an_entry_is_named(data: Path, orders: Path) -> None:
    index = next(files(orders, "*.index"))
    index.write_bytes(index.read_bytes() + b"\x01")
    (only,) = errors(data)
    assert only.problem == "the file ends inside an entry"
    assert only.position == index.stat().st_size - 1


def test_a_time_index_that_lost_its_last_entry_is_named(data: Path, orders: Path) -> None:
    """A look-up by time believes it, and would pass over the segment."""
    index = next(files(orders, "*.timeindex"))
    index.write_bytes(index.read_bytes()[:-12])
    (only,) = errors(data)
    assert only.problem == "the last entry is not the segment's largest timestamp"


def test_garbage_is_a_few_findings_not_a_million(data: Path, orders: Path) -> None:
    index = next(files(orders, "*.index"))
    index.write_bytes(b"\xee" * 80_000)
    tally = Tally()
    found = list(check_partition(RealDisk(), str(orders), tally=tally))
    assert len(found) == FINDINGS_PER_FILE_MAX + 1
    assert "more findings" in found[-1].problem
    assert tally.errors == 10_000


# -- what stands beside -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("logs/orders-0/*.snapshot", 20),
        ("logs/orders-0/*.sequences", 20),
        ("logs/orders-0/leader-epoch-checkpoint", 0),
        ("logs/orders-0/partition.metadata", 9),
        ("logs/meta.properties", -11),
        ("logs/recovery-point-offset-checkpoint", 0),
        ("logs/log-start-offset-checkpoint", 2),
        ("logs/replication-offset-checkpoint", 0),
        ("logs/cleaner-offset-checkpoint", 0),
        ("meta/checkpoint.json", 0),
        ("meta/broker.id", 0),
    ],
)
def test_a_flipped_byte_in_a_small_file_is_named(data: Path, pattern: str, position: int) -> None:
    path = next(files(data, pattern))
    flip(path, position, 0x42)
    found = errors(data)
    assert [finding.path for finding in found] == [str(path)]
    assert found[0].problem


def test_bytes_that_are_no_text_are_named(data: Path) -> None:
    path = data / "meta" / "checkpoint.json"
    path.write_bytes(b'{"recovery_points": {"\xff": {}}}')
    assert [finding.path for finding in errors(data)] == [str(path)]


def test_points_outside_the_log_are_named(data: Path) -> None:
    for name, what in (
        ("recovery-point-offset-checkpoint", "the recovery point"),
        ("log-start-offset-checkpoint", "the log start"),
    ):
        path = data / "logs" / name
        whole = path.read_bytes()
        path.write_bytes(b"0\n1\norders 0 9999\n")
        found = [finding for finding in errors(data) if finding.path == str(path)]
        assert found[0].problem == f"{what} of orders-0 is outside the log"
        assert found[0].found == "offset 9999"
        path.write_bytes(whole)


def test_an_epoch_that_the_batches_do_not_have_is_named_once(data: Path, orders: Path) -> None:
    path = orders / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    (only,) = errors(data)
    assert (only.found, only.expected) == ("epoch 1", "epoch 0")


def test_a_lost_epoch_checkpoint_is_named(data: Path, orders: Path) -> None:
    (orders / "leader-epoch-checkpoint").unlink()
    (only,) = errors(data)
    assert (only.problem, only.expected) == ("the leader epochs are lost", "epoch 0 from 0 on")


def test_a_snapshot_of_other_producers_is_named(data: Path, orders: Path) -> None:
    first, *_, last = sorted(orders.glob("*.snapshot"))
    shutil.copy(first, last)
    found = errors(data)
    assert {finding.path for finding in found} == {str(last)}
    assert "differs from the log" in found[0].problem


def test_partitions_of_a_topic_with_different_ids_are_named(data: Path) -> None:
    path = data / "logs" / "orders-1" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (only,) = errors(data)
    assert (only.path, only.found) == (str(path), "AAAAAAAAAAAAAAAAAAAAAQ")


def test_a_position_that_the_recovery_point_does_not_have_is_named(data: Path, orders: Path) -> None:
    path = data / "meta" / "checkpoint.json"
    size = sorted(orders.glob("*.log"))[-1].stat().st_size
    path.write_text(path.read_text().replace(f'"position": {size}', f'"position": {size + 1}'))
    (only,) = errors(data)
    assert only.found == f"position {size + 1}"


def test_leftovers_are_notes(data: Path, orders: Path) -> None:
    leftovers = [
        orders / name
        for name in (
            "00000000000000000000.log.deleted",
            "00000000000000000000.index.swap",
            "00000000000000000000.log.cleaned",
            "00000000000000000000.log.17.cut",
            "00000000000000000000.tomb",
            "leader-epoch-checkpoint.tmp",
            "00000000000000000007.index",
        )
    ]
    for path in leftovers:
        path.write_bytes(b"x" * 8)
    (data / "logs" / f"gone-0.{'0' * 32}-delete").mkdir()
    found = check(data)
    assert {finding.severity for finding in found} == {"note"}
    assert {finding.path for finding in found} >= {str(path) for path in leftovers}
    assert len(found) == len(leftovers) + 1


def test_a_partition_without_segments_is_wrong(data: Path) -> None:
    (data / "logs" / "bare-0").mkdir()
    assert [finding.problem for finding in errors(data)] == ["no segment"]


def test_a_partition_can_be_checked_by_itself(data: Path, orders: Path) -> None:
    layout = layout_of(RealDisk(), str(data))
    known = read_saved_offsets(RealDisk(), layout.logs, layout.meta).known(ORDERS)
    assert known.clean
    assert list(check_partition(RealDisk(), str(orders), known)) == []
    assert list(check_partition(RealDisk(), str(orders), SavedPartition())) == []


def test_a_compacted_log_is_well(tmp_path: Path) -> None:
    """Records, markers and whole batches are gone; what is left still fits together."""
    settings = replace(SETTINGS, cleanup_policy=("compact",), delete_retention_ms=0)
    directory = open_directory(
        RealDisk(), str(tmp_path / "data"), now_ms=NOW_MS, rng=Random(7), settings_of=lambda _: settings
    )
    log = directory.create(ORDERS, now_ms=NOW_MS, topic_id=bytes(15) + b"1")
    for turn in range(3):
        append_orders(log, keys=3, from_sequence=40 * turn)
        log.roll(NOW_MS)
        compact(log, NOW_MS + 10_000_000 * (turn + 1), log.log_end)
        assert errors(tmp_path / "data", deep=True) == []
    append_orders(log, keys=3, from_sequence=120)
    directory.close()
    found = check(tmp_path / "data", deep=True)
    assert [finding for finding in found if finding.severity == "error"] == []
    assert any("as after compaction" in finding.problem for finding in found)
