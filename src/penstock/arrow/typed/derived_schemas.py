"""Schemas of columns: an Avro schema or a JSON Schema for an Arrow type, to register what is written.

Every field may be null, as Spark's are: in Avro `["null", T]` with the default null. So fields can be added and
removed without breaking readers.
"""

import json
import re
from typing import Any, Final

import pyarrow as pa

from penstock.arrow.typed.errors import BadSchema

_AVRO: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}
_JSON: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), "integer"),
    **dict.fromkeys((pa.float32(), pa.float64()), "number"),
    **dict.fromkeys((pa.string(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")), "string"),
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema(kind: pa.DataType, name: str) -> str:
    """Raises `BadSchema` for types and names that Avro does not have."""
    return json.dumps(_avro(kind, re.sub(r"[^A-Za-z0-9_]", "_", f"_{name}" if name[:1].isdigit() else name)))


def _avro(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        for each in kind:
            if not _NAME.fullmatch(each.name):
                raise BadSchema(
                    f"column {each.name!r} cannot be a field of Avro, expected letters, digits and _"
                )
        fields = [
            {"name": each.name, "type": ["null", _avro(each.type, f"{name}_{each.name}")], "default": None}
            for each in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro(kind.value_type, f"{name}_element")]}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "map", "values": ["null", _avro(kind.item_type, f"{name}_value")]}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind not in _AVRO:
        raise BadSchema(f"a column of type {kind} has no type in Avro")
    return _AVRO[kind]


def json_schema(kind: pa.DataType, title: str) -> str:
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_json(kind)})


def _json(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {each.name: _json(each.type) for each in kind}}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(_json(kind.value_type))}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "object", "additionalProperties": _nullable(_json(kind.item_type))}
    if kind not in _JSON:
        raise BadSchema(f"a column of type {kind} has no type in JSON Schema")
    return {"type": _JSON[kind]}


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    if node["type"] in ("object", "array"):
        return {"oneOf": [{"type": "null"}, node]}
    return node | {"type": ["null", node["type"]]}
