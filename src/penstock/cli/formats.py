"""Output formats of `penstock consume`.

    text     [headers SEP][key SEP]value, one line per record; `produce` reads this format
    value    only the value, one line per record
    raw      only the value, without separators
    full     partition, offset, time, key, value, headers
    hex      partition, offset, and key and value in hex
    json     one object per line
    %...     a template as in kcat

Bytes are written unchanged, except that control characters are escaped on a terminal.
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.cli.output import Refused, printable, show_time
from penstock.records import Record

Writer = Callable[[str, int, Record], bytes]
"""Formats the record of a topic and partition."""

NAMES = ("text", "full", "json", "value", "raw", "hex")


class RecordFormat(NamedTuple):
    name: str
    """One of NAMES, or a template."""
    key_separator: str | None = None
    header_separator: str | None = None
    null_value: str | None = None
    base64: bool = False
    is_terminal: bool = False


def writer_of(form: RecordFormat) -> Writer:
    if "%" in form.name:
        return _template(form)
    makers: dict[str, Callable[[RecordFormat], Writer]] = {
        "text": _text,
        "full": lambda _: _full,
        "json": _json,
        "value": lambda form: _text(form._replace(key_separator=None, header_separator=None)),
        "raw": lambda _: lambda _topic, _partition, record: record.value or b"",
        "hex": lambda _: _hex,
    }
    if form.name not in makers:
        raise Refused(
            f"--format is {form.name!r}, expected one of {', '.join(NAMES)} or a template such as '%t %p %o %k %v'"
        )
    return makers[form.name](form)


def _text(form: RecordFormat) -> Writer:
    null = (form.null_value or "").encode("utf-8", "surrogateescape")
    key_end = _bytes(form.key_separator)
    headers_end = _bytes(form.header_separator)
    show = _for_terminal if form.is_terminal else _as_is

    def write(_topic: str, _partition: int, record: Record) -> bytes:
        line = b""
        if headers_end is not None:
            line += show(_headers(record)) + headers_end
        if key_end is not None:
            line += show(record.key or b"") + key_end
        return line + (null if record.value is None else show(record.value)) + b"\n"

    return write


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.replace("\\t", "\t").encode("utf-8", "surrogateescape")


def _as_is(data: bytes) -> bytes:
    return data


def _for_terminal(data: bytes) -> bytes:
    return _readable(data).encode("utf-8", "backslashreplace")


def _readable(data: bytes | None) -> str:
    return "null" if data is None else printable(data.decode("utf-8", "backslashreplace"))


def _headers(record: Record) -> bytes:
    """In the format of `produce --header-separator`; a header with a null value is only its name."""
    parts = []
    for name, value in record.headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts.append(encoded if value is None else encoded + b"=" + value)
    return b",".join(parts)


def _full(topic: str, partition: int, record: Record) -> bytes:
    time = show_time(record.timestamp) or "-"
    line = f"{topic}-{partition}:{record.offset} {time} {_readable(record.key)} {_readable(record.value)}"
    if record.headers:
        line += f" [{', '.join(f'{printable(name)}={_readable(value)}' for name, value in record.headers)}]"
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _hex(topic: str, partition: int, record: Record) -> bytes:
    def shown(data: bytes | None) -> str:
        return "null" if data is None else data.hex() or "empty"

    return f"{topic}-{partition}:{record.offset} {shown(record.key)} {shown(record.value)}\n".encode()


def _json(form: RecordFormat) -> Writer:
    def write(topic: str, partition: int, record: Record) -> bytes:
        document: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp if record.timestamp >= 0 else None,
            **_json_bytes("key", record.key, form.base64),
            **_json_bytes("value", record.value, form.base64),
        }
        if record.headers:
            document["headers"] = [
                {
                    "key": name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"),
                    **_json_bytes("value", value, form.base64),
                }
                for name, value in record.headers
            ]
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"

    return write


def _json_bytes(name: str, data: bytes | None, always_base64: bool) -> dict[str, str | None]:
    """UTF-8 as text, other bytes as base64 under the name NAMEBase64."""
    if data is not None:
        try:
            if not always_base64:
                return {name: data.decode("utf-8")}
        except UnicodeDecodeError:
            pass
        return {f"{name}Base64": base64.b64encode(data).decode()}
    return {name: None}


# -- templates --------------------------------------------------------------------------------------------

_PART = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
Field = Callable[[str, int, Record], bytes]


def _fields(null: bytes) -> dict[str, Field]:
    def value(_topic: str, _partition: int, record: Record) -> bytes:
        return null if record.value is None else record.value

    def key(_topic: str, _partition: int, record: Record) -> bytes:
        return null if record.key is None else record.key

    def value_size(_topic: str, _partition: int, record: Record) -> bytes:
        return b"%d" % (-1 if record.value is None else len(record.value))

    return {
        "t": lambda topic, _partition, _record: topic.encode(),
        "p": lambda _topic, partition, _record: b"%d" % partition,
        "o": lambda _topic, _partition, record: b"%d" % record.offset,
        "T": lambda _topic, _partition, record: b"%d" % record.timestamp,
        "k": key,
        "K": lambda _topic, _partition, record: b"%d" % (-1 if record.key is None else len(record.key)),
        "v": value,
        "s": value,
        "V": value_size,
        "S": value_size,
        "h": lambda _topic, _partition, record: _headers(record),
        "%": lambda _topic, _partition, _record: b"%",
    }


def _template(form: RecordFormat) -> Writer:
    fields = _fields((form.null_value or "").encode("utf-8", "surrogateescape"))
    parts: list[Field | bytes] = []
    for field, code, escape, plain, odd in _PART.findall(form.name):
        if field:
            if field not in fields:
                raise Refused(f"--format has %{field}, expected one of %{' %'.join(fields)}")
            parts.append(fields[field])
        elif code:
            parts.append(bytes.fromhex(code))
        elif escape:
            parts.append(_ESCAPES.get(escape, f"\\{escape}".encode()))
        elif odd == "%":
            raise Refused("--format ends with %, expected a letter after it")
        else:
            parts.append((plain or odd).encode("utf-8", "surrogateescape"))
    if parts[-1] != b"\n":
        parts.append(b"\n")

    def write(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(each if isinstance(each, bytes) else each(topic, partition, record) for each in parts)

    return write
