"""Keys and names within a line of the line protocol.

Fields are separated by single spaces, and a line by its end from the next. So what a key has of these is
percent-encoded, as in a URL: spaces, whatever cannot be printed, `%` itself, bytes that are not UTF-8. `-` is no key
at all, and the key that is a dash is `%2D`. A key of no bytes is a field of none.
"""

from binascii import unhexlify

NO_KEY = b"-"


def encode_key(key: bytes | None) -> bytes:
    """As it stands in a line."""
    if key is None:
        return NO_KEY
    if key.isalnum():
        return key
    return b"%2D" if key == NO_KEY else _encoded(key, " %")


def decode_key(word: bytes) -> bytes | None:
    """What a field of a line says; ValueError where it says nothing."""
    if word == NO_KEY:
        return None
    return word if word.isalnum() else _decoded(word)


def encode_group(group: str) -> bytes:
    """The same for a group's name, in which a colon would end it."""
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
