"""JSON to Arrow, compared with Python's json."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.typed.errors import BadSchema
from penstock.arrow.typed.json_types import json_field
from penstock.arrow.typed.json_values import JsonReader
from penstock.registry.schema import JSON, ResolvedSchema

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "price": {"type": "number"},
        "paid": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"$ref": "#/$defs/place"},
    },
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}
ROWS = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "paid": st.booleans(),
        "tags": st.lists(st.text('ab\n"}{', max_size=3), max_size=3),
        "place": st.none() | st.fixed_dictionaries({"x": st.integers(0, 9), "more": st.just("ignored")}),
    },
)


def reader(schema: Any) -> JsonReader:
    return JsonReader(json_field(ResolvedSchema(JSON, json.dumps(schema))))


def expected(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row.get(name) for name in ORDER["properties"]}
    if found["place"] is not None:
        found["place"] = {"x": found["place"]["x"]}
    return found


@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from([None, 2]))
@settings(max_examples=40, deadline=None)
def test_objects_are_structs(rows: list[dict[str, Any]], indent: int | None) -> None:
    found = reader(ORDER).decode([json.dumps(each, indent=indent).encode() for each in rows])
    assert found.array.to_pylist() == [expected(each) for each in rows]
    assert not found.reasons


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"id":1}{"id":2}', "not JSON"),
        (b'{"id":"one"}', '/id is "one", expected a whole number of 64 bits'),
        (b'{"id":9223372036854775808}', "/id is 9223372036854775808, expected a whole number of 64 bits"),
        (b'{"tags":[1]}', "/tags/0 is 1, expected a string"),
        (b"[1]", "/ is [1], expected an object"),
        (b'{"name":"\xff"}', "not JSON"),
    ],
)
def test_what_does_not_fit_has_a_reason(payload: bytes, reason: str) -> None:
    good = b'{"id":5}'
    found = reader(ORDER).decode([good, payload, good])
    assert list(found.reasons) == [1]
    assert reason in found.reasons[1]
    assert [each and each["id"] for each in found.array.to_pylist()] == [5, None, 5]


def test_whole_numbers_may_be_written_with_a_point() -> None:
    assert reader(ORDER).decode([b'{"id":5.0}']).array[0]["id"].as_py() == 5


def test_other_schemas_are_json_text_and_maps() -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    found = reader(schema).decode([b'{"any":{"a":[1]},"either":3,"maybe":4,"map":{"k":1}}'])
    assert found.array.to_pylist() == [{"any": '{"a":[1]}', "either": "3", "maybe": 4, "map": [("k", 1)]}]


def test_a_schema_that_contains_itself_is_refused() -> None:
    with pytest.raises(BadSchema, match="contains itself"):
        reader({"type": "object", "properties": {"next": {"$ref": "#"}}})


def test_a_type_can_be_given_instead_of_a_schema() -> None:
    kind = pa.struct(
        [("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32()), ("sum", pa.decimal128(9, 2))]
    )
    found = JsonReader(pa.field("value", kind)).decode(
        [b'{"at":"2026-01-02T03:04:05Z","day":"2026-01-02","sum":1.5}']
    )
    assert [str(each) for each in found.array.to_pylist()[0].values()] == [
        "2026-01-02 03:04:05+00:00",
        "2026-01-02",
        "1.50",
    ]
