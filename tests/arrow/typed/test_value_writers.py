"""What is written as Avro or JSON is read back the same, and by fastavro."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from penstock.arrow.typed.derived_schemas import avro_schema, json_schema
from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.typed_column import ColumnSpec, TypedColumn
from penstock.arrow.typed.value_writers import NotEncodable, value_writer
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema

KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("line", pa.struct([("x", pa.float32())])),
    ]
)
ROW = {
    "id": 2**40,
    "small": -3,
    "name": "é",
    "price": 1.5,
    "paid": True,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(1969, 12, 31),
    "tags": ["a", None],
    "counts": [("k", 1), ("n", None)],
    "line": {"x": 0.5},
}
ROWS = pa.array([ROW, None, dict.fromkeys(ROW)], KIND)


def test_avro_is_read_back() -> None:
    schema = ResolvedSchema(AVRO, avro_schema(KIND, "orders-value"))
    written = value_writer(schema, 7)(ROWS)
    assert written[0].as_py()[:5] == b"\0\0\0\0\x07"
    found = TypedColumn(ColumnSpec(schema, True), lambda _: schema).decode(written)
    assert not found.reasons
    assert found.array.type == KIND
    assert found.array.to_pylist() == ROWS.to_pylist()
    by_fastavro = fastavro.schemaless_reader(
        io.BytesIO(written[0].as_py()[5:]), fastavro.parse_schema(json.loads(schema.text)), None
    )
    assert by_fastavro == ROW | {"counts": {"k": 1, "n": None}}


def test_decimals_and_bytes_are_read_back() -> None:
    kind = pa.struct([("sum", pa.decimal128(9, 2)), ("data", pa.binary())])
    rows = pa.array([{"sum": Decimal("-1.25"), "data": b"\xff"}], kind)
    schema = ResolvedSchema(AVRO, avro_schema(kind, "r"))
    found = TypedColumn(ColumnSpec(schema, True), lambda _: schema).decode(value_writer(schema, 1)(rows))
    assert found.array == rows


def test_json_is_read_back() -> None:
    names = ["id", "name", "price", "paid", "tags", "counts", "line"]
    kind = pa.struct([KIND.field(name) for name in names if name != "line"])
    rows = pa.array([{name: ROW[name] for name in names}, None], kind)
    schema = ResolvedSchema(JSON, json_schema(kind, "orders-value"))
    found = TypedColumn(ColumnSpec(schema, True), lambda _: schema).decode(value_writer(schema, 1)(rows))
    assert not found.reasons
    assert found.array.to_pylist() == rows.to_pylist()


def test_a_given_schema_decides() -> None:
    """Fields that the column lacks have their default; null where it is not allowed is an error."""
    text = """{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"n","type":"int","default":5},
        {"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}]}"""
    schema = ResolvedSchema(AVRO, text)
    kind = pa.struct([("id", pa.int32()), ("t", KIND.field("at").type), ("more", pa.string())])
    write = value_writer(schema, 1)
    written = write(pa.array([{"id": 1, "t": ROW["at"], "more": "x"}], kind))
    found = TypedColumn(ColumnSpec(schema, True), lambda _: schema).decode(written)
    assert found.array.to_pylist() == [{"id": 1, "n": 5, "t": ROW["at"].replace(microsecond=678000)}]
    with pytest.raises(NotEncodable, match="/id is null, which its Avro schema does not allow"):
        write(pa.array([{"id": None, "t": ROW["at"]}], kind))
    with pytest.raises(NotEncodable, match="/t is not a column"):
        write(pa.array([{"id": 1}], pa.struct([("id", pa.int32())])))
    with pytest.raises(NotEncodable, match="does not fit its Avro schema"):
        write(pa.array([{"id": "x", "t": ROW["at"]}], pa.struct([("id", pa.string()), kind.field("t")])))


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadSchema, match="has no type in Avro"):
        avro_schema(pa.struct([("d", pa.duration("us"))]), "r")
    with pytest.raises(BadSchema, match="'a b' cannot be a field of Avro"):
        avro_schema(pa.struct([("a b", pa.int32())]), "r")
    with pytest.raises(BadSchema, match="values of type PROTOBUF cannot be written"):
        value_writer(ResolvedSchema(PROTOBUF, ""), 1)
    with pytest.raises(BadSchema, match="union of several types"):
        value_writer(ResolvedSchema(AVRO, '["int", "string"]'), 1)
