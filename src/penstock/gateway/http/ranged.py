"""Parts of a file that does not change: `Range`, `If-Range` and what is answered to them (RFC 9110, section 14).

Who reads Parquet asks for its end first, and then for the columns that it wants.
"""

from collections.abc import Mapping
from typing import Final

from penstock.gateway.http.messages import HttpError, Out, Response, Stream
from penstock.gateway.steps import Steps
from penstock.vfs import File

PORTION_BYTES: Final = 1 << 18
_DIGITS_MAX = 18


def whole_or_part(
    file: File,
    size: int,
    tag: str,
    content_type: str,
    asked: Mapping[str, str],
    headers: tuple[tuple[str, str], ...],
) -> Stream | Response:
    """The file, or the part of it that the request's headers ask for."""
    about = (("ETag", f'"{tag}"'), ("Accept-Ranges", "bytes"), *headers)
    part = None
    if asked.get("if-range", f'"{tag}"') == f'"{tag}"':
        part = _part(asked.get("range", ""), size)
    if part is None:
        return Stream(
            lambda out: _send(out, file, 0, size), content_type, 200, (("Content-Length", str(size)), *about)
        )
    first, end = part
    if first >= end:
        error = HttpError(416, "range_not_satisfiable", f"the file has {size} bytes, from 0 to {size - 1}")
        error.headers = (("Content-Range", f"bytes */{size}"),)
        raise error
    return Stream(
        lambda out: _send(out, file, first, end),
        content_type,
        206,
        (("Content-Length", str(end - first)), ("Content-Range", f"bytes {first}-{end - 1}/{size}"), *about),
    )


def _part(text: str, size: int) -> tuple[int, int] | None:
    """First byte and the one behind the last; None for the whole, as for what is not understood."""
    unit, sign, span = text.partition("=")
    if unit.strip().lower() != "bytes" or not sign or "," in span:
        return None
    first, dash, last = (each.strip() for each in span.partition("-"))
    if not dash or not all(each.isascii() and (not each or each.isdigit()) for each in (first, last)):
        return None
    if max(len(first), len(last)) > _DIGITS_MAX or not (first or last):
        return None
    if not first:
        return max(size - int(last), 0), size
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size


def _send(out: Out, file: File, first: int, end: int) -> Steps[None]:
    try:
        while first < end:
            data = file.pread(min(PORTION_BYTES, end - first), first)
            if not data:
                raise OSError(f"{file.path} ends at {first}, expected {end} bytes")
            out.write(data)
            first += len(data)
            yield out.ready()
    finally:
        file.close()
