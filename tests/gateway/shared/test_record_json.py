"""Records as JSON: whatever bytes they have."""

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.shared.record_json import DECODINGS, show
from penstock.records import Record

some_bytes = (
    st.none()
    | st.binary(max_size=20)
    | st.sampled_from([b"1", b'"a"', b"{}", b'{"a":\r\n1}', b"nan", b'"\n"'])
)


def encoded(record: Record, decoding: str) -> dict[str, object]:
    data = msgspec.json.encode(show(3, [record], decoding)[0])
    assert b"\n" not in data
    assert b"\r" not in data
    shown: dict[str, object] = json.loads(data)
    return shown


@given(some_bytes, some_bytes, some_bytes, st.sampled_from(DECODINGS))
def test_every_record_is_one_line_of_json_and_nothing_of_it_is_lost(
    key: bytes | None, value: bytes | None, header: bytes | None, decoding: str
) -> None:
    shown = encoded(Record(7, 9, key, value, (("h", header),)), decoding)
    assert (shown["partition"], shown["offset"], shown["timestamp"]) == (3, 7, 9)
    assert taken(shown["key"], decoding) == key
    [[name, content]] = [list(each.values()) for each in shown["headers"]]  # type: ignore[attr-defined]
    assert name == "h"
    assert taken(content, decoding) == header
    if decoding == "json" and not (
        isinstance(shown["value"], dict) and shown["value"].keys() & {"text", "base64"}
    ):
        assert shown["value"] == (None if value is None else json.loads(value))
    elif decoding == "json" and isinstance(shown["value"], dict) and "text" in shown["value"]:
        assert shown["value"]["text"].encode() == value
    else:
        assert taken(shown["value"], decoding) == value


def taken(shown: object, decoding: str) -> bytes | None:
    """The bytes that were shown so."""
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"])
    if shown is None:
        return None
    assert isinstance(shown, str)
    return base64.b64decode(shown) if decoding == "base64" else shown.encode()


@pytest.mark.parametrize("decoding", DECODINGS)
def test_name_of_a_header_that_is_not_utf_8_is_shown_as_far_as_it_goes(decoding: str) -> None:
    shown = encoded(Record(0, 0, None, None, (("a\udcff", b""),)), decoding)
    assert shown["headers"][0]["key"] == "a�"  # type: ignore[index]
