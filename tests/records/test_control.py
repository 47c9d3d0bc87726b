import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import KafkaError
from penstock.records import (
    ControlType,
    CorruptBatch,
    Record,
    RecordBatch,
    control_key,
    end_txn_marker,
    parse_control,
)
from penstock.records.control import ControlRecord

T = 1_700_000_000_000


def control(key: bytes | None, value: bytes | None = None) -> Record:
    return Record(5, T, key, value)


def test_types_are_numbered_as_in_kafka() -> None:
    """ControlRecordType."""
    names = [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
    ]
    assert [kind.name for kind in ControlType if kind >= 0] == names
    assert [control_key(kind).hex() for kind in ControlType if kind >= 0] == [
        f"{0:04x}{n:04x}" for n in range(7)
    ]


@given(st.integers(0, 1 << 40), st.integers(0, 32767), st.booleans(), st.integers(0, (1 << 31) - 1))
def test_a_marker_comes_back(producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> None:
    batch = RecordBatch.parse(end_txn_marker(producer_id, epoch, commit, coordinator_epoch, T, 77, 3))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer_id, epoch, -1)
    assert (batch.base_offset, batch.leader_epoch, batch.count) == (77, 3, 1)
    (record,) = batch.records()
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    assert parse_control(record) == ControlRecord(kind, coordinator_epoch, 0)


def test_a_type_from_the_future_is_unknown_not_an_error() -> None:
    """ControlRecordType.fromTypeId: consumers skip what they do not know."""
    assert parse_control(control(b"\x00\x00\x00\x63")) == ControlRecord(ControlType.UNKNOWN, None, 0)


def test_later_versions_are_read_as_the_one_that_is_known() -> None:
    """ControlRecordType.parseTypeId, EndTransactionMarker.deserializeValue."""
    record = control(b"\x00\x01\x00\x01rest", b"\x00\x02\x00\x00\x00\x09rest")
    assert parse_control(record) == ControlRecord(ControlType.COMMIT, 9, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, None, "needs a key of 4 bytes, has none"),
        (b"\x00\x00\x00", None, "needs a key of 4 bytes, has 3 bytes"),
        (b"\xff\xff\x00\x00", b"", "key version -1"),
        (b"\x00\x00\x00\x00", None, "ABORT marker at offset 5 needs a value of 6 bytes, has none"),
        (b"\x00\x00\x00\x01", b"\x00" * 5, "COMMIT marker at offset 5 needs a value of 6 bytes, has 5 bytes"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00", "value version -1"),
    ],
)
def test_a_malformed_control_record_says_what_is_missing(
    key: bytes | None, value: bytes | None, message: str
) -> None:
    with pytest.raises(CorruptBatch, match=message):
        parse_control(control(key, value))


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8))
def test_noise_gives_a_control_record_or_a_kafka_error(key: bytes | None, value: bytes | None) -> None:
    try:
        assert parse_control(control(key, value)).version >= 0
    except KafkaError:
        assert (
            key is None or len(key) < 4 or key[0] > 127 or value is None or len(value) < 6 or value[0] > 127
        )
