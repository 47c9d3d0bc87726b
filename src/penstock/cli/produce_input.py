"""Sources of records for `penstock produce`: lines, JSON lines, whole files, or generated.

A source yields records, and None while it waits for input, so that the producer can send: a typed line is sent at
once, not with the next line. The length of a line is bounded.
"""

import base64
import binascii
import json
import os
import random
import select
import string
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from penstock.cli.output import Refused

Headers = tuple[tuple[str, bytes | None], ...]

LINE_BYTES_MAX = 64 * 2**20
"""More than any broker accepts in one record."""
_READ_BYTES = 64 * 1024


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class LineFormat(NamedTuple):
    """How a line is parsed: [headers SEPARATOR][key SEPARATOR]value."""

    key_separator: bytes | None = None
    header_separator: bytes | None = None
    null_value: bytes | None = None
    """This value is sent as null, a tombstone."""
    key: bytes | None = None
    headers: Headers = ()
    """Headers of every record, before those of its line. `key` is the key of lines without one."""


def read_lines(stream: BinaryIO, name: str, idle_ms: Callable[[], float]) -> Iterator[bytes | None]:
    """Yield lines without line ends, and None after waiting for idle_ms."""
    try:
        descriptor = stream.fileno()
    except OSError:
        yield from _lines_of(stream, name)  # an in-memory stream
        return
    kept = b""
    while True:
        wait_ms = idle_ms()
        ready, _, _ = select.select([descriptor], [], [], None if wait_ms == float("inf") else wait_ms / 1000)
        if not ready:
            yield None
            continue
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = kept + lines[0]
            kept = rest
            yield from lines
        else:
            kept += rest
        if len(kept) > LINE_BYTES_MAX:
            raise _too_long(name)
    if kept:
        yield kept


def _lines_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    while line := stream.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise _too_long(name)
        yield line.removesuffix(b"\n")


def _too_long(name: str) -> Refused:
    return Refused(f"{name}: a line has more than {LINE_BYTES_MAX} bytes")


def parse_line(line: bytes, form: LineFormat, where: str) -> NewRecord:
    line = line.removesuffix(b"\r")
    headers, key = form.headers, form.key
    if form.header_separator is not None:
        head, found, line = line.partition(form.header_separator)
        if not found:
            raise Refused(f"{where}: expected {_shown(form.header_separator)} after the headers")
        headers += parse_headers(head, where)
    if form.key_separator is not None:
        own_key, found, line = line.partition(form.key_separator)
        if not found:
            raise Refused(f"{where}: expected {_shown(form.key_separator)} after the key")
        key = own_key
    value = None if form.null_value is not None and line == form.null_value else line
    return NewRecord(key, value, headers)


def _shown(separator: bytes) -> str:
    """In quotes, with `\\t` for a tab."""
    return repr(separator.decode("utf-8", "backslashreplace"))


def parse_headers(text: bytes, where: str) -> Headers:
    """`name=value,name=value`; a name alone has no value."""
    headers = []
    for part in text.split(b",") if text else []:
        name, equals, value = part.partition(b"=")
        if not name:
            raise Refused(f"{where}: {part.decode(errors='replace')!r} is not a header: expected NAME=VALUE")
        headers.append((name.decode("utf-8", "surrogateescape"), value if equals else None))
    return tuple(headers)


# -- JSON -------------------------------------------------------------------------------------------------

_FIELDS = frozenset(
    (
        "key",
        "value",
        "keyBase64",
        "valueBase64",
        "headers",
        "partition",
        "timestamp",
        "topic",
        "offset",
        "time",
    )
)
"""topic, offset and time are ignored: `consume` prints them, and its output is valid input."""


def parse_json(line: bytes, form: LineFormat, where: str) -> NewRecord:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise Refused(f"{where}: not JSON: {error}; --format text sends lines as they are") from error
    if not isinstance(document, dict):
        raise Refused(f"{where}: expected an object, not {type(document).__name__}")
    unknown = sorted(document.keys() - _FIELDS)
    if unknown:
        raise Refused(f"{where}: unknown field {unknown[0]!r}")
    key = _bytes_of(document, "key", where)
    return NewRecord(
        form.key if key is None else key,
        _bytes_of(document, "value", where),
        form.headers + _json_headers(document.get("headers"), where),
        _integer(document, "partition", where),
        _integer(document, "timestamp", where),
    )


def _bytes_of(document: dict[str, Any], name: str, where: str) -> bytes | None:
    encoded = document.get(f"{name}Base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise Refused(f"{where}: {name}Base64 is not base64") from error
    return _as_bytes(document.get(name))


def _as_bytes(value: Any) -> bytes | None:
    """Text unchanged, null as None, other values as JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _json_headers(headers: Any, where: str) -> Headers:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        return tuple((name, _as_bytes(value)) for name, value in headers.items())
    if isinstance(headers, list) and all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers
    ):
        return tuple((each["key"], _bytes_of(each, "value", where)) for each in headers)
    raise Refused(f'{where}: headers are {{"name": "value"}} or [{{"key": "name", "value": "value"}}]')


def _integer(document: dict[str, Any], name: str, where: str) -> int | None:
    value = document.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise Refused(f"{where}: {name} is {value!r}, expected a number of at least 0")


# -- the sources ------------------------------------------------------------------------------------------


def from_lines(
    paths: list[str], form: LineFormat, *, as_json: bool, idle_ms: Callable[[], float]
) -> Iterator[NewRecord | None]:
    """Yield records from the lines of files in order. `-`, or no file, is standard input."""
    parse = parse_json if as_json else parse_line
    for path in paths or ["-"]:
        name = "standard input" if path == "-" else path
        if path == "-" and sys.stdin is None:
            raise Refused("standard input is closed: name a file to read")
        stream = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115  # closed below
        try:
            number = 0
            for line in read_lines(stream, name, idle_ms):
                if line is None:
                    yield None
                    continue
                number += 1
                if as_json and not line.strip():
                    continue
                yield parse(line, form, f"{name}, line {number}")
        finally:
            if path != "-":
                stream.close()


def from_whole_files(paths: list[str], form: LineFormat) -> Iterator[NewRecord]:
    for path in paths:
        with open(path, "rb") as file:
            value = file.read(LINE_BYTES_MAX + 1)
        if len(value) > LINE_BYTES_MAX:
            raise Refused(f"{path} has more than {LINE_BYTES_MAX} bytes: too large for one record")
        yield NewRecord(form.key, value, form.headers)


def generated(size: int, form: LineFormat, rng: random.Random) -> Iterator[NewRecord]:
    """Yield records with distinct, numbered values of `size` bytes, without end."""
    letters = "".join(rng.choices(string.ascii_lowercase, k=size + 8192)).encode()
    number = 0
    while True:
        at = number * 7919 % 8192  # a prime, so that neighbouring values compress little
        value = (b"%d " % number + letters[at : at + size])[:size]
        yield NewRecord(form.key, value, form.headers)
        number += 1
