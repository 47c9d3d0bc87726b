"""Avro: parsing, and the text that schemas are compared by.

The text is that of Java's `Schema.toString`: attributes in a fixed order, no spaces, each named type defined where it
is first used and named afterwards, `{"type": "int"}` as `"int"`. Attributes that Avro does not know are kept.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Final

import avro.errors
import avro.schema
from avro.name import Names

from penstock.registry.errors import RegistryError, invalid_schema, shown
from penstock.registry.formats.limits import json_line, parse_json
from penstock.registry.schema import ResolvedSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_RESERVED: Final = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD: Final = ("name", "type", "doc", "default", "order", "aliases")
_INTS: Final = {"int": 2**31, "long": 2**63}


class AvroSchema:
    def __init__(self, schema: Any, data: Any) -> None:
        self.schema = schema
        """Names are resolved in it."""
        self._data = data

    @property
    def canonical(self) -> str:
        return json_line(self._data)

    @property
    def normalized(self) -> str:
        return json_line(_Canonical(is_sorted=True).render(self._data, ""))

    identity = canonical
    """Schemas with the same are the same."""


def parse(schema: ResolvedSchema, *, is_new: bool = False) -> AvroSchema:
    """Parse a schema. A new one must have defaults that fit their types. Raises `RegistryError`."""
    names = Names()
    for name, text in schema.references:
        try:
            _make(_Canonical().render(parse_json(text), ""), names)
        except RegistryError as error:
            raise invalid_schema(f"Invalid schema: the reference {shown(name)}: {error}") from None
    try:
        data = _Canonical().render(parse_json(schema.text), "")
        made = _make(data, names)
        if is_new:
            _check_defaults(made)
    except RegistryError as error:
        raise RegistryError(error.error_code, f"Invalid schema of type AVRO: {error}") from None
    return AvroSchema(made, data)


def _make(data: Any, names: Names) -> Any:
    names.default_namespace = None
    try:
        if isinstance(data, str) and data and names.has_name(data):
            return names.get_name(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of logical types that the library does not know
            return avro.schema.make_avsc_object(data, names)
    except (avro.errors.AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
        raise invalid_schema(shown(error)) from None


class _Canonical:
    """Rewrites the JSON of a schema into its canonical form."""

    def __init__(self, *, is_sorted: bool = False) -> None:
        self._is_sorted = is_sorted
        """Whether attributes that Avro does not know are sorted."""

    def render(self, node: Any, space: str) -> Any:  # noqa: PLR0911  # one for each form of a type
        """`space` is the enclosing namespace."""
        if isinstance(node, str):
            return self._name(node, space)
        if isinstance(node, list):
            return [self.render(each, space) for each in node]
        if not isinstance(node, dict):
            raise invalid_schema(f"{shown(json_line(node))} is not a type")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.render(kind, space)
        if not isinstance(kind, str):
            raise invalid_schema(f"{shown(json_line(node))} has no type")
        if kind in _NAMED:
            return self._named(kind, node, space)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in node:
                raise invalid_schema(f"an {kind} has no {inner}")
            return {"type": kind, inner: self.render(node[inner], space), **self._more(node, _RESERVED[kind])}
        more = self._more(node, ("type",))
        if kind in PRIMITIVES and more:
            return {"type": kind, **more}
        return self._name(kind, space)

    def _named(self, kind: str, node: Mapping[str, Any], space: str) -> dict[str, Any]:
        name, own, short = _full_name(kind, node, space)
        made: dict[str, Any] = {"type": kind, "name": short}
        if own != space:
            made["namespace"] = own
        if node.get("doc") is not None:
            made["doc"] = node["doc"]
        if kind in ("record", "error"):
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise invalid_schema(f"the record {shown(name)} has no list of fields")
            made["fields"] = [self._field(each, own, name) for each in fields]
        elif kind == "enum":
            made["symbols"] = node.get("symbols")
            if node.get("default") is not None:
                made["default"] = node["default"]
                if made["default"] not in (made["symbols"] or ()):
                    raise invalid_schema(f"the default of the enum {shown(name)} is not one of its symbols")
        else:
            made["size"] = node.get("size")
        made |= self._more(node, _RESERVED[kind])
        aliases = node.get("aliases")
        if aliases is not None:
            if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
                raise invalid_schema(f"the aliases of {shown(name)} are not a list of texts")
            made["aliases"] = [each.removeprefix(f"{own}.") if own else each for each in aliases]
        return made

    def _field(self, node: Any, space: str, record: str) -> dict[str, Any]:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise invalid_schema(f"a field of the record {shown(record)} has no name")
        if "type" not in node:
            raise invalid_schema(f"the field {shown(node['name'])} of the record {shown(record)} has no type")
        made: dict[str, Any] = {"name": node["name"], "type": self.render(node["type"], space)}
        if node.get("doc") is not None:
            made["doc"] = node["doc"]
        if "default" in node:
            made["default"] = node["default"]
        if node.get("order") not in (None, "ascending"):
            made["order"] = node["order"]
        if node.get("aliases") is not None:
            made["aliases"] = node["aliases"]
        return made | self._more(node, _FIELD)

    def _more(self, node: Mapping[str, Any], reserved: tuple[str, ...]) -> dict[str, Any]:
        names = [name for name in node if name not in reserved]
        return {name: node[name] for name in (sorted(names) if self._is_sorted else names)}

    @staticmethod
    def _name(name: str, space: str) -> str:
        own, dot, short = name.rpartition(".")
        return short if dot and own == space and short not in PRIMITIVES else name


def _full_name(kind: str, node: Mapping[str, Any], space: str) -> tuple[str, str, str]:
    """The name as it is written, the namespace, and the name within it."""
    name = node.get("name")
    if not isinstance(name, str) or not name:
        raise invalid_schema(f"a type {kind} has no name")
    own, dot, short = name.rpartition(".")
    if not dot:
        own = node.get("namespace", space) or ""
        if not isinstance(own, str):
            raise invalid_schema(f"the namespace of {shown(name)} is not a text")
    return name, own, short


# -- defaults ------------------------------------------------------------------------------------------


def _check_defaults(schema: Any) -> None:
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.type in ("record", "error"):
            for field in each.fields:
                if field.has_default and not _fits(field.type, field.default, 0):
                    raise invalid_schema(
                        f"the default of the field {shown(field.name)} is {shown(json_line(field.default))}, which is "
                        f"no {field.type.type}"
                    )
                waiting.append(field.type)
        elif each.type == "array":
            waiting.append(each.items)
        elif each.type == "map":
            waiting.append(each.values)
        elif each.type in ("union", "error_union"):
            waiting += each.schemas


def _fits(schema: Any, value: Any, depth: int) -> bool:  # noqa: PLR0911  # one line a type
    kind = schema.type
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if depth > 100:
        return False
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _INTS:
        return is_number and float(value).is_integer() and -_INTS[kind] <= value < _INTS[kind]
    if kind in ("float", "double"):
        return is_number
    if kind in ("string", "bytes", "fixed"):
        return isinstance(value, str)
    if kind == "enum":
        return isinstance(value, str) and value in schema.symbols
    if kind == "array":
        return isinstance(value, list) and all(_fits(schema.items, each, depth + 1) for each in value)
    if kind == "map":
        return isinstance(value, dict) and all(
            _fits(schema.values, each, depth + 1) for each in value.values()
        )
    if kind in ("union", "error_union"):
        return any(_fits(each, value, depth + 1) for each in schema.schemas)
    return isinstance(value, dict) and all(
        _fits(each.type, value[each.name], depth + 1) if each.name in value else each.has_default
        for each in schema.fields
    )
