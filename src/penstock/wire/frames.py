"""Frames and headers: what is around every message.

    frame            length 4 | header | body          the length does not count itself
    request header   api key 2 | version 2 | correlation id 4 | client id, from 1 on | tags, from 2 on
    response header  correlation id 4 | tags, from 1 on

Which header a request has follows from its API and version: 2 where the version is flexible, 1 before,
and 0 for ControlledShutdown 0 alone. Responses have 1 where flexible, else 0, but ApiVersions has 0
always: its reader does not know yet what it is talking to. The client id keeps its old encoding in a flexible header.

A connection asks `cut_frames` for the whole frames in what it has received, and `parse_header` for who
sent one and where its body starts. Nothing is copied: a frame is a slice of the receive buffer.
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
    """Received bytes, cut."""

    frames: list[memoryview]
    """Whole frames in order, without their lengths; slices of the buffer."""
    rest_at: int
    """Where the first byte that belongs to no whole frame is; the end, if all do."""
    wanted: int
    """Bytes that the frame at rest_at has in all, its length included; 0 if that is not known yet."""


def cut_frames(buffer: memoryview, start: int, end: int, request_bytes_max: int) -> Cut:
    """Cut what was received between start and end; the limit is `socket.request.max.bytes`.

    A length is compared with the limit as soon as its four bytes are there, before anyone makes room for
    so many. A frame that is refused takes the frames before it along, as the connection is over.
    """
    frames = []
    wanted = 0
    while end - start >= LENGTH_BYTES:
        (length,) = _UNPACK_LENGTH(buffer, start)
        if not 0 <= length <= request_bytes_max:
            raise BadFrame(f"a frame says it has {length} bytes, expected 0 to {request_bytes_max}")
        stop = start + LENGTH_BYTES + length
        if stop > end:
            wanted = LENGTH_BYTES + length
            break
        frames.append(buffer[start + LENGTH_BYTES : stop])
        start = stop
    return Cut(frames, start, wanted)


class RequestHeader(NamedTuple):
    api_key: int
    """As it came: it need not be one of Api."""
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Where in the frame the body starts."""


def parse_header(frame: memoryview) -> RequestHeader:
    """The header of a request. That of an unknown API is read as version 1, so that it can be told who sent it."""
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
        raise MalformedRequest(f"a request of {len(frame)} bytes has no sound header: {error}") from error
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
        raise MalformedResponse(f"a response of {len(frame)} bytes has no sound header: {error}") from error
