"""Counts the error codes of a response, at its top and in its topics, partitions and members.

Where a response class has error codes is found out once, so that counting costs little beside writing the response.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from penstock.base.metrics import Meter

_Walk = Callable[[Meter, Any], None]

_walks: dict[type[Any], _Walk | None] = {}
"""By class of response."""


def count_errors(meter: Meter, response: Any) -> None:
    kind = type(response)
    walk = _walks[kind] if kind in _walks else _walk_of(kind)
    if walk is not None:
        walk(meter, response)


def _walk_of(kind: type[Any]) -> _Walk | None:
    """Counts the errors of a part; None for a class without error codes."""
    if kind not in _walks:
        _walks[kind] = _make_walk(kind)
    return _walks[kind]


def _make_walk(kind: type[Any]) -> _Walk | None:
    codes, parts = [], []
    for each in fields(kind):
        if each.metadata.get("kafka_type") == "error_code":
            codes.append(each.name)
            continue
        inner, is_many = _part_of(each.type)
        walk = None if inner is None else _walk_of(inner)
        if walk is not None:
            parts.append((each.name, walk, is_many))
    if not codes and not parts:
        return None

    def walk_it(meter: Meter, part: Any) -> None:
        for name in codes:
            code = getattr(part, name)
            if code:
                meter.fail(int(code))
        for name, walk, is_many in parts:
            value = getattr(part, name)
            if value is None:
                continue
            if is_many:
                for each in value:
                    walk(meter, each)
            else:
                walk(meter, value)

    return walk_it


def _part_of(hint: Any) -> tuple[type[Any] | None, bool]:
    """The class of a nested part, and whether it is an array."""
    if is_dataclass(hint):
        return hint if isinstance(hint, type) else type(hint), False
    is_many = getattr(hint, "__origin__", None) is tuple
    for each in get_args(hint):
        inner, many = _part_of(each)
        if inner is not None:
            return inner, is_many or many
    return None, False
