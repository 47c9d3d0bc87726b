"""The frame of schema ids, compared with confluent-kafka's own."""

import io

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import schema_framing as framing

GUID = "89791762-2336-4186-9674-299b90a802e2"


@given(st.integers(0, 2**32 - 1), st.binary(max_size=20))
def test_an_id_is_read_as_confluents_serializers_write_it(schema_id: int, payload: bytes) -> None:
    written = SchemaId("AVRO", schema_id).id_to_bytes()
    assert framing.write_frame(schema_id) == written
    frame = framing.parse_frame(memoryview(written + payload))
    assert frame == (schema_id, None, 5)
    assert (written + payload)[frame.payload_at :] == payload


def test_a_guid_is_read_as_confluents_serializers_write_it() -> None:
    written = SchemaId("AVRO", guid=GUID).guid_to_bytes()
    assert framing.write_guid_frame(GUID) == written
    assert framing.parse_frame(written + b"x") == (None, GUID, 17)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.binary(max_size=8))
def test_message_indexes_are_read_as_confluents_serializers_write_them(
    indexes: list[int], payload: bytes
) -> None:
    written = SchemaId("PROTOBUF", 7, message_indexes=indexes).id_to_bytes()
    assert framing.write_frame(7) + framing.write_message_indexes(indexes) == written
    assert framing.parse_message_indexes(written + payload) == (tuple(indexes), len(written))
    theirs = SchemaId("PROTOBUF")
    theirs.from_bytes(io.BytesIO(written))
    assert theirs.message_indexes == indexes


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"{", "begins with byte 123"),
        (b"\0\0\0\1", "has 4 bytes, expected at least 5"),
        (b"\1" * 16, "has 16 bytes, expected at least 17"),
    ],
)
def test_what_has_no_frame_is_told(data: bytes, why: str) -> None:
    with pytest.raises(framing.NotFramed, match=why):
        framing.parse_frame(data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x01", b"\x81\x01", b"\x04\x00", b"\x02\x01", b"\xff" * 9])
def test_bad_message_indexes_are_told(data: bytes) -> None:
    with pytest.raises(framing.NotFramed):
        framing.parse_message_indexes(framing.write_frame(1) + data)
