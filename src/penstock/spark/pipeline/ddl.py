"""Checks a schema in SQL syntax without Spark: `id BIGINT, tags ARRAY<STRING>, at TIMESTAMP NOT NULL`.

Spark parses schemas and decides. This module finds common mistakes early: a bracket that is not
closed, a column without a type, an unknown type.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Final

from .errors import shown

_TYPES = """
array bigint binary boolean byte char character date dec decimal double
float geography geometry int integer interval long map numeric real
short smallint string struct time timestamp timestamp_ltz timestamp_ntz
tinyint varchar variant void
"""
TYPES: Final = frozenset(_TYPES.split())

_COLUMN = re.compile(r"\s*\d*[^\W\d]\w*(?:\s*:\s*|\s+)(?P<type>\w+)(?P<rest>.*)", re.DOTALL)
_NAME = re.compile(r"`(?:[^`]|``)+`")
_COMMENT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_OPENS = {")": "(", ">": "<"}
_EXPECTED = "expected columns with types, such as `id BIGINT, tags ARRAY<STRING>`"


def wrong_in_schema(schema: str) -> str | None:
    """The mistakes of a schema that can be found here."""
    text = _COMMENT.sub("''", _NAME.sub("name", schema))  # quoted text may contain any character
    opened: list[str] = []
    for mark in re.findall(r"[<>()]", text):
        if mark in "<(":
            opened.append(mark)
        elif not opened or opened.pop() != _OPENS[mark]:
            return f"{shown(schema)} has a {mark} that was not opened, {_EXPECTED}"
    if opened:
        return f"{shown(schema)} has a {opened[-1]} that is not closed, {_EXPECTED}"
    return next(_wrong_columns(schema, text), None)


def _wrong_columns(schema: str, text: str) -> Iterator[str]:
    for part in _parts(text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            yield f"{shown(schema)} has {shown(part.strip())} for a column, {_EXPECTED}"
            continue
        kind, rest = found["type"], found["rest"].strip()
        if kind.lower() not in TYPES:
            near = difflib.get_close_matches(kind.lower(), sorted(TYPES), 1)
            hint = f"did you mean {near[0].upper()}?" if near else _EXPECTED
            yield f"{shown(schema)} has the unknown type {kind}; {hint}"
        elif kind.lower() == "struct" and rest.startswith("<"):
            inner = rest[1 : rest.rindex(">")]
            if inner.strip():
                yield from _wrong_columns(schema, inner)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth = start = 0
    for at, mark in enumerate(text):
        depth += (mark in "<(") - (mark in ">)")
        if mark == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
