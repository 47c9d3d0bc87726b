"""JSON Schema to Arrow types.

    object with properties            struct
    object with additionalProperties  map, if it has no properties
    array with items                  list
    string, integer, number, boolean  string, bigint, double, boolean
    T or null                         T
    anything else                     string: the value's JSON

Only types count: a value is not checked for `required`, `pattern` and other keywords.
"""

import json
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from penstock.arrow.typed.errors import BadSchema
from penstock.registry.errors import RegistryError, shown
from penstock.registry.formats.limits import parse_json
from penstock.registry.schema import ResolvedSchema

NODES_MAX: Final = 10_000

_SCALARS: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_ANY: Final = {b"json": b"any"}
"""Metadata of a field whose column has JSON text."""


def any_field(name: str) -> pa.Field:
    return pa.field(name, pa.string(), metadata=_ANY)


def is_any(field: pa.Field) -> bool:
    return bool(field.metadata == _ANY)


def json_field(schema: ResolvedSchema) -> pa.Field:
    """The column of a JSON Schema. Raises `BadSchema`."""
    try:
        whole = {"": parse_json(schema.text)}
        whole |= {name: parse_json(text) for name, text in schema.references}
    except RegistryError as error:
        raise BadSchema(f"the JSON Schema cannot be parsed: {error}") from None
    return _Types(whole).field("value", whole[""], "")


class _Types:
    def __init__(self, files: dict[str, Any]) -> None:
        self._files = files
        self._open: list[tuple[str, str]] = []
        self._count = 0

    def field(self, name: str, node: Any, file: str) -> pa.Field:
        self._count += 1
        if self._count > NODES_MAX:
            raise BadSchema(f"the JSON Schema has more than {NODES_MAX} types")
        if not isinstance(node, dict):
            return any_field(name)
        if isinstance(node.get("$ref"), str):
            return self._referred(name, node["$ref"], file)
        choices = node.get("oneOf") or node.get("anyOf")
        if isinstance(choices, list):
            others = [each for each in choices if not (isinstance(each, dict) and each.get("type") == "null")]
            return self.field(name, others[0], file) if len(others) == 1 else any_field(name)
        kinds = node.get("type")
        if isinstance(kinds, list):
            kinds = [each for each in kinds if each != "null"]
            kinds = kinds[0] if len(kinds) == 1 else None
        return self._typed(name, kinds, node, file)

    def _typed(  # noqa: PLR0911  # one for each kind
        self, name: str, kind: Any, node: dict[str, Any], file: str
    ) -> pa.Field:
        properties, more = node.get("properties"), node.get("additionalProperties")
        if kind == "object" or (kind is None and isinstance(properties, dict)):
            if isinstance(properties, dict) and properties:
                return pa.field(
                    name, pa.struct([self.field(each, inner, file) for each, inner in properties.items()])
                )
            if isinstance(more, dict):
                return pa.field(name, pa.map_(pa.string(), self.field("value", more, file)))
            return any_field(name)
        if kind == "array" and isinstance(node.get("items"), dict):
            return pa.field(name, pa.list_(self.field("element", node["items"], file)))
        if isinstance(kind, str) and kind in _SCALARS:
            return pa.field(name, _SCALARS[kind])
        values = node.get("enum")
        if kind is None and values and all(isinstance(each, str) for each in values):
            return pa.field(name, pa.string())
        return any_field(name)

    def _referred(self, name: str, reference: str, file: str) -> pa.Field:
        place, _, pointer = reference.partition("#")
        target = (
            file if not place else next((each for each in self._files if each and _is(place, each)), None)
        )
        if target is None:
            raise BadSchema(
                f"the JSON Schema refers to {shown(reference)}, which is not among its references"
            )
        if (target, pointer) in self._open:
            raise BadSchema(f"the JSON Schema's {shown(reference)} contains itself")
        node = self._files[target]
        for each in pointer.split("/")[1:]:
            key = unquote(each).replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or key not in node:
                raise BadSchema(f"the JSON Schema refers to {shown(reference)}, which does not exist")
            node = node[key]
        self._open.append((target, pointer))
        found = self.field(name, node, target)
        self._open.pop()
        return found


def _is(uri: str, name: str) -> bool:
    return uri == name or uri.endswith(f"/{name}")


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
