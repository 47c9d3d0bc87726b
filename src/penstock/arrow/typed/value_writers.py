"""Columns to Avro or JSON values, each after the id of its schema.

Null stays null: a tombstone. In JSON, fields that are null are left out. Values are encoded one by one.
"""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.arrow.typed.avro_tree import NO_DEFAULT, AvroNode, parse_tree
from penstock.arrow.typed.errors import BadSchema
from penstock.base.errors import KafkaError
from penstock.records.schema_framing import write_frame
from penstock.registry.errors import shown
from penstock.registry.schema import AVRO, JSON, ResolvedSchema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class NotEncodable(KafkaError):
    """A value does not fit the schema that it is written with."""


def value_writer(schema: ResolvedSchema, schema_id: int) -> Callable[[pa.Array], pa.Array]:
    """Encodes columns. Raises `BadSchema`; the encoder raises `NotEncodable`."""
    if schema.type not in (AVRO, JSON):
        raise BadSchema(f"values of type {schema.type} cannot be written, expected {AVRO} or {JSON}")
    encode = _avro(schema) if schema.type == AVRO else _json
    frame = write_frame(schema_id)

    def write(column: pa.Array) -> pa.Array:
        kind = column.type
        return pa.array(
            [None if each is None else frame + encode(each, kind) for each in column.to_pylist()],
            pa.binary(),
        )

    return write


# -- Avro --------------------------------------------------------------------------------------------------


def _avro(schema: ResolvedSchema) -> Callable[[Any, pa.DataType], bytes]:
    import fastavro  # noqa: PLC0415  # only what is used

    from penstock.arrow.typed.avro_values import Emitter  # noqa: PLC0415

    tree = parse_tree(schema)
    _check_unions(tree)
    parsed = fastavro.parse_schema(Emitter().wrapped(tree))

    def encode(value: Any, _: pa.DataType) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed, _for_avro(value, tree, ""))
        except NotEncodable:
            raise
        except Exception as error:  # many kinds, by what the value is
            raise NotEncodable(
                f"a value does not fit its Avro schema: {type(error).__name__} {shown(error)}"
            ) from None
        return stream.getvalue()

    return encode


def _check_unions(node: AvroNode) -> None:
    if node.is_struct_union:
        raise BadSchema("the Avro schema has a union of several types, which columns cannot be written as")
    for each in (*node.branches, *(each.type for each in node.fields), *filter(None, [node.items])):
        _check_unions(each)


def _for_avro(value: Any, node: AvroNode, at: str) -> Any:
    if node.optional is not None:
        return None if value is None and node.has_null else _for_avro(value, node.optional, at)
    if value is None and node.kind not in ("null", "union"):
        raise NotEncodable(f"{at or '/'} is null, which its Avro schema does not allow")
    match node.kind:
        case "record":
            return {each.name: _field(value, each, at) for each in node.fields}
        case "array" if node.items is not None:
            return [_for_avro(each, node.items, f"{at}/{index}") for index, each in enumerate(value)]
        case "map" if node.items is not None:
            return {key: _for_avro(each, node.items, f"{at}/{key}") for key, each in value}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return (value - _EPOCH) // _MICROSECOND // (1000 if node.logical.endswith("millis") else 1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


def _field(value: dict[str, Any], field: Any, at: str) -> Any:
    if field.name not in value and field.default is not NO_DEFAULT:
        from penstock.arrow.typed.avro_projection import default_value  # noqa: PLC0415

        return default_value(field.type, field.default)
    if field.name not in value:
        raise NotEncodable(f"{at}/{field.name} is not a column, and has no default in its Avro schema")
    return _for_avro(value[field.name], field.type, f"{at}/{field.name}")


# -- JSON --------------------------------------------------------------------------------------------------


def _json(value: Any, kind: pa.DataType) -> bytes:
    return msgspec.json.encode(_for_json(value, kind))


def _for_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            each.name: _for_json(value[each.name], each.type) for each in kind if value[each.name] is not None
        }
    if pa.types.is_list(kind):
        return [_for_json(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: _for_json(each, kind.item_type) for key, each in value}
    return value
