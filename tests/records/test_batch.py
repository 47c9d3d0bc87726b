import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import (
    BatchBuilder,
    Codec,
    CorruptBatch,
    Record,
    RecordBatch,
    build_batch,
    empty_batch,
    iter_batches,
    seal,
)
from penstock.records.batch import COUNT_AT, LENGTH_AT, MAGIC_AT, RECORDS_AT, patch
from penstock.records.builder import encode_record
from penstock.records.errors import UnsupportedMagic

T = 1_700_000_000_000

optional_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple)
new_records = st.tuples(optional_bytes, optional_bytes, st.integers(-1, 1 << 42), headers)


@st.composite
def placed_records(draw: st.DrawFn) -> list[Record]:
    """Records with gaps between their offsets."""
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for key, value, timestamp, pairs in draw(st.lists(new_records, min_size=1, max_size=6)):
        records.append(Record(offset, timestamp, key, value, pairs))
        offset += draw(st.integers(1, 5000))
    return records


@given(placed_records(), st.sampled_from(Codec))
def test_records_come_back_with_headers_nulls_and_gaps(records: list[Record], codec: Codec) -> None:
    batch = RecordBatch.parse(build_batch(records, codec=codec))
    assert batch.crc_valid()
    assert list(batch.records()) == records
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.count == len(records)
    assert batch.max_timestamp == max(record.timestamp for record in records)


def test_a_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    data = bytearray(build_batch([(b"k", b"v", T, [("ab", b"x")])]))
    data[data.index(b"ab")] = 0xFF
    seal(data)
    records = list(RecordBatch.parse(data).records())
    assert build_batch(records) == data


def sample(codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [(b"key", b"value" * 20, T, [("h", b"1"), ("n", None)]), (None, None, T + 300), (b"", b"x" * 200, T)],
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
    )


def test_a_header_is_read_in_place_and_shares_the_buffer() -> None:
    buffer = bytearray(b"...." + sample() + b"tail")
    batch = RecordBatch.parse(buffer, 4)
    assert bytes(batch.view) == sample()
    assert batch.payload == batch.view[61:]
    buffer[4 + RECORDS_AT] ^= 1
    assert not batch.crc_valid()
    with pytest.raises(CorruptBatch, match=r"has CRC 0x[0-9a-f]{8}, its bytes give 0x[0-9a-f]{8}"):
        batch.check_crc()


def test_every_single_byte_from_the_attributes_on_is_under_the_crc() -> None:
    data = bytearray(sample())
    for at in range(17, len(data)):
        data[at] ^= 0x40
        assert not RecordBatch.parse(data).crc_valid()
        data[at] ^= 0x40
    RecordBatch.parse(data).check_crc()


def test_offset_and_epoch_are_patched_without_touching_the_crc() -> None:
    data = bytearray(sample())
    patch(data, 1 << 40, 12)
    batch = RecordBatch.parse(data)
    assert (batch.base_offset, batch.leader_epoch) == (1 << 40, 12)
    assert batch.crc_valid()
    assert [record.offset - (1 << 40) for record in batch.records()] == [0, 1, 2]


def test_sealing_makes_length_and_crc_true_again() -> None:
    data = bytearray(sample())
    data[LENGTH_AT : LENGTH_AT + 4] = bytes(4)
    data[30] ^= 1
    seal(data)
    batch = RecordBatch.parse(data)
    assert batch.size == len(data)
    assert batch.crc_valid()


def test_a_batch_cut_anywhere_is_corrupt() -> None:
    data = sample()
    for end in range(len(data)):
        with pytest.raises(CorruptBatch):
            RecordBatch.parse(data[:end])


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_from_before_kafka_0_11_are_named_as_such(magic: int) -> None:
    data = bytearray(sample())
    data[MAGIC_AT] = magic
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}") as caught:
        RecordBatch.parse(data)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    with pytest.raises(UnsupportedMagic):
        RecordBatch.parse(data[:26])  # a message of magic 0 may be shorter than a batch's header


def test_a_header_names_what_it_found_and_where() -> None:
    data = bytearray(b"xx" + sample())
    data[2 + MAGIC_AT] = 3
    with pytest.raises(CorruptBatch, match="the batch has magic 3, expected 2") as caught:
        RecordBatch.parse(data, 2)
    assert (caught.value.position, caught.value.code) == (2, ErrorCode.CORRUPT_MESSAGE)
    with pytest.raises(CorruptBatch, match="takes 61 bytes, 10 are there"):
        RecordBatch.parse(bytes(10))
    for length, message in [
        (48, "length 48, at least 49"),
        (-1, "length -1, at least 49"),
        (5000, "length 5000, "),
    ]:
        data = bytearray(sample())
        struct.pack_into(">i", data, LENGTH_AT, length)
        with pytest.raises(CorruptBatch, match=message):
            RecordBatch.parse(data)


def test_all_whole_batches_of_a_fetch_response_are_found_and_a_partial_one_left_out() -> None:
    """ByteBufferLogInputStream.nextBatch: a fetch response may end inside a batch, which is no error."""
    one, two = sample(), sample(Codec.ZSTD)
    for end in range(len(two)):
        assert [batch.size for batch in iter_batches(one + two[:end])] == [len(one)]
    assert [bytes(batch.view) for batch in iter_batches(b"#" + one + two, 1)] == [one, two]


def test_a_malformed_header_between_batches_is_raised_not_skipped() -> None:
    bad = bytearray(sample())
    bad[MAGIC_AT] = 9
    found = iter_batches(sample() + bad + sample())
    next(found)
    with pytest.raises(CorruptBatch, match="magic 9") as caught:
        next(found)
    assert caught.value.position == len(sample())


@pytest.mark.parametrize("blank", [17, 40, 4096])
def test_zeros_after_the_last_batch_are_a_blank_tail_not_an_old_format(blank: int) -> None:
    """A crash may leave a file longer than what was written to it."""
    with pytest.raises(CorruptBatch, match="length 0, at least 49") as caught:
        list(iter_batches(sample() + bytes(blank)))
    assert type(caught.value) is CorruptBatch


# Records that are malformed under a CRC that is right


def batch_of(payload: bytes, count: int) -> RecordBatch:
    data = bytearray(build_batch([(b"k", b"v", T)])[:RECORDS_AT] + payload)
    struct.pack_into(">i", data, COUNT_AT, count)
    seal(data)
    batch = RecordBatch.parse(data)
    assert batch.crc_valid()
    return batch


GOOD = encode_record(0, 0, b"k", b"v")

MALFORMED = {
    "more records counted than there are": (GOOD, 2, "past the end"),
    "fewer records counted than there are": (GOOD + GOOD, 1, "9 bytes follow"),
    "a tail after the last record": (GOOD + b"\x00", 1, "1 bytes follow"),
    "records where none are counted": (GOOD, 0, "9 bytes follow"),
    "a negative count": (GOOD, -1, "counts -1"),
    "a length past the end": (b"\x7e" + GOOD[1:], 1, "length 63, 8 bytes are left"),
    "a negative length": (b"\x01" + GOOD[1:], 1, "length -1"),
    "a length that stops inside the record": (b"\x0e" + GOOD[1:], 1, "ends at byte 9 by its fields, 8"),
    "a key past the end": (b"\x10\x00\x00\x00\x7ek\x02v\x00", 1, "past the end"),
    "a key of -2 bytes": (b"\x10\x00\x00\x00\x03k\x02v\x00", 1, "key of -2"),
    "a value of -2 bytes": (b"\x10\x00\x00\x00\x02k\x03v\x00", 1, "value of -2"),
    "a negative number of headers": (b"\x10\x00\x00\x00\x02k\x02v\x01", 1, "-1 headers"),
    "more headers than bytes": (b"\x10\x00\x00\x00\x02k\x02v\x7e", 1, "63 headers in 0"),
    "a header key past the end": (b"\x14\x00\x00\x00\x02k\x02v\x02\x7e\x00", 1, "key of 63"),
    "a header key of -1 bytes": (b"\x14\x00\x00\x00\x02k\x02v\x02\x01\x00", 1, "key of -1"),
    "a header value past the end": (b"\x14\x00\x00\x00\x02k\x02v\x02\x00\x7e", 1, "value of 63"),
    "a varint without end": (b"\xff" * 12, 1, "past 5 bytes"),
    "no record at all": (b"", 1, "past the end"),
}


@pytest.mark.parametrize(("payload", "count", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_record_is_reported_by_what_is_wrong_with_it(
    payload: bytes, count: int, message: str
) -> None:
    """DefaultRecord.readFrom refuses most of these, and the batch's iterator those of the count."""
    with pytest.raises(CorruptBatch, match=message):
        list(batch_of(payload, count).records())


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    data = bytearray(build_batch([(b"k", b"v", T), (b"k", b"v", T + 1)]))
    struct.pack_into(">q", data, 27, (1 << 63) - 1)
    seal(data)
    with pytest.raises(CorruptBatch, match="beyond 64 bits"):
        list(RecordBatch.parse(data).records())


def test_an_unknown_codec_is_corrupt() -> None:
    data = bytearray(sample())
    data[22] |= 5
    with pytest.raises(CorruptBatch, match="codec 5; codecs are 0 to 4"):
        list(RecordBatch.parse(data).records())


def read_all(data: bytes | bytearray) -> None:
    for batch in iter_batches(data):
        list(batch.records(1 << 20))


@pytest.mark.parametrize("codec", Codec)
def test_records_cut_at_any_byte_under_a_right_crc_are_corrupt(codec: Codec) -> None:
    data = sample(codec)
    for end in range(RECORDS_AT, len(data)):
        cut = bytearray(data[:end])
        seal(cut)
        with pytest.raises(CorruptBatch):
            read_all(cut)


@settings(max_examples=300)
@given(st.sampled_from(Codec), st.data())
def test_whatever_the_bytes_only_a_kafka_error_escapes(codec: Codec, data: st.DataObject) -> None:
    batch = bytearray(sample(codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        batch += data.draw(st.binary(max_size=70))
    try:
        read_all(batch)
    except KafkaError as error:
        assert str(error)  # noqa: PT017 (that it is a KafkaError is the point)


@given(st.binary(max_size=200))
def test_noise_is_never_more_than_a_kafka_error(noise: bytes) -> None:
    with suppress(KafkaError):
        read_all(noise)
    for codec in Codec:
        payload = bytearray(sample(codec)[:RECORDS_AT] + noise)
        seal(payload)
        with suppress(KafkaError):
            read_all(payload)


# The builder's own rules


def test_offsets_increase_in_a_batch() -> None:
    builder = BatchBuilder(10)
    with pytest.raises(ValueError, match="offset 9 comes after 9"):
        builder.append(b"k", b"v", T, offset=9)
    builder.append(b"k", b"v", T, offset=12)
    with pytest.raises(ValueError, match="offset 12 comes after 12"):
        builder.append(b"k", b"v", T, offset=12)
    with pytest.raises(ValueError, match="past the last offset 11"):
        builder.build(last_offset=11)
    builder.append(b"k", b"v", T)
    assert (len(builder), builder.next_offset) == (2, 14)


def test_a_batch_spans_at_most_two_to_the_31_offsets() -> None:
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="32 bits"):
        builder.append(b"k", b"v", T, offset=1 << 31)
    with pytest.raises(ValueError, match="2\\^31"):
        empty_batch(0, 1 << 31, timestamp=T)


def test_a_refused_record_leaves_the_builder_as_it_was() -> None:
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="negative"):
        builder.append(b"k", b"v", -2)
    with pytest.raises(ValueError, match="32 bits"):
        builder.append(b"k", b"v", T + 9, offset=1 << 31)
    builder.append(b"k", b"v", T)
    assert builder.build() == build_batch([(b"k", b"v", T)])


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_the_builder_knows_how_large_the_records_are() -> None:
    builder = BatchBuilder()
    for size in (3, 2000):
        builder.append(b"k" * size, memoryview(b"v" * size), T)
    assert RECORDS_AT + builder.records_bytes == len(builder.build())
