"""Bounds on schemas of every format, and JSON within them."""

import json
from typing import Any, Final

from penstock.registry.errors import RegistryError, invalid_schema, too_large

SCHEMA_CHARACTERS_MAX: Final = 1 << 20
"""As much as a record of `_schemas` may have by default (`max.message.bytes`)."""

DEPTH_MAX: Final = 100
"""Levels of nesting. The parsers recurse, and Python allows a thousand calls within each other."""


def check_size(text: str) -> None:
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise too_large(f"The schema has {len(text)} characters, expected at most {SCHEMA_CHARACTERS_MAX}")


def too_deep(what: str = "The schema") -> RegistryError:
    return invalid_schema(f"{what} is nested more deeply than {DEPTH_MAX} levels")


def check_brackets(text: str, opening: str, closing: str) -> None:
    """Raise if a text has more than `DEPTH_MAX` open brackets at a place, before a parser that recurses sees it. Those
    in strings and comments count too: a schema that has so many is not one to accept."""
    depth = 0
    for letter in text:
        if letter in opening:
            depth += 1
            if depth > DEPTH_MAX:
                raise too_deep()
        elif letter in closing and depth:
            depth -= 1


def parse_json(text: str) -> Any:
    """JSON with a bounded depth. Numbers are Python's: integers of any size that the text has room for."""
    depth = _json_depth(text)
    if depth > DEPTH_MAX:
        raise too_deep()
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"it is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _json_depth(text: str) -> int:
    """The most brackets that are open at a place, outside of strings."""
    depth = deepest = 0
    in_string = is_escaped = False
    for letter in text:
        if in_string:
            if is_escaped:
                is_escaped = False
            elif letter == "\\":
                is_escaped = True
            elif letter == '"':
                in_string = False
        elif letter == '"':
            in_string = True
        elif letter in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "}]":
            depth -= 1
    return deepest


def json_line(value: Any, *, is_sorted: bool = False) -> str:
    """JSON without spaces, in the order of its fields unless sorted."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=is_sorted)
