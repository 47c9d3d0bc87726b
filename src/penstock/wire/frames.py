"""Frames and headers.

    frame            length 4 | header | body          the length does not count itself
    request header   api key 2 | version 2 | correlation id 4 | client id, from 1 on | tags, from 2 on
    response header  correlation id 4 | tags, from 1 on

The API and version of a request determine its header: version 2 where the request is flexible, 1 before, and 0 for
ControlledShutdown 0. Responses have header 1 where flexible, else 0; ApiVersions always has 0, since its reader does
not know the broker's versions yet. The client id keeps its old encoding in a flexible header.

A frame is a slice of the receive buffer: nothing is copied.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .catalogue import FIRST_FLEXIBLE, NEVER, Api, is_flexible
from .errors import BadFrame, MalformedRequest, MalformedResponse
from .primitives import INT32, skip_tags, string, too_long

LENGTH_BYTES = 4
_UNPACK_LENGTH = INT32.unpack_from

_HEAD = Struct(">hhih")
"""API key, version, correlation id, and the length of the client id."""
_UNPACK_HEAD = _HEAD.unpack_from
_HEAD_BYTES = 10
_HEAD_0 = Struct(">hhi")
_CONTROLLED_SHUTDOWN = int(Api.CONTROLLED_SHUTDOWN)

_RESPONSE_0 = Struct(">ii")
_RESPONSE_1 = Struct(">iix")
"""With an empty set of tagged fields."""

_new = tuple.__new__


class Cut(NamedTuple):
    """Received bytes, cut into frames."""

    frames: list[memoryview]
    """Complete frames in order, without their lengths; slices of the buffer."""
    rest_at: int
    """The position of the first byte after the last complete frame."""
    wanted: int
    """The size of the frame at `rest_at`, with its length field; 0 if not known yet."""


def cut_frames(buffer: memoryview, start: int, end: int, request_bytes_max: int) -> Cut:
    """Cut the bytes from start to end into frames; the limit is `socket.request.max.bytes`.

    A length is checked as soon as its four bytes have arrived, before a buffer of that size is allocated. An invalid
    length discards the frames before it, since the connection is closed.
    """
    frames = []
    wanted = 0
    while end - start >= LENGTH_BYTES:
        (length,) = _UNPACK_LENGTH(buffer, start)
        if not 0 <= length <= request_bytes_max:
            raise BadFrame(f"A frame has length {length}, expected 0 to {request_bytes_max}.")
        stop = start + LENGTH_BYTES + length
        if stop > end:
            wanted = LENGTH_BYTES + length
            break
        frames.append(buffer[start + LENGTH_BYTES : stop])
        start = stop
    return Cut(frames, start, wanted)


class RequestHeader(NamedTuple):
    api_key: int
    """Any number, not only those of `Api`."""
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """The position of the body in the frame."""


def parse_header(frame: memoryview) -> RequestHeader:
    """The header of a request. For an unknown API it is read as version 1, so that the client id can be logged."""
    try:
        key, version, correlation_id, size = _UNPACK_HEAD(frame)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(key, version, correlation_id, None, _HEAD_0.size)
        if size >= 0:
            at = _HEAD_BYTES + size
            if at > len(frame):
                raise too_long("the client id", size, frame, _HEAD_BYTES)
            client_id = str(frame[_HEAD_BYTES:at], "utf-8")
        elif size == -1:
            at = _HEAD_BYTES
            client_id = None
        else:
            raise MalformedRequest(f"the client id has length {size}, expected -1 or more")
        if version >= FIRST_FLEXIBLE.get(key, NEVER):
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise MalformedRequest(f"A request of {len(frame)} bytes has no valid header: {error}") from error
    return _new(RequestHeader, (key, version, correlation_id, client_id, at))


def response_header_version(key: int, version: int) -> int:
    return 1 if key != Api.API_VERSIONS and is_flexible(key, version) else 0


def response_frame(api: Api, version: int, correlation_id: int, body: bytes) -> bytes:
    """A response ready to send: length, header, body."""
    if response_header_version(api, version) == 1:
        return _RESPONSE_1.pack(len(body) + 5, correlation_id) + body
    return _RESPONSE_0.pack(len(body) + 4, correlation_id) + body


def request_frame(api: Api, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A request ready to send, from a client's side."""
    header = _HEAD_0.pack(api, version, correlation_id)
    if api is not Api.CONTROLLED_SHUTDOWN or version:
        header += string(client_id, False)
    if is_flexible(api, version):
        header += b"\0"
    return INT32.pack(len(header) + len(body)) + header + body


def parse_response_header(frame: memoryview, api: Api, version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its body starts."""
    try:
        (correlation_id,) = INT32.unpack_from(frame)
        return correlation_id, skip_tags(frame, 4) if response_header_version(api, version) else 4
    except (IndexError, struct_error, MalformedRequest) as error:
        raise MalformedResponse(f"A response of {len(frame)} bytes has no valid header: {error}") from error
