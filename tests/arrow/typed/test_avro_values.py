"""Avro to Arrow, compared with fastavro value by value: schemas and values are made by Hypothesis."""

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.typed.avro_values import AvroReader
from penstock.arrow.typed.errors import BadSchema
from penstock.registry.schema import AVRO, ResolvedSchema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema(node: Any) -> ResolvedSchema:
    return ResolvedSchema(AVRO, json.dumps(node))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def encode(node: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(node), value)
    return stream.getvalue()


def python(value: Any) -> Any:
    """Maps as dictionaries."""
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: python(each) for key, each in value}
        return [python(each) for each in value]
    if isinstance(value, dict):
        return {key: python(each) for key, each in value.items()}
    return value


# -- schemas and values by Hypothesis ----------------------------------------------------------------------

names = count()


def _leaf(kind: Any, values: st.SearchStrategy[Any]) -> tuple[Any, st.SearchStrategy[Any]]:
    return kind, values


def _logical(base: str, name: str) -> dict[str, str]:
    return {"type": base, "logicalType": name}


def _symbols() -> tuple[Any, st.SearchStrategy[Any]]:
    return _leaf(
        {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    )


def _fixed() -> tuple[Any, st.SearchStrategy[Any]]:
    return _leaf({"type": "fixed", "name": f"F{next(names)}", "size": 3}, st.binary(min_size=3, max_size=3))


LEAVES = [
    lambda: _leaf("boolean", st.booleans()),
    lambda: _leaf("int", st.integers(-(2**31), 2**31 - 1)),
    lambda: _leaf("long", st.integers(-(2**63), 2**63 - 1)),
    lambda: _leaf("float", st.floats(width=32, allow_nan=False)),
    lambda: _leaf("double", st.floats(allow_nan=False)),
    lambda: _leaf("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    lambda: _leaf("bytes", st.binary(max_size=8)),
    _symbols,
    _fixed,
    lambda: _leaf(_logical("int", "date"), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    lambda: _leaf(
        _logical("long", "timestamp-micros"),
        st.integers(-(10**15), 10**16).map(lambda us: EPOCH + timedelta(microseconds=us)),
    ),
    lambda: _leaf(
        _logical("long", "timestamp-millis"),
        st.integers(-(10**12), 10**13).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    ),
    lambda: _leaf(
        _logical("long", "local-timestamp-millis"),
        st.integers(0, 10**13).map(lambda ms: datetime(1970, 1, 1) + timedelta(milliseconds=ms)),
    ),
    lambda: _leaf(
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda each: Decimal(each).scaleb(-3)),
    ),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and values of it."""
    kind = draw(st.integers(0, 4 if depth else 0))
    if kind == 0:
        return draw(st.sampled_from(LEAVES))()
    if kind == 1:
        inner, values = draw(typed(depth - 1))
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == 2:
        inner, values = draw(typed(depth - 1))
        return {"type": "map", "values": inner}, st.dictionaries(
            st.text("ab", min_size=1, max_size=2), values, min_size=1, max_size=2
        )
    if kind == 3:
        inner, values = draw(typed(depth - 1))
        if isinstance(inner, list):
            return inner, values
        return draw(st.permutations(["null", inner])), st.none() | values
    return draw(records(depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [(f"f{index}", *draw(typed(depth))) for index in range(draw(st.integers(1, 4)))]
    made = record(*(field(name, kind) for name, kind, _ in fields), name=f"R{next(names)}")
    return made, st.fixed_dictionaries({name: values for name, _, values in fields})


def check_same_as_fastavro(data: st.DataObject) -> None:
    node, values = data.draw(records())
    given_values = data.draw(st.lists(values, min_size=1, max_size=6))
    payloads = [encode(node, each) for each in given_values]
    found = AvroReader(schema(node), schema(node)).decode(payloads)
    assert not found.reasons
    found.array.validate(full=True)
    parsed = fastavro.parse_schema(node)
    expected = [fastavro.schemaless_reader(io.BytesIO(each), parsed, None) for each in payloads]
    assert python(found.array.to_pylist()) == expected


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_values_are_those_of_fastavro(data: st.DataObject) -> None:
    check_same_as_fastavro(data)


@pytest.mark.long
@given(st.data())
@settings(max_examples=5_000, deadline=None)
def test_values_are_those_of_fastavro_many(data: st.DataObject) -> None:
    check_same_as_fastavro(data)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_damaged_values_are_null_and_the_others_are_kept(data: st.DataObject) -> None:
    """A value that is cut short, or has bytes after it, has a reason; its neighbours do not change."""
    node, values = data.draw(records(1))
    payloads = [encode(node, each) for each in data.draw(st.lists(values, min_size=2, max_size=5))]
    at = data.draw(st.integers(0, len(payloads) - 1))
    reader = AvroReader(schema(node), schema(node))
    whole = reader.decode(payloads).array.to_pylist()
    damaged = payloads[at] + b"\0" if data.draw(st.booleans()) or not payloads[at] else payloads[at][:-1]
    found = reader.decode([*payloads[:at], damaged, *payloads[at + 1 :]])
    assert list(found.reasons) == [at]
    assert found.array.to_pylist() == [*whole[:at], None, *whole[at + 1 :]]


# -- which decoder -----------------------------------------------------------------------------------------


def test_common_types_are_decoded_many_at_once() -> None:
    """Bytes, fixed and decimals are not: pyruhvro 0.4 does not know them."""
    fast = record(
        field("a", ["null", "string"]),
        field("b", {"type": "array", "items": record(field("c", "double"), name="I")}),
        field("d", {"type": "map", "values": ["null", "long"]}),
        field("e", _logical("long", "timestamp-millis")),
        field("u", _logical("string", "uuid")),
    )
    assert AvroReader(schema(fast), schema(fast)).is_fast
    slow = record(field("a", "bytes"))
    assert not AvroReader(schema(slow), schema(slow)).is_fast


def test_a_number_that_is_too_large_for_an_int_is_not_cut() -> None:
    """Avro writes int and long alike, so the bytes of one can be read as the other."""
    for kind in ("int", ["null", "int"], {"type": "array", "items": "int"}):
        node = record(field("n", kind))
        wide = record(field("n", json.loads(json.dumps(kind).replace("int", "long"))))
        values = [7, 2**31] if not isinstance(kind, dict) else [[7], [2**31]]
        reader = AvroReader(schema(node), schema(node))
        found = reader.decode([encode(wide, {"n": each}) for each in values])
        assert reader.is_fast
        assert found.array.to_pylist() == [{"n": values[0]}, None]
        assert "does not fit its column" in found.reasons[1]


def test_members_of_unions_are_columns() -> None:
    node = record(field("u", ["null", "int", "string", record(field("x", "int"), name="X")]))
    values = [{"u": each} for each in (None, 3, "a", {"x": 1})]
    found = AvroReader(schema(node), schema(node)).decode([encode(node, each) for each in values])
    nothing = {"member0": None, "member1": None, "member2": None}
    assert [each["u"] for each in found.array.to_pylist()] == [
        None,
        nothing | {"member0": 3},
        nothing | {"member1": "a"},
        nothing | {"member2": {"x": 1}},
    ]


def test_values_that_are_not_records_are_columns_of_their_own_type() -> None:
    found = AvroReader(schema("string"), schema("string")).decode([encode("string", "a"), b"\x02"])
    assert found.array.to_pylist() == ["a", None]
    assert list(found.reasons) == [1]


def test_a_schema_without_columns_is_refused() -> None:
    recursive = record(field("next", ["null", "R"]))
    with pytest.raises(BadSchema, match="contains itself"):
        AvroReader(schema(recursive), schema(recursive))
    endless = record(field("a", {"type": "array", "items": "null"}))
    with pytest.raises(BadSchema, match="without bytes"):
        AvroReader(schema(endless), schema(endless))


# -- resolution --------------------------------------------------------------------------------------------

OLD = record(field("id", "int"), field("name", "string"), field("gone", "double"))
ROW = {"id": 7, "name": "a", "gone": 1.5}

EVOLUTIONS = {
    "added with a default": (record(field("id", "int"), field("n", "int", default=5)), {"id": 7, "n": 5}),
    "added as null": (record(field("id", "int"), field("n", ["null", "int"], default=None)), {"id": 7, "n": None}),
    "removed": (record(field("name", "string")), {"name": "a"}),
    "renamed": (record(field("label", "string", aliases=["name"])), {"label": "a"}),
    "widened to long": (record(field("id", "long")), {"id": 7}),
    "widened to double": (record(field("id", "double")), {"id": 7.0}),
    "made optional": (record(field("id", ["null", "int"])), {"id": 7}),
    "in another order": (record(field("name", "string"), field("id", "int")), {"name": "a", "id": 7}),
    "a default that is a record": (
        record(field("s", record(field("x", "int"), field("y", {"type": "array", "items": "string"}), name="S"),
                     default={"x": 1, "y": ["q"]})),
        {"s": {"x": 1, "y": ["q"]}},
    ),
    "a default that is a map": (
        record(field("m", {"type": "map", "values": "long"}, default={"k": 2})), {"m": {"k": 2}}
    ),
    "a default that is a time": (
        record(field("t", _logical("long", "timestamp-millis"), default=1000)),
        {"t": EPOCH + timedelta(seconds=1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_fields_are_resolved_by_avros_rules(name: str) -> None:
    node, expected = EVOLUTIONS[name]
    reader = AvroReader(schema(OLD), schema(node))
    found = reader.decode([encode(OLD, ROW)] * 3)
    found.array.validate(full=True)
    assert reader.is_fast
    assert python(found.array.to_pylist()) == [expected] * 3
    assert not found.reasons


def test_what_depends_on_values_is_resolved_one_by_one() -> None:
    """Null for a type without null, and a symbol that the reader lacks, are reasons of that value only."""
    written = record(
        field("n", ["null", "int"]), field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})
    )
    read = record(field("n", "int"), field("e", {"type": "enum", "name": "E", "symbols": ["A"]}))
    rows = [{"n": 1, "e": "A"}, {"n": None, "e": "A"}, {"n": 2, "e": "B"}, {"n": 3, "e": "A"}]
    found = AvroReader(schema(written), schema(read)).decode([encode(written, each) for each in rows])
    assert found.array.to_pylist() == [rows[0], None, None, rows[3]]
    assert sorted(found.reasons) == [1, 2]


def test_a_reader_with_a_new_field_without_a_default_cannot_read() -> None:
    with pytest.raises(BadSchema, match="field n is not in the writer's schema, and has no default"):
        AvroReader(schema(OLD), schema(record(field("n", "int"))))
