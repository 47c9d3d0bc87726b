from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.errors import MalformedRequest
from penstock.wire.primitives import (
    INT32_MAX,
    TAGS_MAX,
    read_count,
    read_nullable_string,
    read_string,
    read_tags,
    read_uvarint,
    skip_tags,
    string,
    tags,
    uvarint,
)

EDGES = [0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455, 268435456, INT32_MAX]


@given(st.sampled_from(EDGES) | st.integers(0, INT32_MAX))
def test_a_varint_reads_as_it_was_written(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(memoryview(encoded + b"x"), 0) == (value, len(encoded))
    for end in range(len(encoded)):
        with pytest.raises(IndexError):
            read_uvarint(memoryview(encoded)[:end], 0)


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\x80" * 5 + b"\0"])
def test_a_varint_beyond_31_bits_or_five_bytes_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_uvarint(memoryview(encoded), 0)


@given(st.none() | st.text(), st.booleans())
def test_a_string_reads_as_it_was_written(text: str | None, flexible: bool) -> None:
    encoded = string(text, flexible)
    assert read_nullable_string(memoryview(encoded), 0, flexible) == (text, len(encoded))


@pytest.mark.parametrize(("encoded", "flexible"), [(b"\0", True), (b"\xff\xff", False), (b"\xff\xfe", False)])
def test_a_null_is_refused_where_a_string_is_expected(encoded: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedRequest):
        read_string(memoryview(encoded), 0, flexible)


@pytest.mark.parametrize(
    ("encoded", "flexible"),
    [
        (b"\x7f\xff\xff\xff", False),
        (b"\xff\xff\xff\xff", False),
        (b"\0", True),
        (b"\xff\xff\xff\xff\x07", True),
    ],
)
def test_a_count_is_rejected_unless_so_many_items_can_follow(encoded: bytes, flexible: bool) -> None:
    with pytest.raises(MalformedRequest):
        read_count(memoryview(encoded + bytes(40)), 0, flexible, 1)


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=4))
def test_tagged_fields_are_found_or_skipped(fields: dict[int, bytes]) -> None:
    """KIP-482: whoever does not know a tag skips it by its size."""
    encoded = tags(fields)
    view = memoryview(encoded + b"tail")
    assert skip_tags(view, 0) == len(encoded)
    spans, at = read_tags(view, 0)
    assert at == len(encoded)
    assert {tag: bytes(view[start:stop]) for tag, (start, stop) in spans.items()} == fields


def test_a_tag_that_is_there_twice_is_refused() -> None:
    """KIP-482: tags ascend."""
    with pytest.raises(MalformedRequest, match="twice"):
        read_tags(memoryview(b"\2\1\1a\1\1b"), 0)


@pytest.mark.parametrize("read", [skip_tags, read_tags])
def test_tagged_fields_are_few(read: Callable[[memoryview, int], object]) -> None:
    """A frame full of them took microseconds for each, and so seconds."""
    read(memoryview(tags(dict.fromkeys(range(TAGS_MAX), b""))), 0)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        read(memoryview(tags(dict.fromkeys(range(TAGS_MAX + 1), b""))), 0)


@pytest.mark.parametrize("read", [skip_tags, read_tags])
def test_a_tagged_field_that_is_longer_than_what_is_left_is_refused(read: object) -> None:
    with pytest.raises(MalformedRequest):
        read(memoryview(b"\1\0\x05abcd"), 0)  # type: ignore[operator]
    with pytest.raises(IndexError):
        read(memoryview(b"\x07"), 0)  # type: ignore[operator]
