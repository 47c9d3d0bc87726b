"""The conditions, evaluated on Arrow columns: a mask over the rows of a batch.

`contains` and `regex` run in Arrow, which has RE2, over whole columns. `where` runs for each row that they leave.
Matching is on bytes: text that is not UTF-8 is searched as well, and a regular expression's `.` does not match bytes
that are not UTF-8. Of a header both the name and the value are looked at.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.arrays import fixed, offsets_of
from penstock.search.expression import Expression
from penstock.search.query import BadQuery, SearchQuery, check_query
from penstock.search.rows import timestamps_ms

Mask = npt.NDArray[np.bool_]


class Matcher:
    """Raises BadQuery if the query cannot be run."""

    def __init__(self, query: SearchQuery) -> None:
        check_query(query)
        self.query = query
        self._fields = ("key", "value", "headers") if query.field == "any" else (query.field,)
        if query.regex is not None:
            _check_regex(query.regex)
        self.expression = None if query.where is None else Expression(query.where)

    def mask(self, rows: pa.RecordBatch, partition: int) -> Mask:
        """The rows that match, of a batch with all columns."""
        query = self.query
        found = np.ones(len(rows), np.bool_)
        if query.since_ms is not None or query.before_ms is not None:
            found &= _within(rows, query)
        if query.contains is not None and found.any():
            found &= self._any_field(rows, lambda column: _contains(column, query.contains))
        if query.regex is not None and found.any():
            found &= self._any_field(rows, lambda column: _matches(column, query.regex))
        if self.expression is not None and found.any():
            chosen = rows if found.all() else rows.take(fixed(np.flatnonzero(found), pa.int64()))
            found[found] = self.expression.matches(partition, chosen)
        return found

    def _any_field(self, rows: pa.RecordBatch, test: Any) -> Mask:
        found = np.zeros(len(rows), np.bool_)
        for name in self._fields:
            column = rows.column(name)
            found |= _headers(column, test) if name == "headers" else test(column)
        return found


def _check_regex(pattern: str) -> None:
    import re2  # noqa: PLC0415  # 20 ms, and not for every search

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        why = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise BadQuery(f"regex is not a regular expression in RE2's syntax: {why}") from None
    except UnicodeEncodeError:
        raise BadQuery("regex is not text that UTF-8 can have") from None


def _within(rows: pa.RecordBatch, query: SearchQuery) -> Mask:
    times = timestamps_ms(rows)
    found = np.ones(len(times), np.bool_)
    if query.since_ms is not None:
        found &= times >= query.since_ms
    if query.before_ms is not None:
        found &= times < query.before_ms
    return found


def _contains(column: pa.Array, needle: bytes | None) -> Mask:
    return _bools(pc.match_substring(column, pattern=needle))


def _matches(column: pa.Array, pattern: str | None) -> Mask:
    # As text without a check: RE2 reads any bytes, and never beyond them.
    text = column if column.type == pa.string() else column.view(pa.string())
    return _bools(pc.match_substring_regex(text, pattern=pattern))


def _headers(column: pa.Array, test: Any) -> Mask:
    """Whether the name or the value of any header of each row passes a test."""
    found = np.zeros(len(column), np.bool_)
    entries = column.values
    if not len(entries) or column.null_count == len(column):
        return found
    passed: Mask = test(entries.field(0).cast(pa.binary())) | test(entries.field(1))
    if passed.any():
        edges = offsets_of(column)
        counts = np.concatenate(([0], np.cumsum(passed)))
        found = counts[edges[1:]] > counts[edges[:-1]]
    return found


def _bools(column: pa.Array) -> Mask:
    """A mask; null counts as false. From the bitmaps: `fill_null` and `to_numpy` would import pandas."""
    validity, values = column.buffers()
    mask = _bits(values, column)
    return mask & _bits(validity, column) if column.null_count else mask


def _bits(bitmap: pa.Buffer, column: pa.Array) -> Mask:
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(np.bool_)
