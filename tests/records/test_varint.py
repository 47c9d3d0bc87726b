import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.errors import CorruptBatch
from penstock.records.varint import decode_varint, decode_varlong, encode_varint, encode_varlong

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

# From Kafka's ByteUtilsTest, testVarintSerde and testVarlongSerde.
KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (1048575, "feff7f"),
    (1048576, "80808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
KNOWN_LONG = [
    *KNOWN,
    (9223372036854775807, "feffffffffffffffff01"),
    (-9223372036854775808, "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_varints_are_those_of_kafkas_byte_utils(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert decode_varint(data) == (value, len(data))


@pytest.mark.parametrize(("value", "encoded"), KNOWN_LONG)
def test_varlongs_are_those_of_kafkas_byte_utils(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varlong(value) == data
    assert decode_varlong(data) == (value, len(data))


@given(INT32, st.binary(max_size=4), st.binary(max_size=12))
def test_a_varint_is_found_between_a_prefix_and_a_tail(value: int, prefix: bytes, tail: bytes) -> None:
    encoded = encode_varint(value)
    expected = (value, len(prefix) + len(encoded))
    assert decode_varint(prefix + encoded + tail, len(prefix)) == expected
    assert decode_varlong(memoryview(prefix + encoded + tail), len(prefix)) == expected


@given(INT64, st.binary(max_size=12))
def test_a_varlong_comes_back(value: int, tail: bytes) -> None:
    encoded = encode_varlong(value)
    assert len(encoded) <= 10
    assert decode_varlong(encoded + tail) == (value, len(encoded))


@given(INT64)
def test_a_varint_cut_short_is_an_error_at_every_byte(value: int) -> None:
    encoded = encode_varlong(value)
    for end in range(len(encoded)):
        with pytest.raises(CorruptBatch, match="cut short"):
            decode_varlong(encoded[:end])


def test_a_varint_has_at_most_five_bytes_and_a_varlong_ten() -> None:
    with pytest.raises(CorruptBatch, match="past 5 bytes"):
        decode_varint(b"\x80" * 5 + b"\x00")
    with pytest.raises(CorruptBatch, match="past 10 bytes"):
        decode_varlong(b"\x80" * 10 + b"\x00")


def test_a_varint_holds_no_more_bits_than_its_type() -> None:
    with pytest.raises(CorruptBatch, match="more than 32 bits"):
        decode_varint(b"\xff\xff\xff\xff\x1f")
    with pytest.raises(CorruptBatch, match="more than 64 bits"):
        decode_varlong(b"\xff" * 9 + b"\x02")


@given(st.integers())
def test_what_does_not_fit_is_not_written(value: int) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        with pytest.raises(ValueError, match="32 bits"):
            encode_varint(value)
    if not -(1 << 63) <= value < 1 << 63:
        with pytest.raises(ValueError, match="64 bits"):
            encode_varlong(value)
