"""A client's principal, as a broker forwards it to a controller in an Envelope (Kafka's DefaultPrincipalData 0).

version 0 (2 bytes), type and name (compact strings), whether it logged in with a delegation token, no tagged fields
"""

from struct import error as StructError  # noqa: N812  (a class that the module spells like a function)
from typing import NamedTuple

from .errors import MalformedRequest
from .primitives import INT16, read_string, skip_tags, string


class ForwardedPrincipal(NamedTuple):
    principal: str
    """As User:alice."""
    is_by_token: bool
    """Whether the client logged in with a delegation token."""


def write_principal(forwarded: ForwardedPrincipal) -> bytes:
    kind, _, name = forwarded.principal.partition(":")
    return INT16.pack(0) + string(kind, True) + string(name, True) + bytes([forwarded.is_by_token, 0])


def read_principal(data: bytes) -> ForwardedPrincipal:
    """Raises MalformedRequest."""
    frame = memoryview(data)
    try:
        if INT16.unpack_from(frame) != (0,):
            raise MalformedRequest("a forwarded principal has an unknown version, expected 0")
        kind, at = read_string(frame, 2, True)
        name, at = read_string(frame, at, True)
        is_by_token = bool(frame[at])
        skip_tags(frame, at + 1)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"a forwarded principal cannot be read: {error}") from error
    return ForwardedPrincipal(f"{kind}:{name}", is_by_token)
