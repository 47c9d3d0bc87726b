"""Writes large responses in slices: kio writes an entity in one piece, at some 10 us for each of its parts.

This module writes entities with arrays of entities field by field, as kio does, and lets kio write the rest. The
writer is a generator that yields after every SLICE_BYTES; its value is the body.
"""

from collections.abc import Callable, Generator
from dataclasses import fields
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeVar

from kio.serial import entity_writer
from kio.serial._introspect import EntityTupleField, classify_field, get_field_tag
from kio.serial._serialize import get_field_writer
from kio.serial.writers import write_int32, write_unsigned_varint

from .catalogue import Api
from .messages import response_type, write_response

SLICE_BYTES: Final = 8192
"""Bytes written between yields: some 200 parts, which take 2 to 4 ms."""

LARGE_PARTS_MIN: Final = 300
"""A response of fewer parts is written in one piece."""

P = TypeVar("P")
_Write = Callable[[Any, Any], None]


class _Field(NamedTuple):
    name: str
    write: _Write
    """The whole field."""
    part: _Write | None
    """One part of it, where it is an array of entities; None for any other field."""
    kind: type[Any] | None
    """What its parts are."""


class _Plan(NamedTuple):
    fields: tuple[_Field, ...]
    is_flexible: bool


_plans: dict[type[Any], _Plan | None] = {}
"""By class of response."""


def _plan(kind: type[Any]) -> _Plan | None:
    """How to write an entity field by field; None for one without arrays of entities, or with tagged fields."""
    if kind not in _plans:
        _plans[kind] = _make_plan(kind)
    return _plans[kind]


def _make_plan(kind: type[Any]) -> _Plan | None:
    found: list[_Field] = []
    for field in fields(kind):
        if get_field_tag(field) is not None:
            return None
        write = get_field_writer(field, flexible=kind.__flexible__, is_request_header=False, is_tag=False)
        match classify_field(field):
            case EntityTupleField(part):
                found.append(_Field(field.name, write, entity_writer(part), part))
            case _:
                found.append(_Field(field.name, write, None, None))
    return _Plan(tuple(found), kind.__flexible__) if any(each.part for each in found) else None


def is_large(entity: Any) -> bool:
    """Whether a response has enough parts to be written in slices."""
    return _count(entity, LARGE_PARTS_MIN) >= LARGE_PARTS_MIN


def _count(entity: Any, enough: int) -> int:
    """The number of parts of an entity, counted up to `enough`."""
    plan = _plan(type(entity))
    total = 0
    for each in () if plan is None else plan.fields:
        parts = getattr(entity, each.name) if each.part is not None else None
        if parts:
            total += len(parts)
            if each.kind is not None and _plan(each.kind) is not None:
                for part in parts:
                    if total >= enough:
                        return total
                    total += _count(part, enough - total)
    return total


def write_response_in_slices(
    api: Api, version: int, entity: Any, pause: Callable[[], P]
) -> Generator[P, Any, bytes]:
    """The body of a response, as `write_response` has it. Yields a `pause` between slices."""
    if type(entity) is not response_type(api, version):
        return write_response(api, version, entity)  # raises
    body = BytesIO()
    yield from _write(body, entity, pause)
    return body.getvalue()


def _write(body: BytesIO, entity: Any, pause: Callable[[], P]) -> Generator[P, Any, None]:
    plan = _plan(type(entity))
    if plan is None:
        entity_writer(type(entity))(body, entity)
        return
    for name, write, write_part, kind in plan.fields:
        value = getattr(entity, name)
        if write_part is None or kind is None or not value:
            write(body, value)
            continue
        if plan.is_flexible:
            write_unsigned_varint(body, len(value) + 1)  # type: ignore[arg-type]
        else:
            write_int32(body, len(value))  # type: ignore[arg-type]
        is_deep = _plan(kind) is not None
        for part in value:
            before = body.tell() // SLICE_BYTES
            if is_deep:
                yield from _write(body, part, pause)
            else:
                write_part(body, part)
            if body.tell() // SLICE_BYTES > before:
                yield pause()
    if plan.is_flexible:
        body.write(b"\0")  # no tagged fields
