"""The encoder against the builder of batches: the same bytes for the same rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow import encode as encoding
from penstock.arrow.decode import Decoder
from penstock.arrow.encode import EncodedBatch, encode
from penstock.arrow.schema import ARROW_TYPES, COLUMNS
from penstock.records import Codec, Record, RecordBatch, build_batch

T = 1_700_000_000_000

optional_bytes = st.none() | st.binary(max_size=200)
header = st.tuples(st.text(max_size=70), optional_bytes)
headers = st.none() | st.lists(header, max_size=3)
row = st.tuples(optional_bytes, optional_bytes, st.none() | st.integers(-1, 1 << 47), headers)
rows = st.lists(row, min_size=1, max_size=20)

Row = tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None]


def table(found: list[Row], timestamps: pa.DataType = pa.timestamp("us", tz="UTC")) -> pa.RecordBatch:  # noqa: B008
    per_ms = {"us": 1000, "ms": 1}[timestamps.unit] if pa.types.is_timestamp(timestamps) else 1
    times = pa.array([None if each[2] is None else each[2] * per_ms for each in found], pa.int64())
    pairs = [
        None if each[3] is None else [{"key": key, "value": value} for key, value in each[3]]
        for each in found
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each[0] for each in found], pa.binary()),
            pa.array([each[1] for each in found], pa.binary()),
            times.cast(timestamps),
            pa.array(pairs, ARROW_TYPES["headers"]),
        ],
        ["key", "value", "timestamp", "headers"],
    )


def plain(found: list[Row]) -> list[tuple[Any, ...]]:
    return [(key, value, T if time is None else time, pairs or ()) for key, value, time, pairs in found]


def records(batches: list[EncodedBatch]) -> list[Record]:
    parsed = [RecordBatch.parse(each.data) for each in batches]
    for batch, each in zip(parsed, batches, strict=True):
        batch.check_crc()
        assert (batch.base_offset, batch.count, batch.last_offset_delta) == (0, each.count, each.count - 1)
    return [record for batch in parsed for record in batch.records()]


@given(rows, st.sampled_from(Codec))
def test_a_batch_has_the_bytes_that_the_builder_makes(found: list[Row], codec: Codec) -> None:
    [batch] = encode(table(found), codec=codec, timestamp_ms=T)
    assert batch.data == build_batch(plain(found), codec=codec)
    assert batch.count == len(found)


@given(rows, rows)
def test_slices_of_columns_are_encoded_as_they_are(found: list[Row], before: list[Row]) -> None:
    sliced = table([*before, *found, *before]).slice(len(before), len(found))
    [batch] = encode(sliced, timestamp_ms=T)
    assert batch.data == build_batch(plain(found))


@given(rows.map(lambda found: found * 5), st.integers(62, 2000))
def test_batches_are_bounded_and_hold_all_rows_in_order(found: list[Row], bytes_max: int) -> None:
    batches = encode(table(found), timestamp_ms=T, batch_bytes_max=bytes_max)
    assert all(len(each.data) <= bytes_max or each.count == 1 for each in batches)
    got = [(each.key, each.value, each.timestamp, list(each.headers)) for each in records(batches)]
    assert got == [(key, value, time, list(pairs)) for key, value, time, pairs in plain(found)]


@given(rows)
def test_what_was_encoded_is_decoded_again(found: list[Row]) -> None:
    [batch] = encode(table(found), timestamp_ms=T)
    decoder = Decoder("orders", 3, COLUMNS, start=0, stop=1 << 40)
    [back] = [*decoder.feed(batch.data), *decoder.finish()]
    assert back.column("key").to_pylist() == [each[0] for each in found]
    assert back.column("value").to_pylist() == [each[1] for each in found]
    assert back.column("headers").to_pylist() == [
        [{"key": key, "value": value} for key, value in each[3]] if each[3] else None for each in found
    ]
    times = [T if each[2] is None else each[2] for each in found]
    assert back.column("timestamp").cast(pa.int64()).to_pylist() == [each * 1000 for each in times]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), pa.int64()])
def test_times_come_in_any_unit(kind: pa.DataType) -> None:
    found: list[Row] = [(None, b"v", T + 7, None), (None, b"v", None, None), (None, b"v", 0, None)]
    assert [each.timestamp for each in records(encode(table(found, kind), timestamp_ms=T))] == [T + 7, T, 0]


def test_microseconds_are_cut_to_milliseconds() -> None:
    time = datetime(2024, 2, 3, tzinfo=UTC) + timedelta(microseconds=1999)
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v"]), "timestamp": pa.array([time], pa.timestamp("us", tz="UTC"))}
    )
    [record] = records(encode(batch, timestamp_ms=T))
    assert record.timestamp == int(datetime(2024, 2, 3, tzinfo=UTC).timestamp()) * 1000 + 1


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has timestamp -2 ms, expected one from 1970 on"):
        encode(table([(None, b"v", T, None), (None, b"v", -2, None)]), timestamp_ms=T)


def test_text_is_taken_for_its_bytes_and_only_the_value_is_needed() -> None:
    for kind in (pa.string(), pa.large_string(), pa.large_binary(), pa.binary()):
        batch = pa.RecordBatch.from_pydict({"value": pa.array(["größer", None]).cast(kind)})
        assert [each.value for each in records(encode(batch, timestamp_ms=T))] == ["größer".encode(), None]
    only = pa.RecordBatch.from_pydict({"value": pa.array([b""])})
    assert encode(only, timestamp_ms=T) == [EncodedBatch(build_batch([(None, b"", T)]), 1)]


def test_no_rows_are_no_batches() -> None:
    assert encode(table([(None, b"v", T, None)]).slice(0, 0), timestamp_ms=T) == []


def test_sequence_numbers_go_on_from_batch_to_batch_and_start_again_after_the_last() -> None:
    found: list[Row] = [(b"k", b"v" * 100, T, None)] * 10
    batches = encode(
        table(found),
        timestamp_ms=T,
        producer_id=7,
        producer_epoch=2,
        base_sequence=(1 << 31) - 3,
        is_transactional=True,
        batch_bytes_max=500,
    )
    parsed = [RecordBatch.parse(each.data) for each in batches]
    assert len(parsed) > 2
    expected = (1 << 31) - 3
    for batch in parsed:
        assert batch.is_transactional
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 2, expected)
        expected = (expected + batch.count) % (1 << 31)
    assert all(
        RecordBatch.parse(each.data).base_sequence == -1 for each in encode(table(found), timestamp_ms=T)
    )


def test_rows_with_more_bytes_than_arrow_can_join_are_encoded_in_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "_JOINED_BYTES_MAX", 1000)
    found: list[Row] = [(b"%d" % number, b"v" * (number * 7), T, None) for number in range(60)]
    batches = encode(table(found), timestamp_ms=T, base_sequence=0, producer_id=1, producer_epoch=0)
    assert len(batches) > 4
    assert [each.key for each in records(batches)] == [b"%d" % number for number in range(60)]
    assert [RecordBatch.parse(each.data).base_sequence for each in batches][-1] == 60 - batches[-1].count


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    found: list[Row] = [(None, b"v", T, None), (None, b"v" * 3_000_000, T, None), (None, b"v", T, None)]
    assert [each.count for each in encode(table(found), timestamp_ms=T)] == [1, 1, 1]


def test_a_header_without_a_key_is_refused() -> None:
    batch = table([(None, b"v", T, None)])
    pairs = pa.array([[{"key": None, "value": b"x"}]], ARROW_TYPES["headers"])
    with pytest.raises(ValueError, match="a header has no key"):
        encode(batch.set_column(3, "headers", pairs), timestamp_ms=T)
    for missing in (pa.array([[None]], ARROW_TYPES["headers"]),):
        with pytest.raises(ValueError, match="a header has no key"):
            encode(batch.set_column(3, "headers", missing), timestamp_ms=T)


def test_headers_hidden_behind_a_null_do_not_show() -> None:
    shown = pa.array([[{"key": "a", "value": b"1"}], [{"key": "b", "value": b"2"}]], ARROW_TYPES["headers"])
    hidden = pa.Array.from_buffers(
        shown.type, 2, [pa.py_buffer(b"\x02"), shown.buffers()[1]], children=[shown.values]
    )
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), hidden], ["value", "headers"])
    assert [each.headers for each in records(encode(batch, timestamp_ms=T))] == [(), (("b", b"2"),)]
