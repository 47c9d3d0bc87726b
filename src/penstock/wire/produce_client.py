"""Produce 3 to 13 on the client's side: hand-written codec.

`produce` has the layout and the shared types. Record sets are copied into the body once.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import MalformedRequest, MalformedResponse, UnsupportedVersion
from .leaders import NodeEndpoint, read_endpoints, read_leader
from .primitives import (
    INT32,
    UUID_BYTES,
    Buffer,
    TopicKey,
    count,
    read_count,
    read_nullable_string,
    read_string,
    read_tags,
    skip_tags,
    string,
    topic_key,
    trailing,
    uvarint,
)
from .produce import FLEXIBLE, TOPIC_IDS, VERSION_MAX, VERSION_MIN, ProduceRequest, ProduceResult, RecordError

_ACKS = Struct(">hi")
_RESULT = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")


def check_version(version: int) -> None:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise UnsupportedVersion(f"Produce {version} is not known, expected {VERSION_MIN} to {VERSION_MAX}")


def produce_body(version: int, request: ProduceRequest) -> bytes:
    """The body of a request. Topics go by id from 13 on, by name before."""
    check_version(version)
    flexible = version >= FLEXIBLE
    end = b"\0" if flexible else b""
    pieces: list[Buffer] = [
        string(request.transactional_id, flexible),
        _ACKS.pack(request.acks, request.timeout_ms),
        count(len(request.topics), flexible),
    ]
    for topic, partitions in request.topics:
        pieces += (topic_key(topic, flexible), count(len(partitions), flexible))
        for partition, records in partitions:
            pieces.append(INT32.pack(partition))
            if records is None:
                pieces += (b"\0" if flexible else INT32.pack(-1), end)
            else:
                size = uvarint(len(records) + 1) if flexible else INT32.pack(len(records))
                pieces += (size, records, end)
        pieces.append(end)
    pieces.append(end)
    return b"".join(pieces)


class ProduceResponse(NamedTuple):
    topics: list[tuple[TopicKey, list[ProduceResult]]]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    """The endpoints of the leaders that results name."""


def read_produce_response(body: memoryview, version: int) -> ProduceResponse:
    """The response that fills a body."""
    check_version(version)
    try:
        return _read(body, version)
    except (IndexError, struct_error, UnicodeDecodeError, MalformedRequest) as error:
        raise MalformedResponse(f"Produce {version}: {error}") from error


def _read(body: memoryview, version: int) -> ProduceResponse:
    flexible = version >= FLEXIBLE
    topics = []
    topic_count, at = read_count(body, 0, flexible, 3 if flexible else 6)
    for _ in range(topic_count):
        topic, at = read_topic(body, at, flexible, version >= TOPIC_IDS)
        result_count, at = read_count(body, at, flexible, _RESULT.size)
        results = []
        for _ in range(result_count):
            result, at = _result(body, at, version, flexible)
            results.append(result)
        if flexible:
            at = skip_tags(body, at)
        topics.append((topic, results))
    (throttle_time_ms,) = INT32.unpack_from(body, at)
    at += 4
    endpoints: list[NodeEndpoint] = []
    if flexible:
        found, at = read_tags(body, at)
        if 0 in found and version >= 10:
            endpoints = read_endpoints(body, *found[0])
    if at != len(body):
        raise trailing(body, at)
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def read_topic(body: memoryview, at: int, flexible: bool, ids: bool) -> tuple[TopicKey, int]:
    """The name or the id of a topic."""
    if not ids:
        return read_string(body, at, flexible)
    stop = at + UUID_BYTES
    if stop > len(body):
        raise MalformedRequest(f"a topic id at byte {at} has {len(body) - at} bytes, expected {UUID_BYTES}")
    return bytes(body[at:stop]), stop


def _result(body: memoryview, at: int, version: int, flexible: bool) -> tuple[ProduceResult, int]:
    if version < 5:
        return ProduceResult(*_RESULT.unpack_from(body, at)), at + _RESULT.size
    fields = _RESULT_5.unpack_from(body, at)
    at += _RESULT_5.size
    if version < 8:
        return ProduceResult(*fields), at
    errors = []
    error_count, at = read_count(body, at, flexible, 6)
    for _ in range(error_count):
        (batch_index,) = INT32.unpack_from(body, at)
        text, at = read_nullable_string(body, at + 4, flexible)
        if flexible:
            at = skip_tags(body, at)
        errors.append(RecordError(batch_index, text))
    message, at = read_nullable_string(body, at, flexible)
    leader = None
    if flexible:
        found, at = read_tags(body, at)
        if 0 in found and version >= 10:
            leader = read_leader(body, *found[0])
    result = ProduceResult(*fields)
    return result._replace(record_errors=errors, error_message=message, current_leader=leader), at
