"""Messages of any kind, made from kio's own classes, and what every parser is put through."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from random import Random
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.wire import KAFKA_RANGES, Api
from penstock.wire.errors import BadFrame, MalformedRequest, MalformedResponse

EVERY_VERSION = [
    (api, version) for api, (low, high) in KAFKA_RANGES.items() for version in range(low, high + 1)
]

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ERRORS = list(KioErrorCode)


def make(entity_type: type[Any], rng: Random) -> Any:
    """Some entity of a type: edges and short lists, tagged fields told or not."""
    return entity_type(**{field.name: _value(field, rng) for field in fields(entity_type)})


def _value(field: Any, rng: Random) -> Any:
    is_tagged = "tag" in field.metadata
    if is_tagged and field.default is not MISSING and rng.random() < 0.5:
        return field.default
    annotation = field.type
    if NoneType in get_args(annotation):
        if rng.random() < 0.3 and not is_tagged:
            return None
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    kafka_type = field.metadata.get("kafka_type")
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return tuple(_one(kafka_type, item, rng) for _ in range(rng.randrange(3)))
    return _one(kafka_type, annotation, rng)


def _one(kafka_type: str | None, annotation: Any, rng: Random) -> Any:  # noqa: PLR0911 (one line a type)
    if kafka_type is None:
        return make(annotation, rng)
    if kafka_type in _INTEGERS:
        edge = 1 << (_INTEGERS[kafka_type] - 1)
        return rng.choice([0, 1, -1, -edge, edge - 1, rng.randrange(-edge, edge)])
    match kafka_type:
        case "uint16" | "uint32":
            return rng.randrange(1 << int(kafka_type[4:]))
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "string":
            return "".join(rng.choices("abc-._é漢", k=rng.choice([0, 1, 5, 140])))
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 130]))
        case "uuid":
            return UUID(int=rng.randrange(1, 1 << 128))
        case "error_code":
            return rng.choice(_ERRORS)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=rng.randrange(-(1 << 31), 1 << 31))
        case "datetime_i64":
            return datetime.fromtimestamp(rng.randrange(1 << 32), tz=UTC)
    raise NotImplementedError(kafka_type)


def corrupted(data: bytes, rng: Random) -> bytes:
    """The same bytes with a few changed, or cut, or put in."""
    damaged = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(damaged) + 1)
        match rng.randrange(4):
            case 0:
                damaged[at : at + 1] = bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])])
            case 1:
                damaged[at : at + 4] = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
            case 2:
                damaged[at:at] = rng.randbytes(rng.randrange(5))
            case _:
                del damaged[at : at + rng.randrange(4)]
    return bytes(damaged)


def assault(
    parse: Callable[[memoryview], object],
    data: bytes,
    rng: Random,
    rounds: int = 10,
    *,
    may_have_tail: bool = False,
) -> None:
    """h11's habit: whole, cut at every byte, with a tail; and then damaged."""
    parse(memoryview(data))
    refused = (MalformedRequest, MalformedResponse)
    for end in range(len(data)):
        with pytest.raises(refused):
            parse(memoryview(data)[:end])
    if may_have_tail:
        assert parse(memoryview(data + b"\0")) == parse(memoryview(data))
    else:
        with pytest.raises(refused):
            parse(memoryview(data + b"\0"))
    for _ in range(rounds):
        try:
            parse(memoryview(corrupted(data, rng)))
        except (*refused, BadFrame):
            pass


def latest(api: Api) -> int:
    return KAFKA_RANGES[api].max
