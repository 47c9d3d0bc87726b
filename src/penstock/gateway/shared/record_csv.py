"""Records as CSV (RFC 4180): UTF-8, lines end with CRLF, the first names the fields.

A missing key or value is an empty field without quotes; an empty one is `""`. Text is always in quotes, so line ends
and commas inside it are part of it. What JSON shows as an object, such as `{"base64": "..."}` for bytes that are not
UTF-8, is that JSON as text; so is the list of headers.

Fields are written as they are. A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula: quotes
do not prevent that, and a changed text would no longer be the record's.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.gateway.shared.record_json import JsonRecord

_encode = msgspec.json.Encoder().encode


def csv_line(names: Sequence[str]) -> bytes:
    """The first line."""
    return ",".join(names).encode() + b"\r\n"


def csv_lines(records: Sequence[JsonRecord], fields: Sequence[str]) -> bytes:
    lines = (",".join(_field(getattr(each, name)) for name in fields) for each in records)
    return "".join(f"{line}\r\n" for line in lines).encode()


def _field(value: Any) -> str:
    text: str
    if value is None or value is UNSET or value == []:
        return ""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        text = b64encode(value).decode()
    elif isinstance(value, str):
        text = value
    elif isinstance(value, dict) and isinstance(value.get("text"), str):
        text = value["text"]
    else:
        text = _encode(value).decode()
    return '"' + text.replace('"', '""') + '"'
