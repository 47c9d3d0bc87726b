"""Avro schemas as trees: names resolved, and only what decides about bytes and columns.

Arrow types are those that Spark's `from_avro` has for a schema:

    int, long, float, double, boolean, string, bytes      the same
    enum                      string
    fixed                     binary
    record                    struct
    array, map                list, map
    [null, T]                 T, which may be null
    [int, long]               bigint; [float, double] is double
    other unions              struct of member0, member1, ...: all null except the one that the value has
    date, decimal             the same; a decimal of more than 38 digits is binary
    timestamp-millis, -micros         timestamp
    local-timestamp-millis, -micros   timestamp without a time zone
    other logical types       the type below

A union's member is read as a record of one field, which has the same bytes. So a decoder tells which member it is.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from penstock.arrow.typed.errors import BadSchema
from penstock.registry.errors import RegistryError, shown
from penstock.registry.formats.limits import parse_json
from penstock.registry.schema import ResolvedSchema

NODES_MAX: Final = 10_000
"""Types of a schema, each counted wherever it is used."""

DECIMAL_DIGITS_MAX: Final = 38

PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_MADE_ONE: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions that Spark reads as one number."""

_LOGICAL: Final[dict[tuple[str, str], tuple[pa.DataType, pa.DataType]]] = {
    ("int", "date"): (pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): (pa.timestamp("ms"), pa.timestamp("us", tz="UTC")),
    ("long", "timestamp-micros"): (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    ("long", "local-timestamp-millis"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "local-timestamp-micros"): (pa.timestamp("us"), pa.timestamp("us")),
}
"""Types as decoded, and of the column."""

NO_DEFAULT: Final = object()


@dataclass(frozen=True)
class AvroField:
    name: str
    type: "AvroNode"
    aliases: tuple[str, ...] = ()
    default: Any = field(default=NO_DEFAULT, compare=False)


@dataclass(frozen=True)
class AvroNode:
    kind: str
    """A primitive type, record, enum, fixed, array, map or union."""
    name: str = ""
    """Of a named type, without the namespace: Avro compares these."""
    logical: str = ""
    """A logical type that has a column type of its own."""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    items: "AvroNode | None" = None
    """Of an array; or the values of a map."""
    branches: tuple["AvroNode", ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0

    @cached_property
    def optional(self) -> "AvroNode | None":
        """The other branch of a union of null and one type."""
        others = [each for each in self.branches if each.kind != "null"]
        return others[0] if len(others) == 1 else None

    @cached_property
    def number(self) -> str | None:
        """The type of a union of two numbers, and perhaps null."""
        if any(each.logical for each in self.branches):
            return None
        return _MADE_ONE.get(frozenset(each.kind for each in self.branches) - {"null"})

    @property
    def has_null(self) -> bool:
        return any(each.kind == "null" for each in self.branches)

    @cached_property
    def is_empty(self) -> bool:
        """Whether values have no bytes."""
        if self.kind == "record":
            return all(each.type.is_empty for each in self.fields)
        return self.kind == "null" or (self.kind == "fixed" and not self.size)

    @cached_property
    def decoded_type(self) -> pa.DataType:
        """Of arrays as decoders make them."""
        return self._arrow(0)

    @cached_property
    def column_type(self) -> pa.DataType:
        """Of the column, as Spark has it."""
        return self._arrow(1)

    def _arrow(self, which: int) -> pa.DataType:  # noqa: PLR0911  # one for each kind
        if self.logical == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.logical:
            return _LOGICAL[self.kind, self.logical][which]
        match self.kind:
            case "record":
                return pa.struct([pa.field(each.name, each.type._arrow(which)) for each in self.fields])
            case "enum":
                return pa.string()
            case "fixed":
                return pa.binary()
            case "array" if self.items is not None:
                return pa.list_(pa.field("element", self.items._arrow(which)))
            case "map" if self.items is not None:
                return pa.map_(pa.string(), self.items._arrow(which))
            case "union":
                if self.optional is not None:
                    return self.optional._arrow(which)
                if self.number is not None:
                    return PRIMITIVES[self.number]
                if not any(each.kind != "null" for each in self.branches):
                    return pa.null()
                return pa.struct(
                    [pa.field(name, each._arrow(which)) for name, each in self.members if name is not None]
                )
        return PRIMITIVES[self.kind]

    @property
    def members(self) -> list[tuple[str | None, "AvroNode"]]:
        """The branches of a union with their names in a struct; None for null."""
        found: list[tuple[str | None, AvroNode]] = []
        count = 0
        for each in self.branches:
            found.append((None if each.kind == "null" else f"member{count}", each))
            count += each.kind != "null"
        return found

    @property
    def is_struct_union(self) -> bool:
        return self.kind == "union" and pa.types.is_struct(self.decoded_type) and self.optional is None


def parse_tree(schema: ResolvedSchema) -> AvroNode:
    """Parse a schema. Raises `BadSchema`."""
    reader = _Reader()
    for _, text in schema.references:
        reader.read(_json(text), "")
    return reader.read(_json(schema.text), "")


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except RegistryError as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise BadSchema(f"the Avro schema cannot be parsed: {error}") from None


class _Reader:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        """JSON of named types by full name, with their namespaces."""
        self._open: list[str] = []
        self._count = 0

    def read(self, node: Any, space: str) -> AvroNode:  # one for each form of a type
        self._count += 1
        if self._count > NODES_MAX:
            raise BadSchema(f"the Avro schema has more than {NODES_MAX} types")
        if isinstance(node, str):
            return self._by_name(node, space)
        if isinstance(node, list):
            return AvroNode("union", branches=tuple(self.read(each, space) for each in node))
        if not isinstance(node, dict):
            raise BadSchema(f"the Avro schema has {shown(json.dumps(node))}, expected a type")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.read(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(node, space)
        if kind in ("array", "map"):
            items = self.read(node.get("items" if kind == "array" else "values"), space)
            if kind == "array" and items.is_empty:
                raise BadSchema("the Avro schema has an array of values without bytes, which has no bound")
            return AvroNode(kind, items=items)
        if not isinstance(kind, str):
            raise BadSchema(f"the Avro schema has {shown(json.dumps(node))}, expected a type")
        found = self._by_name(kind, space)
        return _with_logical(found, node) if found.kind in PRIMITIVES else found

    def _by_name(self, name: str, space: str) -> AvroNode:
        if name in PRIMITIVES:
            return AvroNode(name)
        full = name if "." in name or not space else f"{space}.{name}"
        if full not in self._named:
            full = name
        if full not in self._named:
            raise BadSchema(f"the Avro schema names {shown(name)}, which it does not define before")
        return self._expanded(full)

    def _definition(self, node: dict[str, Any], space: str) -> AvroNode:
        name = node.get("name")
        if not isinstance(name, str) or not name:
            raise BadSchema(f"the Avro schema has a {node['type']} without a name")
        if "." not in name:
            space = node.get("namespace", space) or ""
            name = f"{space}.{name}" if space else name
        self._named[name] = node
        return self._expanded(name)

    def _expanded(self, full: str) -> AvroNode:
        if full in self._open:
            raise BadSchema(
                f"the Avro type {shown(full)} contains itself: columns have a depth that is known before"
            )
        node, space = self._named[full], full.rpartition(".")[0]
        short, aliases = full.rpartition(".")[2], tuple(_texts(node.get("aliases", ())))
        if node["type"] == "enum":
            return AvroNode("enum", short, aliases=aliases, symbols=tuple(_texts(node.get("symbols", ()))))
        if node["type"] == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or size < 0:
                raise BadSchema(f"the Avro type {shown(full)} has a size of {size}")
            return _with_logical(AvroNode("fixed", short, aliases=aliases, size=size), node)
        self._open.append(full)
        fields = tuple(self._field(each, space) for each in node.get("fields", ()))
        self._open.pop()
        if len({each.name for each in fields}) != len(fields):
            raise BadSchema(f"the Avro type {shown(full)} has two fields of one name")
        return AvroNode("record", short, aliases=aliases, fields=fields)

    def _field(self, node: Any, space: str) -> AvroField:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str) or "type" not in node:
            raise BadSchema(f"the Avro schema has {shown(json.dumps(node))}, expected a field")
        return AvroField(
            node["name"],
            self.read(node["type"], space),
            tuple(_texts(node.get("aliases", ()))),
            node.get("default", NO_DEFAULT),
        )


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise BadSchema(f"the Avro schema has {shown(json.dumps(values))}, expected a list of names")
    return list(values)


def _with_logical(found: AvroNode, node: dict[str, Any]) -> AvroNode:
    logical = node.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 0 < precision <= DECIMAL_DIGITS_MAX
            and 0 <= scale <= precision
        ):
            return AvroNode(
                found.kind,
                found.name,
                "decimal",
                found.aliases,
                size=found.size,
                precision=precision,
                scale=scale,
            )
    if isinstance(logical, str) and (found.kind, logical) in _LOGICAL:
        return AvroNode(found.kind, logical=logical)
    return found
