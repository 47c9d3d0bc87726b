"""Avro, JSON Schema and Protobuf. For each: a module that parses schemas, and one that compares them.

A parsed schema has its `canonical` text, which is stored; a `normalized` one; and an `identity`, equal for texts of
the same schema. Importing a format imports its library.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from penstock.registry.compatibility import Difference
from penstock.registry.errors import invalid_schema, shown
from penstock.registry.formats.limits import check_size
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema

_MODULES: Final = {AVRO: "avro", JSON: "json", PROTOBUF: "protobuf"}


class Format(NamedTuple):
    parse: Callable[..., Any]
    differences: Callable[[Any, Any], list[Difference]]
    """Why the first cannot read what the second wrote."""


def format_of(name: str) -> Format:
    """Raises ModuleNotFoundError if its library is not installed."""
    if name not in _MODULES:
        raise invalid_schema(f"Invalid schema type {shown(name)}")
    prefix = f"{__name__}.{_MODULES[name]}"
    return Format(
        import_module(f"{prefix}_schema").parse, import_module(f"{prefix}_compatibility").differences
    )


def parse(schema: ResolvedSchema, *, is_new: bool = False) -> Any:
    check_size(schema.text)
    return format_of(schema.type).parse(schema, is_new=is_new)
