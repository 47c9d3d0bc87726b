"""JSON Schema: Confluent's rules of compatibility, compared with what is really valid."""

import json
from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.registry.errors import RegistryError
from penstock.registry.formats.json_compatibility import differences
from penstock.registry.formats.json_schema import JsonSchema, parse
from penstock.registry.schema import JSON, ResolvedSchema


def schema_of(data: Any, **references: Any) -> JsonSchema:
    texts = tuple((name, json.dumps(each)) for name, each in references.items())
    return parse(ResolvedSchema(JSON, json.dumps(data), texts), is_new=True)


def kinds(reader: Any, writer: Any) -> list[str]:
    return [each.kind for each in differences(schema_of(reader), schema_of(writer))]


def thing(*, closed: bool = False, **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return {**made, "additionalProperties": False} if closed else made


TEXT, INT = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ({}, TEXT, []),
        (TEXT, {}, ["TYPE_CHANGED"]),
        (TEXT, INT, ["TYPE_CHANGED"]),
        ({"type": "number"}, INT, []),
        (INT, {"type": "number"}, ["TYPE_NARROWED"]),
        ({"type": ["string", "null"]}, TEXT, []),
        (TEXT, {"type": ["string", "null"]}, ["TYPE_CHANGED"]),
        ({**TEXT, "maxLength": 3}, TEXT, ["MAX_LENGTH_ADDED"]),
        ({**TEXT, "maxLength": 3}, {**TEXT, "maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
        ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 4}, []),
        ({**TEXT, "minLength": 5}, {**TEXT, "minLength": 4}, ["MIN_LENGTH_INCREASED"]),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, ["PATTERN_CHANGED"]),
        ({**INT, "minimum": 2}, {**INT, "minimum": 1}, ["MINIMUM_INCREASED"]),
        ({**INT, "exclusiveMaximum": 2}, {**INT, "exclusiveMaximum": 3}, ["EXCLUSIVE_MAXIMUM_DECREASED"]),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, ["MULTIPLE_OF_EXPANDED"]),
        ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}, []),
        ({"enum": [1, 2]}, {"enum": [1]}, []),
        ({"enum": [1]}, {"enum": [1, 2]}, ["ENUM_ARRAY_NARROWED"]),
        ({"enum": [1, 3]}, {"enum": [1, 2]}, ["ENUM_ARRAY_CHANGED"]),
        (thing(a=TEXT), thing(a=TEXT, b=INT), []),
        (thing(a=TEXT, b=INT), thing(a=TEXT), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (thing(a=TEXT, b={}), thing(a=TEXT), []),
        (thing(closed=True, a=TEXT, b=INT), thing(closed=True, a=TEXT), []),
        (thing(closed=True), thing(closed=True, b=INT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
        (thing(closed=True, a=TEXT), thing(a=TEXT), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        (
            {**thing(closed=True, a=TEXT), "required": ["a"]},
            thing(closed=True),
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
        ),
        ({**thing(a=TEXT), "required": ["a"]}, thing(a=TEXT), ["REQUIRED_ATTRIBUTE_ADDED"]),
        (thing(a=TEXT), {**thing(a=TEXT), "required": ["a"]}, []),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": INT}, ["TYPE_CHANGED"]),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
        ({"oneOf": [TEXT, INT]}, {"oneOf": [TEXT]}, []),
        ({"oneOf": [TEXT]}, {"oneOf": [TEXT, INT]}, ["SUM_TYPE_NARROWED"]),
        ({"allOf": [TEXT, {"minLength": 1}]}, {"allOf": [TEXT]}, ["PRODUCT_TYPE_EXTENDED"]),
        ({"not": TEXT}, {"not": {"type": ["string", "null"]}}, []),
        ({"not": {"type": ["string", "null"]}}, {"not": TEXT}, ["NOT_TYPE_EXTENDED"]),
    ],
)  # fmt: skip
def test_rules(reader: Any, writer: Any, expected: list[str]) -> None:
    assert kinds(reader, writer) == expected


def test_references_are_followed_within_and_to_others() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}, "v": INT}}
    tree = {"$ref": "#/definitions/node", "definitions": {"node": node}}
    assert kinds(tree, tree) == []
    texts = {"$ref": "#/definitions/node", "definitions": {"node": {**node, "properties": {**node["properties"], "v": TEXT}}}}  # type: ignore[dict-item]  # fmt: skip # noqa: E501
    assert set(kinds(texts, tree)) == {"TYPE_CHANGED"}
    uses = {"type": "object", "properties": {"m": {"$ref": "money.json#/definitions/cents"}}}
    one = schema_of(uses, **{"money.json": {"definitions": {"cents": INT}}})
    other = schema_of(uses, **{"money.json": {"definitions": {"cents": TEXT}}})
    assert [each.kind for each in differences(other, one)] == ["TYPE_CHANGED"]
    assert differences(one, one) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "5", '"x"', "[]", '{"type": "nope"}', '{"$ref": "#/definitions/none"}', '{"$ref": "other.json"}',
     '{"maxLength": -1}', '{"items":' * 3000, '{"properties": []}'],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryError, match="Invalid schema of type JSON: ") as error:
        parse(ResolvedSchema(JSON, text), is_new=True)
    assert error.value.error_code == 42201


SMALL = st.integers(0, 3)
texts = st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": SMALL, "maxLength": SMALL})
ints = st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": SMALL, "maximum": SMALL})
enums = st.lists(st.sampled_from(["a", "b", 1, None]), min_size=1, max_size=3, unique=True).map(
    lambda each: {"enum": each}
)
simple = st.one_of(texts, ints, enums, st.just({"type": "null"}), st.just({}))
nodes = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("pq"), inner, max_size=2),
            },
            optional={
                "additionalProperties": st.booleans() | inner,
                "required": st.lists(st.sampled_from("pq"), unique=True, max_size=1),
            },
        ),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": each}),
    ),
    max_leaves=4,
)
values = st.recursive(
    st.sampled_from(["", "a", "b", "abcd", 0, 1, 2, 5, None, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
    max_leaves=4,
)


@given(nodes)
def test_a_schema_allows_what_it_allows(node: Any) -> None:
    assert kinds(node, node) == []


@given(nodes, nodes, st.lists(values, max_size=12))
@settings(deadline=None, max_examples=150)
def test_data_of_a_compatible_schema_is_valid(reader: Any, writer: Any, data: list[Any]) -> None:
    """But for required properties with a default, which count as optional, and `oneOf`, of which several may match."""
    if kinds(reader, writer):
        return
    new, old = jsonschema_rs.validator_for(reader), jsonschema_rs.validator_for(writer)
    for each in data:
        if old.is_valid(each):
            assert new.is_valid(each)


@given(st.recursive(st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "string", "#/a", "x"]), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "properties", "items", "$ref", "anyOf", "not", "enum", "required", "a"]), inner, max_size=4), max_leaves=10))  # fmt: skip # noqa: E501
def test_any_json_is_parsed_and_compared_or_refused(data: Any) -> None:
    with suppress(RegistryError):
        one = parse(ResolvedSchema(JSON, json.dumps(data)))
        assert differences(one, one) == []
