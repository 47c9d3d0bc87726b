"""The beginning of long fields of a record, for lists that show many records."""

from collections.abc import Sequence
from typing import NamedTuple

from .batch import Record

Header = tuple[str, bytes | None]

_UTF8_BYTES_MAX = 4


class CutRecord(NamedTuple):
    record: Record
    cut: dict[str, int]
    """By field (key, value, headers): its whole length in bytes, if only the beginning is kept."""


def cut_record(record: Record, bytes_max: int) -> CutRecord:
    """Keep at most `bytes_max` bytes of the key, of the value, and of all headers together. Text is cut between
    characters."""
    key, value = record.key, record.value
    cut: dict[str, int] = {}
    if key is not None and len(key) > bytes_max:
        cut["key"], key = len(key), cut_text(key, bytes_max)
    if value is not None and len(value) > bytes_max:
        cut["value"], value = len(value), cut_text(value, bytes_max)
    headers: Sequence[Header] = record.headers
    if headers:
        headers, whole = cut_headers(headers, bytes_max)
        if whole is not None:
            cut["headers"] = whole
    if not cut:
        return CutRecord(record, cut)
    return CutRecord(record._replace(key=key, value=value, headers=tuple(headers)), cut)


def cut_headers(headers: Sequence[Header], bytes_max: int) -> tuple[list[Header], int | None]:
    """The first headers that have at most `bytes_max` bytes of names and values; and the size of all, if that is
    more."""
    kept: list[Header] = []
    left = bytes_max
    for name, content in headers:
        left -= len(name) + len(content or b"")
        if left < 0:
            return kept, sum(len(each) + len(data or b"") for each, data in headers)
        kept.append((name, content))
    return kept, None


def cut_text(data: bytes, bytes_max: int) -> bytes:
    """The first bytes. A character of UTF-8 that would be cut in two is left out."""
    for back in range(1, min(_UTF8_BYTES_MAX, bytes_max) + 1):
        byte = data[bytes_max - back]
        if byte & 0xC0 != 0x80:  # not a continuation: a character begins here
            needed = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[: bytes_max - back] if needed > back and bytes_max > back else data[:bytes_max]
    return data[:bytes_max]
