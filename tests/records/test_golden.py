"""Against bytes that Kafka wrote.

golden.json holds batches made with kafka-clients 4.1.0: MemoryRecordsBuilder, withEndTransactionMarker,
withLeaderChangeMessage and DefaultRecordBatch.writeEmptyHeader, the records being those listed here.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.records import (
    BatchBuilder,
    Codec,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    empty_batch,
    end_txn_marker,
    parse_control,
)
from penstock.records.control import ControlRecord

GOLDEN = {
    name: bytes.fromhex(text)
    for name, text in json.loads(Path(__file__).with_name("golden.json").read_text()).items()
}

T = 1_700_000_000_000
STANDARD = [
    Record(0, T, b"key-1", b"value-1"),
    Record(1, T + 5, None, b"no key", (("trace", b"abc"), ("empty", b""), ("null", None))),
    Record(2, T - 3, b"tombstone", None),
    Record(3, T + 100_000, b"", b"", (("hé", "ü".encode()),)),
    Record(4, T + 1, b"long", b"x" * 300),
]
GAPS = [Record(103, T, b"a", b"1"), Record(110, T + 1, b"b", b"2"), Record(5000, T + 2, b"c", b"3")]
HORIZON = [Record(100, T, b"a", None), Record(101, T + 1, b"b", b"2")]
BIG = [Record(i, T + i, b"k%d" % i, bytes(n % 7 for n in range(1000))) for i in range(70)]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_batch_of_kafkas_has_a_sound_header_and_crc(name: str) -> None:
    batch = RecordBatch.parse(GOLDEN[name])
    assert batch.size == len(GOLDEN[name])
    assert batch.crc_valid()
    assert sum(1 for _ in batch.records()) == batch.count


@pytest.mark.parametrize("codec", Codec)
def test_records_that_kafka_compressed_are_read(codec: Codec) -> None:
    batch = RecordBatch.parse(GOLDEN[f"standard_{codec.name.lower()}"])
    assert batch.codec is codec
    assert list(batch.records()) == STANDARD
    assert (batch.base_timestamp, batch.max_timestamp) == (T, T + 100_000)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_that_fill_several_blocks_are_read(codec: Codec) -> None:
    assert list(RecordBatch.parse(GOLDEN[f"big_{codec.name.lower()}"]).records()) == BIG


WRITTEN: list[tuple[str, list[Record], dict[str, Any]]] = [
    ("standard_none", STANDARD, {}),
    ("idempotent", STANDARD, {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 2147483646}),
    (
        "transactional",
        STANDARD,
        {
            "producer_id": 4711,
            "producer_epoch": 3,
            "base_sequence": 17,
            "transactional": True,
            "leader_epoch": 9,
        },
    ),
    ("gaps", GAPS, {"base_offset": 100, "leader_epoch": 2}),
    ("delete_horizon", HORIZON, {"leader_epoch": 2, "delete_horizon_ms": T + 86_400_000}),
    ("no_timestamp", [Record(0, -1, b"a", b"1"), Record(1, -1, b"b", b"2")], {}),
]


@pytest.mark.parametrize(("name", "records", "options"), WRITTEN, ids=[name for name, _, _ in WRITTEN])
def test_the_builder_writes_what_kafka_writes(
    name: str, records: list[Record], options: dict[str, Any]
) -> None:
    assert build_batch(records, **options).hex() == GOLDEN[name].hex()
    assert list(RecordBatch.parse(GOLDEN[name]).records()) == records


def test_a_batch_with_log_append_time_gives_every_record_its_max_timestamp() -> None:
    golden = GOLDEN["log_append_time"]
    batch = RecordBatch.parse(golden)
    assert batch.log_append_time
    assert [record.timestamp for record in batch.records()] == [T + 7, T + 7]
    builder = BatchBuilder(1000, timestamp_type_log_append=True, leader_epoch=5)
    builder.append(b"k", b"v", T)
    builder.append(b"k2", b"v2", T + 7)
    assert builder.build() == golden


def test_compaction_keeps_the_last_offset_of_a_batch_whose_last_record_went() -> None:
    """MemoryRecordsBuilder.overrideLastOffset."""
    builder = BatchBuilder(100, leader_epoch=2)
    builder.append(b"a", b"1", T, offset=103)
    assert builder.build(last_offset=120) == GOLDEN["gaps_last_offset"]
    assert RecordBatch.parse(GOLDEN["gaps_last_offset"]).next_offset == 121


def test_an_empty_batch_is_kafkas_empty_header() -> None:
    golden = GOLDEN["empty_batch"]
    options: dict[str, Any] = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 20}
    assert empty_batch(100, 109, timestamp=T, transactional=True, leader_epoch=6, **options) == golden
    batch = RecordBatch.parse(golden)
    assert list(batch.records()) == []
    assert (batch.last_offset, batch.last_sequence) == (109, 29)


@pytest.mark.parametrize(
    ("name", "kind", "coordinator_epoch"),
    [("commit_marker", ControlType.COMMIT, 13), ("abort_marker", ControlType.ABORT, 0)],
)
def test_a_transactions_end_is_marked_as_kafka_marks_it(
    name: str, kind: ControlType, coordinator_epoch: int
) -> None:
    """MemoryRecords.withEndTransactionMarker and EndTransactionMarker.deserialize."""
    commit = kind is ControlType.COMMIT
    place = {"base_offset": 42, "leader_epoch": 7} if commit else {}
    assert end_txn_marker(4711, 3, commit, coordinator_epoch, T, **place) == GOLDEN[name]
    batch = RecordBatch.parse(GOLDEN[name])
    assert batch.is_control
    assert batch.is_transactional
    assert batch.base_sequence == batch.last_sequence == -1
    assert [parse_control(record) for record in batch.records()] == [
        ControlRecord(kind, coordinator_epoch, 0)
    ]


def test_a_leader_change_is_recognised() -> None:
    batch = RecordBatch.parse(GOLDEN["leader_change"])
    assert batch.is_control
    assert not batch.is_transactional
    assert [parse_control(record).type for record in batch.records()] == [ControlType.LEADER_CHANGE]


def test_sequence_numbers_wrap_as_kafkas_do() -> None:
    """DefaultRecordBatch.incrementSequence: after 2^31 - 1 comes 0."""
    assert RecordBatch.parse(GOLDEN["idempotent"]).last_sequence == 2


def test_the_delete_horizon_is_the_base_timestamp() -> None:
    """KIP-534."""
    assert RecordBatch.parse(GOLDEN["delete_horizon"]).delete_horizon_ms == T + 86_400_000
    assert RecordBatch.parse(GOLDEN["gaps"]).delete_horizon_ms is None
