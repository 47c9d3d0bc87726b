"""JSON values to Arrow columns.

Objects are decoded by Arrow's reader of JSON lines, many at once, if all types are ones that it converts as meant
here. Other values, and pieces with a value that fails there, are decoded one by one.

Each value begins with `{` and ends with `}`, and Arrow accepts no line break within a string. So no two values can be
taken for one, and if there are as many rows as values, each row is one value.
"""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json

from penstock.arrow.typed.errors import NotDecodable
from penstock.arrow.typed.json_types import is_any, json_text
from penstock.arrow.typed.salvage import Decoded, Slow, decode_all

_INTS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_FAST: Final = frozenset((*_INTS, pa.float32(), pa.float64(), pa.bool_(), pa.string()))


class JsonReader:
    """Decodes JSON values to the column of a field, which may have `json_types.any_field` in it."""

    def __init__(self, field: pa.Field) -> None:
        self._field = field
        self.column_type: pa.DataType = _plain(field.type)
        self._slow = Slow(self._one, self.column_type, lambda array: array)
        self._is_fast = pa.types.is_struct(field.type) and _is_fast(field)
        self._options = pa.json.ParseOptions(
            explicit_schema=pa.schema(list(self.column_type)) if self._is_fast else None,
            unexpected_field_behavior="ignore",
            newlines_in_values=True,
        )

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        return decode_all(payloads, self._all if self._is_fast else None, self._slow)

    def _all(self, payloads: Sequence[bytes]) -> pa.Array:
        if not all(each[:1] == b"{" and each[-1:] == b"}" for each in payloads):
            raise NotDecodable("not an object")
        data = b"\n".join(payloads)
        data.decode()  # Arrow does not check all text
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        found = pa.json.read_json(pa.BufferReader(data), reading, self._options)
        if found.num_rows != len(payloads):
            raise NotDecodable("not one object")
        batch = found.combine_chunks().to_batches()[0]
        return pa.StructArray.from_arrays(batch.columns, fields=list(self.column_type))

    def _one(self, payload: bytes) -> Any:
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotDecodable(f"not JSON: {error}") from None
        except RecursionError:
            raise NotDecodable("JSON that is nested too deeply") from None
        return _converted(value, self._field, "")


def _is_fast(field: pa.Field) -> bool:
    kind = field.type
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(map(_is_fast, kind))
    if pa.types.is_list(kind):
        return _is_fast(kind.value_field)
    return kind in _FAST and not is_any(field)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without metadata, which Spark's types do not have."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _plain(kind.item_type))
    return kind


def _converted(value: Any, field: pa.Field, at: str) -> Any:
    if is_any(field):
        return None if value is None else json_text(value)
    if value is None:
        return None
    kind = field.type
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise _unfit(value, "an object", at)
        return {each.name: _converted(value.get(each.name), each, f"{at}/{each.name}") for each in kind}
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise _unfit(value, "an object", at)
        return [(key, _converted(each, kind.item_field, f"{at}/{key}")) for key, each in value.items()]
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _unfit(value, "an array", at)
        return [_converted(each, kind.value_field, f"{at}/{index}") for index, each in enumerate(value)]
    return _scalar(value, kind, at)


def _scalar(value: Any, kind: pa.DataType, at: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in _INTS:
        if is_number and value == math.floor(value) and abs(value + 0.5) < 2.0 ** (_INTS[kind] - 1) + 0.5:
            return int(value)
        raise _unfit(value, f"a whole number of {_INTS[kind]} bits", at)
    if pa.types.is_floating(kind):
        if is_number:
            return float(value)
        raise _unfit(value, "a number", at)
    if pa.types.is_boolean(kind):
        if isinstance(value, bool):
            return value
        raise _unfit(value, "true or false", at)
    if pa.types.is_decimal(kind) and is_number:
        return Decimal(repr(value)).quantize(Decimal(1).scaleb(-kind.scale))
    if not isinstance(value, str):
        raise _unfit(value, "a string", at)
    return _of_text(value, kind, at)


def _of_text(value: str, kind: pa.DataType, at: str) -> Any:
    try:
        if pa.types.is_timestamp(kind):
            found = datetime.fromisoformat(value)
            if kind.tz is None:
                return found.replace(tzinfo=None)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if pa.types.is_date(kind):
            return date.fromisoformat(value)
        if pa.types.is_decimal(kind):
            return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    except (ValueError, InvalidOperation):
        raise _unfit(value, f"a {kind}", at) from None
    return value.encode() if pa.types.is_binary(kind) else value


def _unfit(value: Any, expected: str, at: str) -> NotDecodable:
    text = json_text(value)
    return NotDecodable(
        f"{at or '/'} is {text if len(text) <= 80 else text[:77] + '...'}, expected {expected}"
    )
