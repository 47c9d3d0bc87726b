"""The decoder against the reader that goes record by record, and what a consumer of Kafka would see."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow import walk
from penstock.arrow.decode import ROWS_MAX, Decoder
from penstock.arrow.schema import COLUMNS, arrow_schema
from penstock.records import (
    BatchBuilder,
    Codec,
    Record,
    build_batch,
    empty_batch,
    end_txn_marker,
    iter_batches,
    seal,
)

T = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = 1 << 62

optional_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=70), optional_bytes), max_size=3).map(tuple)
timestamps = st.integers(-1, 1 << 45)
rows = st.tuples(optional_bytes, optional_bytes, timestamps, headers)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches as a partition may have them: holes, every codec, both kinds of timestamps."""
    offset = draw(st.integers(0, 1 << 40))
    batches = []
    for _ in range(draw(st.integers(1, 5))):
        builder = BatchBuilder(
            offset,
            codec=draw(st.sampled_from(Codec)),
            timestamp_type_log_append=draw(st.booleans()),
            delete_horizon_ms=draw(st.none() | timestamps),
        )
        copies = draw(st.sampled_from((1, 1, 40)))
        for row in draw(st.lists(rows, min_size=1, max_size=8)) * copies:
            offset += draw(st.sampled_from((0, 0, 0, 1, 700))) if copies == 1 else 0
            builder.append(*row, offset=offset)
            offset += 1
        offset += draw(st.sampled_from((0, 0, 3)))
        batches.append(builder.build(last_offset=offset - 1))
        if draw(st.integers(0, 5)) == 0:
            batches.append(empty_batch(offset, offset + 4, timestamp=T))
            offset += 5
    return b"".join(batches)


def decode(
    data: bytes,
    columns: Sequence[str] = COLUMNS,
    *,
    start: int = 0,
    stop: int = END,
    aborted: Sequence[tuple[int, int]] = (),
    batch_bytes: int = 4 << 20,
) -> list[dict[str, Any]]:
    decoder = Decoder("orders", 3, columns, start=start, stop=stop, batch_bytes=batch_bytes)
    return as_rows([*decoder.feed(data, aborted), *decoder.finish()], columns)


def as_rows(found: Sequence[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> list[dict[str, Any]]:
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns), check_metadata=True)
        assert len(batch)
    return [row for batch in found for row in batch.to_pylist()]


def expected(data: bytes, start: int = 0, stop: int = END) -> list[dict[str, Any]]:
    return [
        as_row(record, batch.log_append_time)
        for batch in iter_batches(data)
        if not batch.is_control
        for record in batch.records()
        if start <= record.offset < stop
    ]


def as_row(record: Record, is_append_time: bool) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": int(is_append_time),
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def offsets(data: bytes, **options: Any) -> list[int]:
    return [row["offset"] for row in decode(data, ("offset",), **options)]


# -- the same as the other reader ------------------------------------------------------------------------


@given(logs())
def test_the_columns_are_what_the_reader_of_records_says(data: bytes) -> None:
    assert decode(data) == expected(data)


@given(logs(), st.sampled_from((1, 300, 5000)))
def test_small_arrow_batches_hold_the_same_rows(data: bytes, batch_bytes: int) -> None:
    assert decode(data, batch_bytes=batch_bytes) == expected(data)


@given(logs(), st.sets(st.sampled_from(COLUMNS), min_size=1), st.randoms(use_true_random=False))
def test_any_columns_in_any_order_are_those_of_the_whole(
    data: bytes, names: set[str], rng: random.Random
) -> None:
    columns = rng.sample(sorted(names), len(names))
    assert decode(data, columns) == [{name: row[name] for name in columns} for row in expected(data)]


@given(logs(), st.data())
def test_start_and_stop_may_lie_anywhere(data: bytes, choose: st.DataObject) -> None:
    first = next(iter_batches(data)).base_offset
    last = max(batch.last_offset for batch in iter_batches(data))
    start = choose.draw(st.integers(max(0, first - 2), last + 2))
    stop = choose.draw(st.integers(start, last + 3))
    decoder = Decoder("orders", 3, COLUMNS, start=start, stop=stop)
    assert as_rows([*decoder.feed(data), *decoder.finish()]) == expected(data, start, stop)
    assert decoder.position == max(start, min(stop, last + 1))


@given(logs(), st.data())
def test_bytes_may_be_cut_anywhere_as_fetches_cut_them(data: bytes, choose: st.DataObject) -> None:
    """Each time from the batch that has the decoder's position, as a broker answers."""
    decoder = Decoder("orders", 3, COLUMNS, start=0, stop=END)
    found = []
    while decoder.position <= max(batch.last_offset for batch in iter_batches(data)):
        at = next(
            batch.view.nbytes and data.index(bytes(batch.view))
            for batch in iter_batches(data)
            if batch.last_offset >= decoder.position
        )
        whole = next(iter_batches(data, at)).size
        cut = choose.draw(st.integers(at + whole, len(data)))
        found += decoder.feed(data[at:cut])
    assert as_rows([*found, *decoder.finish()]) == expected(data)


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview])
def test_any_buffer_will_do_and_none_is_kept(of: type) -> None:
    data = build_batch([(b"k", b"v" * 50, T)] * 10)
    buffer = of(data)
    decoder = Decoder("orders", 3, COLUMNS, start=0, stop=END)
    found = decoder.feed(buffer)
    if of is bytearray:
        buffer[:] = bytes(len(buffer))
        buffer.clear()  # refused while anything looks at it
    assert as_rows([*found, *decoder.finish()]) == expected(data)


def test_both_ways_to_walk_give_the_same_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    data = b"".join(
        build_batch([(None, rng.randbytes(rng.choice((0, 50, 60, 90, 3000))), T)] * rng.randint(1, 9))
        for _ in range(1200)
    )
    walked = []
    for cost in (0.0, 1e9):
        monkeypatch.setattr(walk, "_LOCKSTEP_US", cost)
        walked.append(decode(placed(data), ("value", "offset")))
    assert walked[0] == walked[1]
    assert len(walked[0]) == sum(batch.count for batch in iter_batches(data))


def placed(data: bytes) -> bytes:
    """The same batches, one after the other in their offsets too."""
    copy = bytearray(data)
    offset = at = 0
    for batch in iter_batches(data):
        copy[at : at + 8] = offset.to_bytes(8, "big")
        offset += batch.last_offset_delta + 1
        at += batch.size
    return bytes(copy)


# -- sizes ------------------------------------------------------------------------------------------------


def test_many_small_batches_become_few_large_ones() -> None:
    data = placed(build_batch([(None, b"v" * 100, T)] * 100) * 1000)
    decoder = Decoder("orders", 3, COLUMNS, start=0, stop=END, batch_bytes=1 << 20)
    sizes = [batch.nbytes for batch in [*decoder.feed(data), *decoder.finish()]]
    assert 11 <= len(sizes) <= 20
    assert max(sizes) < 1.5 * (1 << 20)


def test_small_answers_are_held_until_there_is_enough() -> None:
    decoder = Decoder("orders", 3, COLUMNS, start=0, stop=END, batch_bytes=100_000)
    found = []
    for number in range(100):
        found += decoder.feed(build_batch([(None, b"v" * 100, T)] * 10, base_offset=10 * number))
        assert decoder.position == 10 * (number + 1)
    assert 1 <= len(found) <= 4
    assert [row["offset"] for row in as_rows([*found, *decoder.finish()])] == list(range(1000))
    assert decoder.finish() == []


def test_rows_without_bytes_are_bounded_in_number() -> None:
    data = build_batch([(None, None, T)] * (ROWS_MAX + 10))
    decoder = Decoder("orders", 3, ("offset",), start=0, stop=END, batch_bytes=1 << 30)
    found = [*decoder.feed(data), *decoder.finish()]
    assert [len(batch) for batch in found] in ([ROWS_MAX, 10], [ROWS_MAX + 10])


def test_a_value_may_be_larger_than_an_arrow_batch() -> None:
    large = random.Random(1).randbytes(3_000_000)
    data = build_batch([(None, b"before", T), (b"k", large, T), (None, b"after", T)])
    assert [row["value"] for row in decode(data, batch_bytes=1 << 20)] == [b"before", large, b"after"]


def test_a_small_batch_that_unpacks_to_much_is_given_out_piece_by_piece() -> None:
    data = build_batch([(None, bytes(1 << 20), T)] * 40, codec=Codec.ZSTD)
    assert len(data) < 100_000
    decoder = Decoder("orders", 3, ("value",), start=0, stop=END)
    stream = decoder.stream(data)
    first = next(stream)
    assert first.nbytes <= 5 << 20
    assert len(first) + sum(len(batch) for batch in stream) == 40


def test_values_are_not_gathered_for_offsets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(*_: object) -> pa.Array:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr("penstock.arrow.decode.binary", gather)
    data = build_batch([(b"k", b"v", T), (None, None, T)])
    assert offsets(data) == [0, 1]


# -- times, nulls, headers ----------------------------------------------------------------------------------


def test_times_before_the_first_record_and_far_from_it_are_read() -> None:
    times = [T, T - 5, 0, -1, T + (1 << 50), 4_000_000_000_000_000]
    data = build_batch([(None, None, time) for time in times])
    decoder = Decoder("orders", 3, ("timestamp",), start=0, stop=END)
    [found] = [*decoder.feed(data), *decoder.finish()]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [time * 1000 for time in times]


def test_append_time_is_one_for_the_whole_batch() -> None:
    builder = BatchBuilder(timestamp_type_log_append=True)
    for time in (T, T + 5, T + 9):
        builder.append(None, b"", time)
    found = decode(builder.build() + build_batch([(None, b"", T)], base_offset=3))
    assert [row["timestampType"] for row in found] == [1, 1, 1, 0]
    assert {row["timestamp"] for row in found[:3]} == {EPOCH + timedelta(milliseconds=T + 9)}


def test_null_and_empty_are_distinguished() -> None:
    data = build_batch([(None, b"", T), (b"", None, T)])
    assert [(row["key"], row["value"]) for row in decode(data)] == [(None, b""), (b"", None)]


def test_header_keys_that_are_not_text_are_mended_as_java_does() -> None:
    data = bytearray(build_batch([(b"k", b"v", T, [("ab", b"x"), ("cd", None)])]))
    data[data.index(b"ab")] = 0xFF
    seal(data)
    [row] = decode(bytes(data))
    assert row["headers"] == [{"key": "\ufffdb", "value": b"x"}, {"key": "cd", "value": None}]


def test_one_record_may_have_very_many_headers() -> None:
    many = [(f"h{number}", b"x") for number in range(20_000)]
    data = build_batch([(None, b"", T, many), *[(None, b"", T, many[:3])] * 100])
    found = decode(data)
    assert len(found[0]["headers"]) == 20_000
    assert found[0]["headers"][-1] == {"key": "h19999", "value": b"x"}
    assert all(len(row["headers"]) == 3 for row in found[1:])


# -- what a consumer does not see -----------------------------------------------------------------------------


def transaction(producer: int, base_offset: int, count: int = 2, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [(None, b"%d" % producer, T)] * count,
        base_offset=base_offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        codec=codec,
    )


def marker(producer: int, offset: int, commit: bool) -> bytes:
    return end_txn_marker(producer, 0, commit, 1, T, base_offset=offset)


def test_control_batches_never_show_and_are_passed() -> None:
    data = transaction(7, 0) + marker(7, 2, True)
    decoder = Decoder("orders", 3, ("offset",), start=0, stop=END)
    assert [row["offset"] for row in as_rows([*decoder.feed(data), *decoder.finish()], ("offset",))] == [0, 1]
    assert decoder.position == 3


def test_records_of_aborted_transactions_are_dropped_up_to_their_marker() -> None:
    """As Kafka's consumer: from the first offset told, until that producer's abort marker."""
    data = (
        transaction(7, 0)  # aborted
        + transaction(8, 2)  # committed, in between
        + build_batch([(None, b"plain", T)], base_offset=4)
        + transaction(7, 5, codec=Codec.ZSTD)  # aborted
        + marker(8, 7, True)
        + marker(7, 8, False)
        + transaction(7, 9)  # the same producer's next one, committed
        + marker(7, 11, True)
        + transaction(7, 12)  # and its third, aborted
        + marker(7, 14, False)
    )
    aborted = [(7, 12), (7, 0)]
    assert offsets(data, aborted=aborted) == [2, 3, 4, 9, 10]
    assert offsets(data) == [0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 13]
    decoder = Decoder("orders", 3, ("offset",), start=0, stop=END)
    decoder.feed(data, aborted)
    assert decoder.position == 15


def test_an_aborted_transaction_from_before_these_bytes_counts() -> None:
    data = transaction(7, 105) + marker(7, 107, False) + transaction(7, 108)
    assert offsets(data, aborted=[(7, 3)]) == [108, 109]


def test_records_without_a_transaction_stay_when_their_producer_aborts() -> None:
    data = build_batch(
        [(None, b"", T)], base_offset=5, producer_id=7, producer_epoch=0, base_sequence=0
    ) + transaction(7, 6)
    assert offsets(data, aborted=[(7, 0)]) == [5]


def test_holes_of_compaction_are_passed() -> None:
    data = (
        build_batch([Record(10, T, None, b"a"), Record(17, T, None, b"b")], base_offset=5)
        + empty_batch(20, 29, timestamp=T)
        + build_batch([(None, b"c", T)], base_offset=40)
    )
    decoder = Decoder("orders", 3, ("offset",), start=3, stop=60)
    found = as_rows([*decoder.feed(data), *decoder.finish()], ("offset",))
    assert [row["offset"] for row in found] == [10, 17, 40]
    assert decoder.position == 41


def test_a_batch_past_the_stop_ends_the_reading() -> None:
    data = build_batch([(None, b"", T)], base_offset=5) + build_batch([(None, b"", T)], base_offset=90)
    decoder = Decoder("orders", 3, ("offset",), start=0, stop=50)
    decoder.feed(data)
    assert decoder.position == 50
    assert decoder.feed(b"anything at all, for it is not looked at any more") == []


def test_offsets_that_do_not_increase_are_passed_over() -> None:
    """Kafka's consumer drops what lies below its position, also inside a batch."""
    first = build_batch([(None, b"a", T), (None, b"b", T)], base_offset=5)
    assert offsets(first + first + build_batch([(None, b"c", T)], base_offset=6)) == [5, 6]
    data = bytearray(build_batch([(None, b"a", T), (None, b"b", T), (None, b"c", T)]))
    at = (
        data.index(b"\x01\x02b\x00") - 1
    )  # the second record's offset delta: before its null key and its value
    assert data[at] == 2
    data[at] = 0
    seal(data)
    assert offsets(bytes(data)) == [0, 2]


def test_no_columns_or_unknown_ones_are_refused() -> None:
    for columns in ((), ("offset", "colour")):
        with pytest.raises(ValueError, match="expected some of key, value"):
            Decoder("orders", 3, columns, start=0, stop=1)


def test_large_records_alone_in_their_batches_are_not_held() -> None:
    """Ten batches of one record of 3 MB each: held together they would be 30 MB."""
    decoder = Decoder("orders", 0, ("offset", "value"), start=0, stop=10)
    counts = []
    for number in range(10):
        batch = build_batch([Record(number, 0, None, b"x" * (3 << 20))], base_offset=number, codec=Codec.ZSTD)
        counts += [len(each) for each in decoder.feed(batch)]
    assert counts == [1] * 10
