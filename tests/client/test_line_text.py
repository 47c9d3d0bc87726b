"""Keys and groups within a line: whatever their bytes are, they come back, and the line stays a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.line_text import decode_group, decode_key, encode_group, encode_key


@given(st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_every_key_comes_back_from_a_line(key: bytes | None) -> None:
    word = encode_key(key)

    assert decode_key(word) == key
    assert not set(word) & set(b" \r\n\t\x00")
    word.decode()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_every_name_of_a_group_comes_back_from_a_line(group: str) -> None:
    word = encode_group(group)

    assert decode_group(word) == group
    assert not set(word) & set(b" \r\n\t\x00:")


@pytest.mark.parametrize(
    ("key", "word"),
    [
        (None, b"-"),
        (b"-", b"%2D"),
        (b"", b""),
        (b"--", b"--"),
        (b"customer-7", b"customer-7"),
        (b"a:b", b"a:b"),
        (b"two words", b"two%20words"),
        (b"100%", b"100%25"),
        (b"a\nb\r", b"a%0Ab%0D"),
        (b"\x00\xff", b"%00%FF"),
        ("Grüße".encode(), "Grüße".encode()),
        ("\u2028".encode(), b"%E2%80%A8"),
    ],
)
def test_a_key_is_encoded_only_where_a_line_needs_it(key: bytes | None, word: bytes) -> None:
    assert encode_key(key) == word
    assert decode_key(word) == key


@pytest.mark.parametrize("word", [b"%", b"%4", b"a%", b"%zz", b"%+1", b"% 1", b"%1\xff", b"\xff", b"%41%"])
def test_what_is_no_key_is_refused(word: bytes) -> None:
    with pytest.raises(ValueError, match="%"):
        decode_key(word)


def test_hexadecimal_digits_may_be_of_either_case() -> None:
    assert decode_key(b"%fF%Ff") == b"\xff\xff"
