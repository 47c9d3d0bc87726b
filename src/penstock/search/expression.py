"""The condition in CEL, Google's Common Expression Language, on decoded JSON.

    value.user == "alice" && value.amount > 100.0
    has(value.error) || key.startsWith("eu-")
    timestamp > timestamp("2026-01-31T12:00:00Z") && headers.trace == "7"

The expression is compiled once, and its types are checked then. For each record it has these variables:

    key         text; bytes if it is not UTF-8; null if the record has none
    value       the JSON that it is; else text; else bytes; null for a tombstone
    headers     a map from names to text, or bytes; of equal names the last counts
    partition, offset    whole numbers
    timestamp   a CEL timestamp

A record for which the expression fails, because a field is missing or has another type, does not match; such records
are counted. CEL has no loops without an end: cel-cpp stops an evaluation after 10,000 iterations, limits nesting to 32
and matches regular expressions with RE2.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.search.query import BadQuery
from penstock.search.rows import Headers, headers_lists, timestamps_ms

JSON_BYTES_MAX: Final = 8 << 20
"""Larger values are not decoded: as Python objects they take up to twenty times as much."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_decode_json = msgspec.json.Decoder().decode


class Expression:
    """A compiled expression. `failed_count` grows with each record that it cannot be evaluated for."""

    def __init__(self, source: str) -> None:
        try:
            from cel_expr_python import cel  # noqa: PLC0415  # only for searches with an expression
        except ImportError as error:
            raise BadQuery(f"where needs the package cel-expr-python: {error}") from None
        names = {
            "key": cel.Type.DYN,
            "value": cel.Type.DYN,
            "headers": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
            "partition": cel.Type.INT,
            "offset": cel.Type.INT,
            "timestamp": cel.Type.TIMESTAMP,
        }
        try:
            self._program = cel.NewEnv(variables=names).compile(source)
        except Exception as error:  # the binding raises RuntimeError, and others for what is not text
            raise BadQuery(f"where is not a CEL expression: {_first_line(str(error))}") from None
        kind = self._program.return_type()
        if kind not in (cel.Type.BOOL, cel.Type.DYN):
            raise BadQuery(f"where is an expression of type {kind.name()}, expected true or false")
        self._bool = cel.Type.BOOL
        self._names = tuple(names)
        self._uses = {name for name in names if re.search(rf"\b{name}\b", source) is not None}
        """The variables that the expression may have; others are not computed."""
        self.failed_count = 0
        self.failed_why = ""

    def matches(self, partition: int, rows: pa.RecordBatch) -> list[bool]:
        """Whether each row matches, of a batch with all columns."""
        columns = [(name, convert, read(rows)) for name, convert, read in _VARIABLES if name in self._uses]
        data: dict[str, Any] = dict.fromkeys(self._names)
        data |= {"headers": {}, "partition": partition, "offset": 0, "timestamp": _EPOCH}
        found = []
        for index in range(len(rows)):
            try:
                for name, convert, values in columns:
                    data[name] = convert(values[index])
                found.append(self._evaluate(data))
            except (
                Exception
            ) as error:  # the binding raises RuntimeError and others; none concerns the next record
                found.append(self._failed(str(error) or type(error).__name__))
        return found

    def _evaluate(self, data: dict[str, Any]) -> bool:
        result = self._program.eval(data=data)
        if result.type() == self._bool:
            return bool(result.value())
        return self._failed(str(result.value()))

    def _failed(self, why: str) -> bool:
        self.failed_count += 1
        if not self.failed_why:
            self.failed_why = _first_line(why)
        return False


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"the value has {len(data)} bytes; where decodes at most {JSON_BYTES_MAX}")
    try:
        return _decode_json(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _text(data)


def _headers(headers: Headers) -> dict[str, Any]:
    return {name: _text(content) for name, content in headers}


def _moment(timestamp_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=timestamp_ms)


_VARIABLES: Final[tuple[tuple[str, Callable[[Any], Any], Callable[[pa.RecordBatch], Sequence[Any]]], ...]] = (
    ("key", _text, lambda rows: rows.column("key").to_pylist()),
    ("value", _json, lambda rows: rows.column("value").to_pylist()),
    ("headers", _headers, lambda rows: headers_lists(rows.column("headers"))),
    ("offset", int, lambda rows: rows.column("offset").to_pylist()),
    ("timestamp", _moment, lambda rows: timestamps_ms(rows).tolist()),
)
"""Those that differ from row to row: name, conversion of a value, values of all rows."""


def _first_line(text: str) -> str:
    """The first line of an error, without cel-cpp's status names around it."""
    line = re.sub(r"^(?:[A-Z_]+: )?(?:ERROR: )?(?:<input>:)?", "", text.strip().partition("\n")[0])
    return re.sub(r" \[[A-Z_]+\]$", "", line)[:300]
