"""Sets the throttle time of a response that is already encoded.

Nearly every response has the field, and nearly always it is 0. So responses are built without it in mind, and the few
of throttled clients are changed afterwards.
"""

from dataclasses import fields
from functools import cache
from typing import Final

from .catalogue import Api, is_flexible
from .frames import response_header_version
from .messages import response_module
from .primitives import INT32

_FRAME_BYTES: Final = 8
"""The length and the correlation id."""

_SECOND: Final = frozenset((Api.OFFSET_DELETE,))
"""Behind an error code."""

_LAST: Final = frozenset(
    (
        Api.PRODUCE,
        Api.CREATE_DELEGATION_TOKEN,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_DELEGATION_TOKEN,
    )
)
"""The last field. Responses of a broker to Produce have no tagged fields."""

_FIRST: Final = frozenset((Api.FETCH,))
"""Known without loading the classes of the response."""


@cache
def throttle_time_at(api: Api, version: int) -> int | None:
    """Where a response frame has its throttle time, from the end if negative; None if it has none, or none at a fixed
    place (ApiVersions)."""
    head = _FRAME_BYTES + response_header_version(api, version)
    if api in _FIRST:
        return head
    if api in _LAST:
        return -5 if is_flexible(api, version) else -4
    if api in _SECOND:
        return head + 2
    names = [each.name for each in fields(getattr(response_module(api, version), f"{api.label}Response"))]
    return head if names[:1] == ["throttle_time"] else None


def with_throttle_time(api: Api, version: int, frame: bytes | bytearray, delay_ms: int) -> bytes | bytearray:
    """The response with the longer of its own throttle time and this one. A bytearray is changed in place."""
    at = throttle_time_at(api, version)
    if at is None:
        return frame
    if at < 0:
        at += len(frame)
    delay_ms = max(delay_ms, INT32.unpack_from(frame, at)[0])
    if isinstance(frame, bytearray):
        INT32.pack_into(frame, at, delay_ms)
        return frame
    return frame[:at] + INT32.pack(delay_ms) + frame[at + 4 :]
