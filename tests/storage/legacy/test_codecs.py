"""One record of each format, against bytes written by hand."""

import random
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.legacy.old_files import encode, kafka_jr_record, minikafka_record

from penstock.base.ids import TopicPartition
from penstock.records import Record
from penstock.storage.legacy.codec import BadRecord
from penstock.storage.legacy.kafka_jr import IDEMPOTENCY_HEADER
from penstock.storage.legacy.layout import FORMATS

ORDERS = TopicPartition("orders", 2)
MINIKAFKA = FORMATS["minikafka"].codec(ORDERS)
KAFKA_JR = FORMATS["kafka-jr"].codec(ORDERS)

MINIKAFKA_BYTES = bytes.fromhex(
    "00000023"  # 35 bytes follow
    "3610a686"  # CRC-32 of "hello"
    "0000000000000007"  # offset
    "0000018bcfe56800"  # 2023-11-14T22:13:20Z
    "00000002 6b31"  # "k1"
    "00000005 68656c6c6f"  # "hello"
)
KAFKA_JR_BYTES = bytes.fromhex(
    "00000038"  # 56 bytes follow
    "00000006 6f7264657273"  # "orders"
    "00000002"  # partition
    "0000000000000007"  # offset
    "0000018bcfe56800"
    "00000002 6b31"
    "00000005 68656c6c6f"
    "00000007 6f6e63652d3031"  # "once-01"
)


def test_minikafka_record_reads_as_described() -> None:
    assert MINIKAFKA.decode(MINIKAFKA_BYTES, 0, len(MINIKAFKA_BYTES)) == Record(
        7, 1_700_000_000_000, b"k1", b"hello"
    )


def test_kafka_jr_record_reads_as_described_and_its_idempotency_key_is_a_header() -> None:
    assert KAFKA_JR.decode(KAFKA_JR_BYTES, 0, len(KAFKA_JR_BYTES)) == Record(
        7, 1_700_000_000_000, b"k1", b"hello", (("idempotency-key", b"once-01"),)
    )


def test_records_are_written_as_described() -> None:
    record = Record(7, 1_700_000_000_000, b"k1", b"hello", ((IDEMPOTENCY_HEADER, b"once-01"),))
    assert MINIKAFKA.encode(record) == (MINIKAFKA_BYTES, 1)
    assert KAFKA_JR.encode(record) == (KAFKA_JR_BYTES, 0)


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("name", FORMATS)
def test_nothing_and_emptiness_are_distinguished(name: str, key: bytes | None, value: bytes | None) -> None:
    codec = FORMATS[name].codec(ORDERS)
    record = Record(1, -1, key, value)
    data = encode(name, ORDERS, record)
    assert codec.decode(data, 0, len(data)) == record
    assert codec.encode(record).data == data


@pytest.mark.parametrize("key", [None, b""])
def test_an_empty_idempotency_key_is_none(key: bytes | None) -> None:
    data = kafka_jr_record("orders", 2, 0, 0, b"k", b"v", key)
    assert KAFKA_JR.decode(data, 0, len(data)).headers == ()


def test_of_several_idempotency_headers_the_last_that_says_something_is_kept() -> None:
    headers = (
        (IDEMPOTENCY_HEADER, b"a"),
        ("trace", b"x"),
        (IDEMPOTENCY_HEADER, b"b"),
        (IDEMPOTENCY_HEADER, b""),
    )
    encoded = KAFKA_JR.encode(Record(0, 0, None, b"v", headers))
    assert KAFKA_JR.decode(encoded.data, 0, len(encoded.data)).headers == ((IDEMPOTENCY_HEADER, b"b"),)
    assert encoded.headers_left == 3


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (4, b"\0\0\0\0", "CRC 0x00000000, expected 0x3610a686"),
        (8, b"\xff", "offset -72057594037927929, expected 0 or more"),
        (16, b"\xff", "expected -1"),
        (24, b"\x7f\xff\xff\xff", "key length 2147483647, expected -1 to 7"),
        (24, b"\xff\xff\xff\xfe", "key length -2, expected -1 to 7"),
        (30, b"\0\0\0\4", "payload length 4, expected 5"),
        (30, b"\xff\xff\xff\xff", "payload length -1, expected 5"),
    ],
)
def test_minikafka_says_what_is_wrong(position: int, value: bytes, problem: str) -> None:
    data = bytearray(MINIKAFKA_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(BadRecord, match=problem):
        MINIKAFKA.decode(bytes(data), 0, len(data))


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (4, b"\0\0\0\7", "topic of 7 bytes, expected b'orders'"),
        (8, b"O", "topic b'Orders', expected b'orders'"),
        (14, b"\0\0\0\3", "partition 3, expected 2"),
        (34, b"\x7f", "key length 2130706434, expected -1 to 14"),
        (40, b"\0\0\0\x7f", "value length 127, expected -1 to 12"),
        (49, b"\0\0\0\6", "idempotency key length 6, expected 7"),
    ],
)
def test_kafka_jr_says_what_is_wrong(position: int, value: bytes, problem: str) -> None:
    data = bytearray(KAFKA_JR_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(BadRecord, match=problem):
        KAFKA_JR.decode(bytes(data), 0, len(data))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_bad_one(name: str, data: bytes) -> None:
    """Nothing but `BadRecord` is raised, once there are as many bytes as the shortest record has."""
    codec = FORMATS[name].codec(ORDERS)
    padded = data + bytes(codec.length_min + 4)
    with suppress(BadRecord):
        codec.decode(padded, 0, len(padded))


@pytest.mark.parametrize("name", FORMATS)
def test_every_record_is_a_candidate(name: str) -> None:
    """The search after damage must not step over a sound record, whatever bytes stand before it."""
    rng = random.Random(3)
    codec = FORMATS[name].codec(ORDERS)
    for _ in range(300):
        key = rng.choice([None, b"", rng.randbytes(rng.randrange(300))])
        value = rng.choice([None, b"", rng.randbytes(rng.randrange(70_000))])
        junk = rng.choice([bytes(rng.randrange(40)), rng.randbytes(rng.randrange(40))])
        record = Record(rng.randrange(2**62), rng.choice([-1, rng.randrange(2**50)]), key, value)
        assert len(junk) in codec.candidates(junk + encode(name, ORDERS, record))


def test_golden_bytes_agree_with_the_helpers_of_these_tests() -> None:
    assert crc32(b"hello") == 0x3610A686
    assert minikafka_record(7, 1_700_000_000_000, b"k1", b"hello") == MINIKAFKA_BYTES
    assert kafka_jr_record("orders", 2, 7, 1_700_000_000_000, b"k1", b"hello", b"once-01") == KAFKA_JR_BYTES
