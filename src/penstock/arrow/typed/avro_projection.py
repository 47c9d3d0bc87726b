"""Avro's schema resolution on Arrow columns: from what a writer's schema decodes to, to the columns of a reader's.

    a field of both          matched by name, or by the reader's alias
    only the writer has it   dropped
    only the reader has it   its default
    int, long, float         widened
    T to [null, T]           the same values

Resolution that depends on values is not done here: null to a type without null, an enum's symbol that the reader
lacks, unions of several types. Then `projection` returns None, and values are resolved one by one.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.arrow.typed.avro_tree import NO_DEFAULT, AvroField, AvroNode
from penstock.arrow.typed.errors import BadSchema

Projection = Callable[[pa.Array], pa.Array]

_WIDENED: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
}


def projection(writer: AvroNode, reader: AvroNode) -> Projection | None:
    """Raises `BadSchema` if no value of the writer's can be read."""
    if writer == reader:
        return conversion(reader)
    inner_writer, inner_reader = writer.optional or writer, reader.optional or reader
    if writer.has_null and not reader.has_null:
        return None
    if inner_writer.kind == inner_reader.kind:
        return _same_kind(inner_writer, inner_reader)
    if inner_writer.logical or inner_reader.logical:
        return None
    if (inner_writer.kind, inner_reader.kind) in _WIDENED:
        kind, checked = inner_reader.column_type, conversion(inner_writer)
        return lambda array: checked(array).cast(kind, safe=False)
    return None


def _same_kind(writer: AvroNode, reader: AvroNode) -> Projection | None:
    match reader.kind:
        case "record":
            return _record(writer, reader) if _same_name(writer, reader) else None
        case "array" | "map" if writer.items is not None and reader.items is not None:
            inner = projection(writer.items, reader.items)
            return None if inner is None else _nested(reader, [inner])
        case "enum":
            is_subset = set(writer.symbols) <= set(reader.symbols)
            return _same if is_subset and _same_name(writer, reader) else None
        case "union" | "fixed":
            return None
    return conversion(reader) if writer.logical == reader.logical != "decimal" else None


def _same_name(writer: AvroNode, reader: AvroNode) -> bool:
    return writer.name == reader.name or any(
        writer.name == each.rpartition(".")[2] for each in reader.aliases
    )


def _record(writer: AvroNode, reader: AvroNode) -> Projection | None:
    places = {each.name: index for index, each in enumerate(writer.fields)}
    sources: list[tuple[int, Projection]] = []
    for each in reader.fields:
        names = [name for name in (each.name, *each.aliases) if name in places]
        if not names:
            sources.append((-1, _constant(each)))
            continue
        inner = projection(writer.fields[places[names[0]]].type, each.type)
        if inner is None:
            return None
        sources.append((places[names[0]], inner))
    kind = reader.column_type

    def project(array: pa.Array) -> pa.Array:
        children = [inner(array if place < 0 else array.field(place)) for place, inner in sources]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=children)

    return project


def _constant(field: AvroField) -> Projection:
    if field.default is NO_DEFAULT:
        raise BadSchema(
            f"field {field.name} is not in the writer's schema, and has no default in the reader's"
        )
    value = default_value(field.type, field.default)
    one = conversion(field.type)(pa.array([value], field.type.decoded_type))
    return lambda rows: one.take(pa.nulls(len(rows), pa.int8()).fill_null(0))


def default_value(node: AvroNode, default: Any) -> Any:  # noqa: PLR0911, PLR0912  # one for each kind
    """The value that the JSON of a default stands for. Raises `BadSchema`."""
    if node.kind == "union":
        for name, each in node.members:
            try:
                value = default_value(each, default)
            except BadSchema:
                continue
            is_plain = not node.is_struct_union or name is None
            return value if is_plain else {name: value}
        raise BadSchema(f"the default {default!r} is of none of its union's types")
    match node.kind, default:
        case "null", None:
            return None
        case "record", dict():
            return {
                each.name: default_value(each.type, default.get(each.name, each.default))
                for each in node.fields
            }
        case "array", list() if node.items is not None:
            return [default_value(node.items, each) for each in default]
        case "map", dict() if node.items is not None:
            return [(key, default_value(node.items, each)) for key, each in default.items()]
        case (("bytes" | "fixed"), str()):
            data = default.encode("latin-1", "replace")
            if node.logical == "decimal":
                return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-node.scale)
            return data
        case (("string" | "enum"), str()):
            return default
        case "boolean", bool():
            return default
        case (("int" | "long"), int()) if not isinstance(default, bool):
            return default
        case (("float" | "double"), (int() | float())) if not isinstance(default, bool):
            return float(default)
    raise BadSchema(f"the default {default!r} is not of type {node.kind}")


# -- from a decoder's types to a column's --------------------------------------------------------------------


def conversion(node: AvroNode) -> Projection:
    """Sets units and time zones of timestamps, and the names of list elements; checks the range of ints."""
    if node.optional is not None:
        return conversion(node.optional)
    match node.kind:
        case "record":
            return _nested(node, [conversion(each.type) for each in node.fields])
        case "array" | "map" if node.items is not None:
            return _nested(node, [conversion(node.items)])
        case "union" if node.is_struct_union:
            return _nested(node, [conversion(each) for name, each in node.members if name is not None])
    kind = node.column_type
    if node.kind != "int" and node.decoded_type == kind:
        return _same
    return lambda array: array.cast(kind)


def _same(array: pa.Array) -> pa.Array:
    return array


def _nested(node: AvroNode, inner: list[Projection]) -> Projection:
    kind = node.column_type

    def project(array: pa.Array) -> pa.Array:
        count, buffers = len(array), array.buffers()
        if node.kind == "array":
            return pa.Array.from_buffers(kind, count, buffers[:2], children=[inner[0](array.values)])
        if node.kind == "map":
            keys, items = array.keys, inner[0](array.items)
            entries = pa.StructArray.from_arrays(
                [keys, items], fields=[kind.key_field, pa.field("value", kind.item_type)]
            )
            return pa.Array.from_buffers(kind, count, buffers[:2], children=[entries])
        children = [each(array.field(index)) for index, each in enumerate(inner)]
        return pa.Array.from_buffers(kind, count, buffers[:1], children=children)

    return project
