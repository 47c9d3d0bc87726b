"""Content negotiation (`Accept`) and parts of a file (`Range` and conditions), as in RFC 9110 sections 12 to 14.

Readers of Parquet request the end of a file first, and then the columns that they need.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from penstock.base.steps import Steps
from penstock.gateway.exports.store import FilePart, FileRequest
from penstock.gateway.http.protocol.messages import HttpError, Out, Response, Stream
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.vfs import File

RANGES_MAX = 64
"""Entries of an Accept header that are read. A browser sends eight."""


@lru_cache(maxsize=256)
def preferred(accept: str, content_types: Sequence[str]) -> str | None:
    """The content type that the client prefers, the first among equals; None if it accepts none.

    `content_types` must be a tuple. An empty header accepts everything.
    """
    if not accept.strip():
        return content_types[0]
    wanted = [_range(each) for each in accept.split(",")[:RANGES_MAX]]
    best: str | None = None
    best_quality = 0.0
    for content_type in content_types:
        quality = _quality(content_type.partition(";")[0], wanted)
        if quality > best_quality:
            best, best_quality = content_type, quality
    return best


def _range(text: str) -> tuple[str, float]:
    """A media range and its quality; other parameters are ignored."""
    name, *parameters = text.split(";")
    quality = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return name.strip().lower(), quality if 0.0 <= quality <= 1.0 else 0.0


def _quality(content_type: str, wanted: Sequence[tuple[str, float]]) -> float:
    """The quality of the most specific range that matches: text/html before text/* before */*."""
    whole = content_type.partition("/")[0] + "/*"
    for name in (content_type, whole, "*/*"):
        for each, quality in wanted:
            if each == name:
                return quality
    return 0.0


PORTION_BYTES: Final = 1 << 17
TAGS_MAX: Final = 16
"""In `If-Match`."""
_DIGITS_MAX = 18


def requested_part(headers: Mapping[str, str], *, is_head: bool) -> FileRequest:
    """The part of a file that a request asks for, before the file is known."""
    named = headers.get("if-match") or headers.get("if-range") or ""
    tags = tuple(each.strip() for each in named.split(","))[:TAGS_MAX] if named not in ("", "*") else ()
    if is_head:
        return FileRequest(FilePart.SIZE, tags=tags)
    span = _span(headers.get("range", ""))
    if span is None:
        return FileRequest(FilePart.WHOLE, tags=tags)
    first, last = span
    if first is None:
        return FileRequest(FilePart.END, last or 0, tags)
    return FileRequest(FilePart.MIDDLE if first else FilePart.START, tags=tags)


def whole_or_part(
    fair_queue: FairQueue,
    file: File,
    size: int,
    tag: str,
    content_type: str,
    asked: Mapping[str, str],
    headers: tuple[tuple[str, str], ...],
) -> Stream | Response:
    """The file, or the part of it that the request's headers ask for."""
    about = (("ETag", f'"{tag}"'), ("Accept-Ranges", "bytes"), *headers)
    needed = asked.get("if-match", "*")
    if needed != "*" and f'"{tag}"' not in requested_part(asked, is_head=False).tags:
        file.close()
        raise HttpError(412, "changed", f'the file is now "{tag}", which If-Match does not name')
    part = None
    if asked.get("if-range", f'"{tag}"') == f'"{tag}"':
        part = _part(asked.get("range", ""), size)
    if part is None:
        return Stream(
            lambda out: _send(fair_queue, out, file, 0, size),
            content_type,
            200,
            (("Content-Length", str(size)), *about),
        )
    first, end = part
    if first >= end:
        file.close()
        message = f"the file has {size} bytes, from 0 to {size - 1}"
        raise HttpError(416, "range_not_satisfiable", message, (("Content-Range", f"bytes */{size}"),))
    return Stream(
        lambda out: _send(fair_queue, out, file, first, end),
        content_type,
        206,
        (("Content-Length", str(end - first)), ("Content-Range", f"bytes {first}-{end - 1}/{size}"), *about),
    )


def _span(text: str) -> tuple[int | None, int | None] | None:
    """First and last byte of a range, or None and the length of the end. None for the whole file, and for a range that
    is not understood."""
    unit, sign, span = text.partition("=")
    if unit.strip().lower() != "bytes" or not sign or "," in span:
        return None
    first, dash, last = (each.strip() for each in span.partition("-"))
    if not dash or not all(each.isascii() and (not each or each.isdigit()) for each in (first, last)):
        return None
    if max(len(first), len(last)) > _DIGITS_MAX or not (first or last):
        return None
    if first and last and int(last) < int(first):
        return None
    return int(first) if first else None, int(last) if last else None


def _part(text: str, size: int) -> tuple[int, int] | None:
    """First byte, and the end after the last; None for the whole file."""
    span = _span(text)
    if span is None:
        return None
    first, last = span
    if first is None:
        return max(size - (last or 0), 0), size
    return first, size if last is None else min(last + 1, size)


def _send(fair_queue: FairQueue, out: Out, file: File, first: int, end: int) -> Steps[None]:
    try:
        while first < end:
            yield from fair_queue.to_write(out)
            data = file.pread(min(PORTION_BYTES, end - first), first)
            if not data:
                raise OSError(f"{file.path} ends at {first}, expected {end} bytes")
            out.write(data)
            first += len(data)
    finally:
        file.close()
