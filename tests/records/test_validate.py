"""What producers may send: each fault with its code, and the order of faults.

The order is that of Kafka 4.1's UnifiedLog.analyzeAndValidateRecords and LogValidator.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import (
    Codec,
    InvalidBatch,
    ProduceRules,
    RecordBatch,
    build_batch,
    compress,
    end_txn_marker,
    seal,
    validate_produced,
)
from penstock.records.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    COUNT_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORDS_AT,
    patch,
)
from penstock.records.builder import encode_record
from penstock.records.validate import RECORD_ERRORS_MAX

NOW = 1_700_000_000_000
HOUR = 3_600_000
RULES = ProduceRules(max_message_bytes=1000, timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)
FULL = replace(RULES, check_records=True)


def good(codec: Codec = Codec.NONE) -> bytearray:
    """Three records of an idempotent producer."""
    records = [(b"a", b"1", NOW - 10), (b"b", b"2", NOW), (b"c", b"3", NOW - 5)]
    return bytearray(build_batch(records, codec=codec, producer_id=9, producer_epoch=0, base_sequence=0))


def check(data: bytes | bytearray, rules: ProduceRules = RULES) -> None:
    validate_produced(RecordBatch.parse(data), rules, NOW)


def refused(data: bytes | bytearray, rules: ProduceRules = RULES) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        check(data, rules)
    return caught.value


def attributes(data: bytearray, bits: int) -> None:
    data[ATTRIBUTES_AT + 1] |= bits


def store(field: str, at: int, *values: int) -> Callable[[bytearray], None]:
    def write(data: bytearray) -> None:
        struct.pack_into(f">{field}", data, at, *values)

    return write


Spoil = Callable[[bytearray], None]

# In Kafka's order: each is found before all that follow. A spoiled batch is sealed again, so that its
# CRC is right; where the CRC is the fault, spoiled() sets it last.
FAULTS: list[tuple[str, Spoil, ErrorCode, str]] = [
    (
        "base offset",
        lambda data: patch(data, 5, -1),
        ErrorCode.INVALID_RECORD,
        "base offset 5, a producer's is 0",
    ),
    (
        "size",
        lambda data: data.extend(bytes(2000)),
        ErrorCode.MESSAGE_TOO_LARGE,
        "at most 1000 are allowed",
    ),
    ("crc", lambda _: None, ErrorCode.CORRUPT_MESSAGE, "has CRC 0x00000001, its bytes give 0x"),
    (
        "codec",
        lambda data: attributes(data, 0x07),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "codec 7, codecs are 0 to 4",
    ),
    (
        "offset range",
        store("i", LAST_OFFSET_DELTA_AT, -1),
        ErrorCode.INVALID_RECORD,
        "last offset delta -1, at least 0",
    ),
    ("count", store("i", COUNT_AT, 0), ErrorCode.INVALID_RECORD, "counts 0 records, at least 1"),
    ("count and range", store("i", COUNT_AT, 7), ErrorCode.INVALID_RECORD, "counts 7 records for 3 offsets"),
    ("control", lambda data: attributes(data, 0x20), ErrorCode.INVALID_RECORD, "control bit"),
    ("delete horizon", lambda data: attributes(data, 0x40), ErrorCode.INVALID_RECORD, "delete horizon bit"),
    (
        "sequence",
        store("i", BASE_SEQUENCE_AT, -1),
        ErrorCode.INVALID_RECORD,
        "producer 9 has base sequence -1",
    ),
    (
        "producer epoch",
        store("h", PRODUCER_EPOCH_AT, -1),
        ErrorCode.INVALID_RECORD,
        "producer 9 has producer epoch -1",
    ),
    (
        "timestamp type",
        lambda data: attributes(data, 0x08),
        ErrorCode.INVALID_TIMESTAMP,
        "type LogAppendTime",
    ),
    (
        "max timestamp",
        store("q", MAX_TIMESTAMP_AT, NOW + HOUR + 1),
        ErrorCode.INVALID_TIMESTAMP,
        "3600001 ms in the future, at most 3600000",
    ),
]


def spoiled(*faults: tuple[str, Spoil, ErrorCode, str]) -> bytearray:
    data = good()
    for _, spoil, _, _ in faults:
        spoil(data)
    seal(data)
    if any(name == "crc" for name, *_ in faults):
        struct.pack_into(">I", data, CRC_AT, 1)
    return data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "rules", [RULES, FULL, replace(RULES, compacted=True)], ids=["header", "full", "compacted"]
)
def test_a_sound_batch_is_accepted(codec: Codec, rules: ProduceRules) -> None:
    check(good(codec), rules)


@pytest.mark.parametrize("fault", FAULTS, ids=[name for name, *_ in FAULTS])
def test_each_fault_has_its_code_and_names_what_was_found(fault: tuple[str, Spoil, ErrorCode, str]) -> None:
    error = refused(spoiled(fault))
    assert error.code is fault[2]
    assert fault[3] in str(error)
    assert error.record_errors == []


def test_of_two_faults_the_one_that_kafka_finds_first_is_reported() -> None:
    overwrites = {("count", "count and range")}  # two values of one field
    for first, second in pairwise(FAULTS):
        if (first[0], second[0]) not in overwrites:
            assert first[3] in str(refused(spoiled(second, first)))
    for later in range(1, len(FAULTS)):
        assert FAULTS[0][3] in str(refused(spoiled(FAULTS[later], FAULTS[0])))


def test_a_transactional_batch_needs_a_producer_id() -> None:
    """MemoryRecordsBuilder refuses to write one."""
    data = good()
    attributes(data, 0x10)
    store("q", PRODUCER_ID_AT, -1)(data)
    seal(data)
    assert "transactional and has producer id -1" in str(refused(data))


def test_a_batch_without_producer_id_needs_no_sequence() -> None:
    check(build_batch([(None, b"v", NOW)]))


def test_the_largest_batch_allowed_is_allowed() -> None:
    check(good(), replace(RULES, max_message_bytes=len(good())))
    refused(good(), replace(RULES, max_message_bytes=len(good()) - 1))


def test_coordinators_may_write_markers_offsets_and_batches_without_sequence() -> None:
    """AppendOrigin.COORDINATOR and RAFT_LEADER skip what LogValidator asks of clients."""
    marker = end_txn_marker(9, 0, True, 1, NOW, base_offset=500)
    refused(marker)
    internal = replace(FULL, allow_control=True)
    check(marker, internal)
    check(build_batch([(b"k", b"v", NOW)], producer_id=9, producer_epoch=0, transactional=True), internal)


def test_unused_attribute_bits_are_let_through() -> None:
    data = good()
    data[ATTRIBUTES_AT] = 0xFF
    seal(data)
    check(data, FULL)


@pytest.mark.parametrize(
    ("timestamp", "accepted"),
    [(NOW - HOUR, True), (NOW - HOUR - 1, False), (NOW + HOUR, True), (NOW + HOUR + 1, False), (-1, True)],
)
@pytest.mark.parametrize("rules", [RULES, FULL], ids=["header", "full"])
def test_timestamps_keep_within_their_bounds(timestamp: int, accepted: bool, rules: ProduceRules) -> None:
    """KIP-937: message.timestamp.before.max.ms and message.timestamp.after.max.ms."""
    data = build_batch([(b"k", b"v", timestamp)])
    if accepted:
        check(data, rules)
    else:
        assert refused(data, rules).code is ErrorCode.INVALID_TIMESTAMP
        check(data, replace(rules, log_append_time=True))


# Faults of single records


def test_in_header_mode_nothing_is_decompressed() -> None:
    data = good(Codec.ZSTD)
    data[RECORDS_AT:] = b"not zstd"
    seal(data)
    check(data)
    error = refused(data, FULL)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "not zstd data" in str(error)


def test_a_compacted_topic_wants_a_key_in_every_record() -> None:
    data = build_batch([(b"a", b"1", NOW), (None, b"2", NOW), (b"c", b"3", NOW), (None, b"4", NOW)])
    check(data, FULL)
    error = refused(data, replace(RULES, compacted=True))
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert "2 of 4 records" in str(error)
    assert all("no key" in why for _, why in error.record_errors)


def test_one_bad_timestamp_makes_it_a_matter_of_timestamps() -> None:
    """LogValidator.processRecordErrors."""
    data = build_batch([(None, b"1", NOW), (b"b", b"2", NOW - 2 * HOUR), (b"c", b"3", NOW)])
    error = refused(data, replace(FULL, compacted=True))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_a_record_without_key_and_time_is_told_of_its_key() -> None:
    """LogValidator.validateRecord looks at the key first."""
    error = refused(build_batch([(None, b"1", 0)]), replace(FULL, compacted=True))
    assert (error.code, error.record_errors) == (
        ErrorCode.INVALID_RECORD,
        [(0, "it has no key, and the topic is compacted")],
    )


@pytest.mark.parametrize("codec", Codec)
def test_offsets_inside_a_batch_run_from_zero_without_gaps(codec: Codec) -> None:
    payload = b"".join(encode_record(delta, 0, b"k", b"v") for delta in (0, 2, 1))
    data = good(codec)
    data[RECORDS_AT:] = compress(codec, payload)
    seal(data)
    error = refused(data, FULL)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [(1, "it has offset 2, 1 expected"), (2, "it has offset 1, 2 expected")]


def test_the_max_timestamp_is_what_the_records_say() -> None:
    data = good()
    store("q", MAX_TIMESTAMP_AT, NOW + 1)(data)
    seal(data)
    check(data)
    error = refused(data, FULL)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert f"max timestamp {NOW + 1}, its records give {NOW}" in str(error)
    check(data, replace(FULL, log_append_time=True))


def test_records_that_do_not_decode_are_invalid_not_corrupt() -> None:
    """Kafka's InvalidRecordException; the CRC was right, so sending the same again cannot help."""
    data = good()
    data += b"\x00"
    seal(data)
    error = refused(data, FULL)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "1 bytes follow" in str(error)


def test_a_batch_that_unpacks_to_too_much_is_too_large() -> None:
    data = build_batch([(b"k", bytes(500_000), NOW)], codec=Codec.ZSTD)
    check(data)
    check(data, FULL)
    error = refused(data, replace(FULL, max_decompressed_bytes=100_000))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_no_more_records_are_named_than_an_answer_should_hold() -> None:
    data = build_batch([(None, None, NOW)] * (RECORD_ERRORS_MAX + 50))
    error = refused(data, replace(RULES, compacted=True, max_message_bytes=1 << 20))
    assert len(error.record_errors) == RECORD_ERRORS_MAX
    assert f"{RECORD_ERRORS_MAX} or more of {RECORD_ERRORS_MAX + 50} records" in str(error)


def all_rules() -> Iterator[ProduceRules]:
    for full in (False, True):
        for internal in (False, True):
            yield replace(RULES, check_records=full, compacted=full, allow_control=internal)


@given(st.sampled_from(Codec), st.data())
def test_whatever_is_sent_only_a_kafka_error_escapes(codec: Codec, data: st.DataObject) -> None:
    batch = good(codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        seal(batch)
    for rules in all_rules():
        try:
            check(batch, rules)
        except KafkaError as error:
            assert error.code is not ErrorCode.UNKNOWN_SERVER_ERROR  # noqa: PT017 (some batches pass)
