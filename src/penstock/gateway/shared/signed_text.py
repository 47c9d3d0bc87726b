"""Texts that a browser keeps for the node: signed, so that the browser cannot change them.

    base64url(content) "." base64url(HMAC-SHA-256(key, purpose NUL base64url(content)))

The purpose keeps a text of one kind from being taken for one of another.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

CHARS_MAX: Final = 3800
"""A browser keeps cookies of 4096 bytes, with their name and attributes."""


def sign(key: bytes, purpose: str, content: bytes) -> str:
    body = urlsafe_b64encode(content).rstrip(b"=").decode()
    return f"{body}.{_mark(key, purpose, body)}"


def verified(key: bytes, purpose: str, text: str) -> bytes | None:
    """The content; None if this node, or one with the same key, has not signed the text for this purpose."""
    import hmac  # noqa: PLC0415  (loads OpenSSL)

    body, _, mark = text.partition(".")
    if len(text) > CHARS_MAX or not text.isascii():
        return None
    if not hmac.compare_digest(_mark(key, purpose, body), mark):
        return None
    return urlsafe_b64decode(body + "=" * (-len(body) % 4))


def _mark(key: bytes, purpose: str, body: str) -> str:
    import hmac  # noqa: PLC0415  (loads OpenSSL)

    digest = hmac.digest(key, f"{purpose}\0{body}".encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
