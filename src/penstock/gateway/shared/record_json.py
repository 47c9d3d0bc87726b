"""Records as JSON: bytes in base64, or as the text or JSON that they are.

base64   keys, values and headers' values in base64; null is null
text     the same as text; what is not UTF-8 is {"base64": "..."}
json     values as the JSON that they are, keys and headers as text; a value that is not JSON is {"text": "..."},
         and what is not UTF-8 {"base64": "..."}
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.records import Record
from penstock.records.cutting import cut_record

DECODINGS: Final = ("base64", "text", "json")
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class JsonHeader(msgspec.Struct):
    key: str
    value: Any


class JsonRecord(msgspec.Struct, omit_defaults=True):
    """A record, or the fields of it that `columns` names."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    """Milliseconds since 1970."""
    key: Any = UNSET
    """As `decode` says: base64, or text; null if the record has none."""
    value: Any = UNSET
    """As `decode` says: base64, text or JSON; null if the record has none."""
    headers: list[JsonHeader] | UnsetType = []
    """Left out if there are none."""
    topic: str | UnsetType = UNSET
    """Only if `columns` names it."""
    cut: dict[str, int] = {}
    """Lengths in bytes of fields (key, value, headers) of which only the beginning is shown. Left out if there are
    none."""


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": data}


_parse = msgspec.json.Decoder().decode
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        _parse(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        text = _text(data)
        return {"text": text} if isinstance(text, str) else text
    # Line ends inside strings are escaped; others are insignificant, and would end an event or a line.
    return msgspec.Raw(data.translate(_LINE_ENDS))


def _name(name: str) -> str:
    """A header's name. Bytes that are not UTF-8 are surrogates here, which JSON cannot have, and are replaced."""
    return name if name.isprintable() else name.encode(errors="surrogateescape").decode(errors="replace")


def _as_it_is(data: bytes | None) -> Any:
    return data


_KEYS: Final[dict[str, Callable[[bytes | None], Any]]] = {"base64": _as_it_is, "text": _text, "json": _text}
_VALUES: Final[dict[str, Callable[[bytes | None], Any]]] = {**_KEYS, "json": _json}


def show(partition: int, records: list[Record], decoding: str) -> list[JsonRecord]:
    """Records of a partition, for msgspec to encode: it writes bytes in base64."""
    key, value = _KEYS[decoding], _VALUES[decoding]
    return [
        JsonRecord(
            partition,
            each.offset,
            each.timestamp,
            key(each.key),
            value(each.value),
            [JsonHeader(_name(name), key(content)) for name, content in each.headers] if each.headers else [],
        )
        for each in records
    ]


def show_cut(partition: int, records: list[Record], decoding: str, field_bytes_max: int) -> list[JsonRecord]:
    """The same with long fields cut."""
    cut = [cut_record(each, field_bytes_max) for each in records]
    shown = show(partition, [each.record for each in cut], decoding)
    for each, row in zip(cut, shown, strict=True):
        row.cut = each.cut
    return shown


def show_some(topic: str, shown: list[JsonRecord], fields: Collection[str]) -> None:
    """Keep only the requested fields of records."""
    hidden = [each for each in FIELDS if each not in fields]
    for each in shown:
        each.topic = topic
        for name in hidden:
            setattr(each, name, UNSET)
