"""Columns of values with schema ids, of several schemas; and Protobuf, compared with its own library."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.typed_column import ColumnSpec, TypedColumn, UnknownSchema
from penstock.records.schema_framing import write_frame, write_guid_frame, write_message_indexes
from penstock.registry.formats.protobuf_schema import parse
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema

GUID = "00000000-0000-0000-0000-000000000007"


def avro(*fields: tuple[str, Any, Any]) -> ResolvedSchema:
    made = [
        {"name": name, "type": kind} | ({} if default is ... else {"default": default})
        for name, kind, default in fields
    ]
    return ResolvedSchema(AVRO, json.dumps({"type": "record", "name": "R", "fields": made}))


OLD = avro(("id", "int", ...))
NEW = avro(("id", "long", ...), ("note", ["null", "string"], None))
STORED = {
    1: OLD,
    2: NEW,
    3: ResolvedSchema(JSON, '{"type":"object"}'),
    4: avro(("other", "int", ...)),
    GUID: OLD,
}


def look_up(key: int | str) -> ResolvedSchema:
    if key not in STORED:
        raise UnknownSchema("the registry has no such schema")
    return STORED[key]


def framed(key: int, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(STORED[key].text)), value)
    return write_frame(key) + stream.getvalue()


def test_values_of_several_schemas_are_read_with_one() -> None:
    values = [
        framed(1, {"id": 1}),
        None,
        framed(2, {"id": 2, "note": "n"}),
        b"plain",
        framed(1, {"id": 3}),
        write_frame(9) + b"\2",
        write_frame(3) + b"{}",
        framed(4, {"other": 1}),
        write_guid_frame(GUID) + b"\x08",
        b"\0\0",
        b"",
        framed(2, {"id": 5, "note": None})[:-1],
    ]
    found = TypedColumn(ColumnSpec(NEW, True), look_up).decode(pa.array(values, pa.binary()))
    rows = found.array.to_pylist()
    assert [each and (each["id"], each["note"]) for each in rows] == [
        (1, None), None, (2, "n"), None, (3, None), None, None, None, (4, None), None, None, None,
    ]  # fmt: skip
    assert sorted(found.reasons) == [3, 5, 6, 7, 9, 10, 11]
    assert found.reasons[3] == "it begins with byte 112, expected 0 and a schema id, or 1 and a schema guid"
    assert found.reasons[5] == "schema id 9: the registry has no such schema"
    assert found.reasons[6] == "schema id 3: it is of type JSON, expected AVRO"
    assert found.reasons[7].startswith("schema id 4: field id is not in the writer's schema")
    found.array.validate(full=True)


def test_a_slice_of_a_column_is_decoded() -> None:
    values = pa.array([framed(1, {"id": each}) for each in range(10)], pa.binary()).slice(4, 3)
    found = TypedColumn(ColumnSpec(NEW, True), look_up).decode(values)
    assert [each["id"] for each in found.array.to_pylist()] == [4, 5, 6]


def test_only_nulls() -> None:
    found = TypedColumn(ColumnSpec(NEW, True), look_up).decode(pa.nulls(3, pa.binary()))
    assert found.array.to_pylist() == [None] * 3
    assert not found.reasons


def test_a_registry_that_is_away_is_an_error_and_not_a_reason() -> None:
    def away(_: int | str) -> ResolvedSchema:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        TypedColumn(ColumnSpec(NEW, True), away).decode(pa.array([framed(1, {"id": 1})]))


# -- Protobuf ----------------------------------------------------------------------------------------------

PROTO = ResolvedSchema(
    PROTOBUF,
    """syntax = "proto3"; package shop;
    message Other { string a = 1; }
    message Order {
      int64 id = 1; uint32 u = 2; uint64 big = 3; string name = 4; bytes data = 5; optional int32 maybe = 6;
      repeated string tags = 7; map<string, int32> counts = 8; Kind kind = 9; Line line = 10; repeated Line lines = 11;
      oneof choice { int32 left = 12; string right = 13; }
      enum Kind { NONE = 0; SOME = 1; } message Line { double price = 1; sint32 count = 2; }
    }""",
)
ORDER = GetMessageClass(parse(PROTO).file.message_types_by_name["Order"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LINES = st.fixed_dictionaries(
    {"price": st.floats(allow_nan=False), "count": st.integers(-(2**31), 2**31 - 1)}
)
ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "u": st.integers(0, 2**32 - 1),
        "big": st.integers(0, 2**64 - 1),
        "name": TEXT,
        "data": st.binary(max_size=4),
        "maybe": st.integers(-5, 5),
        "tags": st.lists(TEXT, max_size=3),
        "counts": st.dictionaries(TEXT, st.integers(0, 5), max_size=2),
        "kind": st.integers(0, 1),
        "line": LINES,
        "lines": st.lists(LINES, max_size=2),
        "left": st.integers(0, 1),
    },
)


def fields_of(message: Any) -> dict[str, Any]:
    found = {}
    for each in message.DESCRIPTOR.fields:
        value = getattr(message, each.name)
        if each.name == "counts":
            value = sorted(value.items())
        elif each.is_repeated:
            value = [fields_of(item) if each.message_type else item for item in value]
        elif each.has_presence and not message.HasField(each.name):
            value = None
        elif each.message_type:
            value = fields_of(value)
        elif each.enum_type:
            value = each.enum_type.values_by_number[value].name
        found[each.name] = value
    return found


@given(st.lists(ORDERS, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_messages_are_those_of_protobuf(orders: list[dict[str, Any]]) -> None:
    messages = [ORDER(**each) for each in orders]
    column = TypedColumn(ColumnSpec(PROTO, False, "Order"))
    found = column.decode(pa.array([each.SerializeToString() for each in messages], pa.binary()))
    assert not found.reasons
    rows = found.array.to_pylist()
    for each in rows:
        each["counts"] = sorted(each["counts"])
    assert rows == [fields_of(each) for each in messages]


def test_messages_of_other_types_and_damaged_ones_have_reasons() -> None:
    column = TypedColumn(ColumnSpec(PROTO, True, "shop.Order"), lambda _: PROTO)
    good = write_frame(1) + write_message_indexes([1]) + ORDER(id=5).SerializeToString()
    values = [good, write_frame(1) + b"\0", write_frame(1) + write_message_indexes([7]), good + b"\xff", good]
    found = column.decode(pa.array(values, pa.binary()))
    assert [each and each["id"] for each in found.array.to_pylist()] == [5, None, None, None, 5]
    assert found.reasons[1] == "it is a message shop.Other, expected shop.Order"
    assert found.reasons[2] == "its schema has no message with indexes [7]"
    assert found.reasons[3].startswith("not a message shop.Order: ")


def test_messages_without_columns_are_refused() -> None:
    endless = ResolvedSchema(PROTOBUF, 'syntax = "proto3"; message A { A next = 1; }')
    with pytest.raises(BadSchema, match="contains itself"):
        TypedColumn(ColumnSpec(endless, False))
