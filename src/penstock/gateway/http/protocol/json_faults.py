"""What is wrong with a body, in words of JSON: the decoder speaks of Python's types, and of what it met last."""

import re

_TRUNCATED = "Input data was truncated"

_HALF_AT_END = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}.{0,9}\Z", re.DOTALL)
"""The decoder looks for the other half of such a pair in the bytes behind it, and meets the end of the body first."""


def not_json(body: bytes, error: Exception) -> str:
    """Of a body that is none."""
    if str(error) == _TRUNCATED:
        half = _HALF_AT_END.search(body, max(0, len(body) - 16))
        if half is not None:
            return f"{half[0][:6].decode()} is the first half of a surrogate pair, and the second does not follow"
    return str(error)


def unfit(error: Exception) -> str:
    """Of a body that is not as its route describes it."""
    return (
        str(error)
        .replace("`bytes | null`", "base64 text or null")
        .replace("`bytes`", "base64 text")
        .replace(
            "Invalid base64 encoded string", "Expected base64 text, with `=` to a multiple of four letters"
        )
    )
