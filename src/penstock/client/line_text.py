"""Keys and names in the line protocol.

Fields are separated by single spaces, and lines end with a line feed. So keys are percent-encoded as in a URL: spaces,
characters that cannot be printed, `%` itself, and bytes that are not UTF-8. `-` stands for no key; the key `-` is
written `%2D`. An empty key is an empty field.
"""

from binascii import unhexlify

NO_KEY = b"-"


def encode_key(key: bytes | None) -> bytes:
    """Encode a key as a field of a line."""
    if key is None:
        return NO_KEY
    if key.isalnum():
        return key
    return b"%2D" if key == NO_KEY else _encoded(key, " %")


def decode_key(word: bytes) -> bytes | None:
    """Decode a field. Raises ValueError if it is malformed."""
    if word == NO_KEY:
        return None
    return word if word.isalnum() else _decoded(word)


def encode_group(group: str) -> bytes:
    """The same for a group's name, where a colon is encoded too."""
    return _encoded(group.encode(), " %:")


def decode_group(word: bytes) -> str:
    return _decoded(word).decode()


def _encoded(data: bytes, special: str) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and not any(each in text for each in special):
        return data
    return "".join(
        each
        if each.isprintable() and each not in special
        else "".join(f"%{byte:02X}" for byte in each.encode("utf-8", "surrogateescape"))
        for each in text
    ).encode()


def _decoded(word: bytes) -> bytes:
    try:
        word.decode()
    except UnicodeDecodeError:
        raise ValueError("bytes that are not UTF-8 are written as %XX") from None
    if b"%" not in word:
        return word
    first, *rest = word.split(b"%")
    try:
        return first + b"".join(unhexlify(each[:2]) + each[2:] for each in rest if _is_long_enough(each))
    except ValueError:
        raise ValueError("after % there are two digits of a hexadecimal number") from None


def _is_long_enough(after_percent: bytes) -> bool:
    if len(after_percent) < 2:
        raise ValueError
    return True
