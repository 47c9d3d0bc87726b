"""Bytes that lie: every one of them ends in records or in CorruptRecords, and agrees with the reader of records."""

import pickle
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.columns import TIMESTAMP_MS_MAX
from penstock.arrow.decode import CorruptRecords, Decoder
from penstock.arrow.schema import COLUMNS
from penstock.records import Codec, CorruptBatch, build_batch, iter_batches, seal
from penstock.records.batch import (
    ATTRIBUTES_AT,
    COUNT_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORDS_AT,
)

T = 1_700_000_000_000
ROWS = [
    (b"key", b"value" * 30, T, [("name", b"x"), ("other", None)]),
    (None, b"v", T + 5),
    (b"k", None, T - 1, [("", b"")]),
]


def decode(data: bytes, columns: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    decoder = Decoder("orders", 3, columns, start=0, stop=1 << 62)
    found = [*decoder.feed(data), *decoder.finish()]
    for batch in found:
        batch.validate(full=True)
    return [
        row for batch in found for row in batch.select([c for c in columns if c != "timestamp"]).to_pylist()
    ]


def fault(data: bytes, columns: tuple[str, ...] = COLUMNS) -> CorruptRecords:
    with pytest.raises(CorruptRecords) as caught:
        decode(data, columns)
    return caught.value


def changed(data: bytes, at: int, new: bytes, *, remake_crc: bool = True) -> bytes:
    copy = bytearray(data)
    copy[at : at + len(new)] = new
    if remake_crc:
        seal(copy)
    return bytes(copy)


@given(
    st.sampled_from(Codec),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=4),
    st.sampled_from((1, 20)),
    st.booleans(),
)
@settings(max_examples=400)
def test_flipped_bytes_give_records_or_a_fault_and_the_same_as_the_other_reader(
    codec: Codec, flips: list[tuple[int, int]], copies: int, in_header: bool
) -> None:
    data = bytearray(build_batch(ROWS * copies, codec=codec, base_offset=100))
    begin, end = (LENGTH_AT + 4, RECORDS_AT) if in_header else (RECORDS_AT, len(data))
    for at, mask in flips:
        data[begin + at % (end - begin)] ^= mask
    seal(data)
    try:
        records = [each for batch in iter_batches(data) if not batch.is_control for each in batch.records()]
    except CorruptBatch:
        # Unless what is wrong is not looked at: the headers of a record that does not show because its offset goes
        # back, or a time of its own where the append's counts.
        with suppress(CorruptRecords):
            rows = decode(bytes(data))
            header = next(iter_batches(data))
            assert len(rows) < header.count or header.log_append_time
        return
    if next(iter_batches(data)).last_offset_delta < 0:
        assert "the batch has offsets" in fault(bytes(data)).why
        return
    columns = COLUMNS
    if any(abs(each.timestamp) > TIMESTAMP_MS_MAX for each in records):
        assert "microseconds" in fault(bytes(data)).why
        columns = tuple(each for each in COLUMNS if each != "timestamp")
    rows = decode(bytes(data), columns)
    seen = {row["offset"]: row for row in rows}
    highest = -1
    for record in records:
        if record.offset > highest:
            highest = record.offset
            row = seen.pop(record.offset)
            assert (row["key"], row["value"]) == (record.key, record.value)
            assert len(row["headers"] or ()) == len(record.headers)
    assert not seen


@given(st.binary(max_size=200), st.integers(-3, 40), st.sampled_from(Codec))
@settings(max_examples=300)
def test_any_bytes_for_records_give_records_or_a_fault(payload: bytes, count: int, codec: Codec) -> None:
    data = bytearray(build_batch([(None, b"", T)])[:RECORDS_AT] + payload)
    data[ATTRIBUTES_AT + 1] = codec
    data[COUNT_AT : COUNT_AT + 4] = count.to_bytes(4, "big", signed=True)
    seal(data)
    for columns in (COLUMNS, ("offset",), ("key",), ("value", "timestamp")):
        with suppress(CorruptRecords):
            decode(bytes(data), columns)


@given(st.binary(max_size=300))
def test_any_bytes_at_all_give_nothing_or_a_fault(data: bytes) -> None:
    with suppress(CorruptRecords):
        assert decode(data) == []


def test_in_lockstep_a_fault_is_found_in_the_batch_that_has_it() -> None:
    data = bytearray()
    for number in range(300):
        batch = bytearray(build_batch([(None, b"v" * 50, T)] * 3, base_offset=3 * number))
        if number == 222:
            batch[RECORDS_AT] ^= 0x02  # a length that leads one byte too far
            seal(batch)
        data += batch
    error = fault(bytes(data))
    assert error.offset == 666
    assert "record" in error.why


def test_the_sentence_names_topic_partition_offset_and_reason() -> None:
    data = changed(build_batch(ROWS, base_offset=42), 70, b"\xff", remake_crc=False)
    error = fault(data)
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 42)
    assert str(error).startswith(
        "partition 3 of topic orders has corrupt records at offset 42: the batch has CRC"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.offset == 42


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_say_that_they_are_not_read(magic: int) -> None:
    data = bytes(8) + (30).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(25)
    for piece in (data, data[:20]):
        assert f"a message set of magic {magic}, from before Kafka 0.11" in fault(piece).why


@pytest.mark.parametrize(
    ("at", "new", "why"),
    [
        (MAGIC_AT, b"\x03", "magic 3, expected 2"),
        (LENGTH_AT, (20).to_bytes(4, "big"), "length 20, expected at least 49"),
        (LENGTH_AT, b"\xff\xff\xff\xff", "length -1, expected at least 49"),
        (0, b"\xff" * 8, "offsets -1"),
        (LAST_OFFSET_DELTA_AT, b"\xff" * 4, "offsets 0 to -1"),
        (ATTRIBUTES_AT, b"\x00\x07", "codec 7"),
        (COUNT_AT, b"\x7f\xff\xff\xff", "record 3 of the batch at offset 0"),
        (COUNT_AT, b"\x00\x00\x00\x02", "counts 2 records"),
        (COUNT_AT, b"\x00\x00\x00\x00", "counts 0 records"),
        (COUNT_AT, b"\xff\xff\xff\xff", "counts -1 records"),
    ],
)
def test_a_header_that_lies_is_found_out(at: int, new: bytes, why: str) -> None:
    data = bytearray(changed(build_batch(ROWS), at, new))
    if at == LENGTH_AT:
        data[at : at + 4] = new
    assert why in fault(bytes(data)).why


def test_a_batch_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.arrow.framing.DECOMPRESSED_BYTES_MAX", 100_000)
    data = build_batch([(None, bytes(200_000), T)], codec=Codec.ZSTD)
    assert "more than the 100000 bytes allowed" in fault(data).why


def test_a_time_beyond_sparks_microseconds_hurts_only_who_wants_times() -> None:
    data = build_batch([(None, b"a", T), (None, b"b", TIMESTAMP_MS_MAX + 1)])
    assert "does not fit Spark's microseconds" in fault(data).why
    assert [row["value"] for row in decode(data, ("value", "offset"))] == [b"a", b"b"]
    assert len(decode(build_batch([(None, b"a", TIMESTAMP_MS_MAX)]))) == 1


def test_random_lengths_inside_records_never_read_outside_of_the_bytes() -> None:
    """Every position in the records, set to the longest lengths there are."""
    rng = random.Random(9)
    data = build_batch(ROWS)
    for at in range(RECORDS_AT, len(data)):
        for new in (
            b"\xfe\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\x0f",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ):
            lying = changed(data, at, new[: len(data) - at])
            with suppress(CorruptRecords):
                decode(lying, tuple(rng.sample(COLUMNS, 3)))
