"""Batches in another codec."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import (
    BatchBuilder,
    Codec,
    CorruptBatch,
    DecompressedTooLarge,
    RecordBatch,
    build_batch,
    recompress,
)
from penstock.records.batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, LENGTH_AT, seal

optional_bytes = st.none() | st.binary(max_size=60)
records = st.lists(
    st.tuples(
        optional_bytes,
        optional_bytes,
        st.integers(-1, 2**41),
        st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=2),
    ),
    min_size=1,
    max_size=20,
)
LEVELS = {Codec.GZIP: 1, Codec.LZ4: 4, Codec.ZSTD: -3}


def without_codec(data: bytes | bytearray | memoryview) -> bytes:
    """A batch's header but for length, CRC and codec."""
    header = bytearray(data[:HEADER_BYTES])
    header[LENGTH_AT : LENGTH_AT + 4] = header[CRC_AT : CRC_AT + 4] = bytes(4)
    header[ATTRIBUTES_AT + 1] &= 0xF8
    return bytes(header)


@given(
    records,
    st.sampled_from(Codec),
    st.sampled_from(Codec),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**62),
    st.integers(-1, 7),
)
def test_everything_but_the_codec_comes_back(
    wanted: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    before: Codec,
    after: Codec,
    is_idempotent: bool,
    is_stamped: bool,
    base_offset: int,
    epoch: int,
) -> None:
    builder = BatchBuilder(
        base_offset,
        codec=before,
        producer_id=77 if is_idempotent else -1,
        producer_epoch=3 if is_idempotent else -1,
        base_sequence=2**31 - 2 if is_idempotent else -1,
        transactional=is_idempotent,
        timestamp_type_log_append=is_stamped,
        leader_epoch=epoch,
    )
    for key, value, timestamp, headers in wanted:
        builder.append(key, value, timestamp, headers)
    data = builder.build()
    original = RecordBatch.parse(data)
    made = RecordBatch.parse(recompress(original, after, LEVELS.get(after)))
    made.check_crc()
    assert made.codec is after
    assert made.size == len(made.view)
    assert without_codec(made.view) == without_codec(data)
    assert list(made.records()) == list(original.records())
    again = recompress(made, before)
    assert without_codec(again) == without_codec(data)
    assert bytes(RecordBatch.parse(again).decompressed()) == bytes(original.decompressed())


def test_attributes_that_mean_nothing_yet_are_kept() -> None:
    data = bytearray(build_batch([(b"k", b"v", 1)]))
    data[ATTRIBUTES_AT] = 0xFF
    seal(data)
    made = RecordBatch.parse(recompress(RecordBatch.parse(data), Codec.ZSTD))
    assert made.attributes == -256 | Codec.ZSTD
    made.check_crc()


def test_the_batch_given_stays_as_it_is() -> None:
    data = build_batch([(b"k", b"v" * 500, 1)])
    made = recompress(RecordBatch.parse(data), Codec.GZIP)
    assert data == build_batch([(b"k", b"v" * 500, 1)])
    assert len(made) < len(data)


def test_the_level_is_obeyed() -> None:
    data = RecordBatch.parse(build_batch([(b"%d" % i, b"%d" % (i * i), 1) for i in range(3000)]))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 19)):
        assert len(recompress(data, codec, low)) > len(recompress(data, codec, high)), codec


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_are_unpacked_within_a_limit(codec: Codec) -> None:
    batch = RecordBatch.parse(build_batch([(None, bytes(1_000_000), 1)], codec=codec))
    with pytest.raises(DecompressedTooLarge):
        recompress(batch, Codec.NONE, max_bytes=999_999)
    assert len(recompress(batch, Codec.NONE, max_bytes=1_000_100)) > 1_000_000


def test_what_is_not_in_its_codec_is_refused() -> None:
    data = bytearray(build_batch([(b"k", b"v", 1)]))
    data[ATTRIBUTES_AT + 1] |= Codec.ZSTD
    seal(data)
    with pytest.raises(CorruptBatch):
        recompress(RecordBatch.parse(data), Codec.NONE)
