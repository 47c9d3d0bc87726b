"""Avro values to Arrow columns, by the schema that wrote them and the schema that they are read with.

Values are decoded by `pyruhvro` (Rust), many at once, if it knows all types of the writer's schema, and Avro's
resolution to the reader's schema can be done on columns (`avro_projection`). Otherwise `fastavro` decodes and resolves
them one by one.

`pyruhvro` does not report bytes that follow a value. So each value is decoded as a record of the value and a number,
which is appended to its bytes: a value is whole if the number is found where the value ends.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import fastavro
import fastavro.schema
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.typed.avro_projection import conversion, projection
from penstock.arrow.typed.avro_tree import AvroNode, parse_tree
from penstock.arrow.typed.errors import BadSchema, NotDecodable
from penstock.arrow.typed.salvage import AllAtOnce, Decoded, Slow, decode_all
from penstock.records.varint import encode_varlong
from penstock.registry.errors import shown
from penstock.registry.schema import ResolvedSchema

_FAST: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "enum"})
_FAST_LOGICAL: Final = frozenset({"", "date", "timestamp-millis", "timestamp-micros"})


class AvroReader:
    """Decodes values of one writer's schema to the columns of the reader's. Raises `BadSchema`."""

    def __init__(self, writer: ResolvedSchema, reader: ResolvedSchema) -> None:
        written = parse_tree(writer)
        read = written if writer == reader else parse_tree(reader)
        self.column_type: pa.DataType = read.column_type
        one = _one_by_one(written) if written == read else _resolved_one_by_one(writer, reader, read)
        self._slow = Slow(one, read.decoded_type, conversion(read))
        self._fast = _all_at_once(written, read)

    @property
    def is_fast(self) -> bool:
        return self._fast is not None

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        return decode_all(payloads, self._fast, self._slow)


# -- many at once ------------------------------------------------------------------------------------------


def _all_at_once(writer: AvroNode, reader: AvroNode) -> AllAtOnce | None:
    project = projection(writer, reader)
    if project is None or not _is_fast(writer):
        return None
    from pyruhvro import deserialize_array  # noqa: PLC0415  # not if other schemas are read

    end = int.from_bytes(os.urandom(8), "big") >> 2 | 1 << 61
    mark = encode_varlong(end)
    schema = json.dumps(
        {
            "type": "record",
            "name": "Marked",
            "fields": [
                {"name": "value", "type": Emitter().fast(writer)},
                {"name": "end", "type": "long"},
            ],
        }
    )

    def decode(payloads: Sequence[bytes]) -> pa.Array:
        found = deserialize_array([each + mark for each in payloads], schema)
        if not pc.all(pc.equal(found.column(1), end)).as_py():
            raise NotDecodable("bytes follow a value")
        return project(found.column(0))

    return decode


def _is_fast(node: AvroNode) -> bool:
    """Whether pyruhvro decodes it. It panics at bytes, fixed and others."""
    match node.kind:
        case "record":
            return bool(node.fields) and all(_is_fast(each.type) for each in node.fields)
        case "array" | "map":
            return node.items is not None and _is_fast(node.items)
        case "union":
            return node.has_null and node.optional is not None and _is_fast(node.optional)
    return node.kind in _FAST and node.logical in _FAST_LOGICAL


class Emitter:
    """Writes trees as schemas. Each type gets a name of its own: the tree has no references."""

    def __init__(self) -> None:
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"T{self._count}"

    def fast(self, node: AvroNode) -> Any:
        return self._emit(node, self.fast)

    def wrapped(self, node: AvroNode) -> Any:
        """With members of unions as records of one field."""
        if node.is_struct_union:
            return [
                "null" if name is None else self._record([(name, each)], self.wrapped)
                for name, each in node.members
            ]
        return self._emit(node, self.wrapped)

    def _emit(self, node: AvroNode, inner: Callable[[AvroNode], Any]) -> Any:
        match node.kind:
            case "record":
                return self._record([(each.name, each.type) for each in node.fields], inner)
            case "array" if node.items is not None:
                return {"type": "array", "items": inner(node.items)}
            case "map" if node.items is not None:
                return {"type": "map", "values": inner(node.items)}
            case "union":
                return [inner(each) for each in node.branches]
            case "enum":
                return {"type": "enum", "name": self._name(), "symbols": list(node.symbols)}
        made: dict[str, Any] = {"type": node.kind}
        if node.kind == "int" and not node.logical and inner == self.fast:
            made["type"] = "long"  # the same bytes; pyruhvro would cut a number that is too large
        if node.kind == "fixed":
            made |= {"name": self._name(), "size": node.size}
        if node.logical == "decimal":
            made |= {"logicalType": "decimal", "precision": node.precision, "scale": node.scale}
        elif node.logical in _FAST_LOGICAL and inner == self.fast:
            made |= {"logicalType": node.logical} if node.logical else {}
        return made

    def _record(self, fields: list[tuple[str, AvroNode]], inner: Callable[[AvroNode], Any]) -> Any:
        return {
            "type": "record",
            "name": self._name(),
            "fields": [{"name": name, "type": inner(node)} for name, node in fields],
        }


# -- one by one --------------------------------------------------------------------------------------------


def _one_by_one(node: AvroNode) -> Callable[[bytes], Any]:
    schema = _parsed(Emitter().wrapped(node), {})
    return lambda payload: _read(payload, schema, None)


def _resolved_one_by_one(
    writer: ResolvedSchema, reader: ResolvedSchema, tree: AvroNode
) -> Callable[[bytes], Any]:
    written, read = _whole(writer), _whole(reader)
    wrapped = _parsed(Emitter().wrapped(tree), {}) if _has_struct_union(tree) else None

    def decode(payload: bytes) -> Any:
        value = _read(payload, written, read)
        if wrapped is None:
            return value
        again = io.BytesIO()  # to see which members of unions the values are
        fastavro.schemaless_writer(again, read, value)
        return _read(again.getvalue(), wrapped, None)

    return decode


def _has_struct_union(node: AvroNode) -> bool:
    inner = (
        *node.branches,
        *(each.type for each in node.fields),
        *(() if node.items is None else (node.items,)),
    )
    return node.is_struct_union or any(map(_has_struct_union, inner))


def _whole(schema: ResolvedSchema) -> Any:
    named: dict[str, Any] = {}
    for _, text in schema.references:
        _parsed(_plain(json.loads(text)), named)
    return _parsed(_plain(json.loads(schema.text)), named)


def _plain(node: Any) -> Any:
    """Without logical types that Arrow makes of numbers itself."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {
        name: _plain(value) if name in ("type", "items", "values", "fields") else value
        for name, value in node.items()
    }
    if kept.get("logicalType") != "decimal":
        kept.pop("logicalType", None)
    return kept


def _parsed(schema: Any, named: dict[str, Any]) -> Any:
    try:
        return fastavro.parse_schema(schema, named)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise BadSchema(f"the Avro schema cannot be parsed: {type(error).__name__} {shown(error)}") from None


def _read(payload: bytes, writer: Any, reader: Any) -> Any:
    stream = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(stream, writer, reader)
    except EOFError:
        raise NotDecodable("the Avro value ends too early") from None
    except IndexError:
        raise NotDecodable("the Avro value ends too early, or names no member of a union or enum") from None
    except Exception as error:  # many kinds, by what the bytes are taken for
        raise NotDecodable(f"not a value of its Avro schema: {type(error).__name__} {shown(error)}") from None
    left = len(payload) - stream.tell()
    if left:
        raise NotDecodable(f"{left} bytes follow the Avro value")
    return value
