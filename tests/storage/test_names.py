"""Kafka's names for files and directories."""

import pytest

from penstock.base.ids import TopicPartition
from penstock.storage import names


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000000.log", (0, ".log", "")),
        ("00000000000000000123.timeindex", (123, ".timeindex", "")),
        ("00000000000000000123.txnindex.swap", (123, ".txnindex", ".swap")),
        ("00000000000000000123.log.cleaned", (123, ".log", ".cleaned")),
        ("09223372036854775807.snapshot.deleted", (2**63 - 1, ".snapshot", ".deleted")),
        ("00000000000000000007.sequences", (7, ".sequences", "")),
        ("00000000000000000007.tomb", (7, ".tomb", "")),
    ],
)
def test_a_segments_file_has_a_base_a_kind_and_a_state(name: str, parsed: tuple[int, str, str]) -> None:
    assert names.parse_segment_file(name) == parsed
    assert names.segment_file(*parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.cut",
        "00000000000000000000.log.300.cut",
        "leader-epoch-checkpoint",
        "00000000000000000000",
        "x00000000000000000000.log",
    ],
)
def test_other_files_are_none(name: str) -> None:
    assert names.parse_segment_file(name) is None


@pytest.mark.parametrize("partition", [TopicPartition("orders", 0), TopicPartition("a-b.c_d-7", 12)])
def test_a_partitions_directory_is_topic_dash_number(partition: TopicPartition) -> None:
    assert names.parse_partition_dir(names.partition_dir(partition)) == partition


@pytest.mark.parametrize(
    "name", ["orders", "orders-", "orders-x", "lost+found", "a b-0", "-0", "x" * 250 + "-0"]
)
def test_other_directories_are_none(name: str) -> None:
    assert names.parse_partition_dir(name) is None


def test_a_deleted_partition_is_recognised_and_is_none_any_more() -> None:
    name = names.deleted_partition_dir(TopicPartition("orders", 3), "ab" * 16)
    assert name == f"orders-3.{'ab' * 16}-delete"
    assert names.is_deleted_partition_dir(name)
    assert names.is_leaving(name)
    assert names.parse_partition_dir(name) is None


def test_a_deleted_partition_with_a_long_name_fits_a_file_system() -> None:
    name = names.deleted_partition_dir(TopicPartition("t" * 249, 12), "ab" * 16)
    assert len(name) == 255
    assert names.is_deleted_partition_dir(name)


@pytest.mark.parametrize("state", ["future", "stray"])
def test_kafkas_future_and_stray_directories_are_left_alone(state: str) -> None:
    name = f"orders-3.{'ab' * 16}-{state}"
    assert names.parse_partition_dir(name) is None
    assert not names.is_deleted_partition_dir(name)
