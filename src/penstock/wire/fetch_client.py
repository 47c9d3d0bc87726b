"""Fetch 4 to 18 on the client's side: hand-written codec.

`fetch` has the layout and the shared types. The records of a partition are a slice of the response, and must be copied
to outlive the receive buffer.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import MalformedRequest, MalformedResponse, UnsupportedVersion
from .fetch import (
    CONSUMER,
    FLEXIBLE,
    HIGH_WATERMARK_UNTOLD,
    REPLICA_STATE,
    SESSIONS,
    TOPIC_IDS,
    VERSION_MAX,
    VERSION_MIN,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResult,
    SnapshotId,
)
from .leaders import CurrentLeader, NodeEndpoint, read_endpoints, read_leader
from .primitives import (
    INT32,
    INT64,
    TopicKey,
    count,
    read_count,
    read_tags,
    read_uvarint,
    skip_tags,
    string,
    tags,
    too_long,
    topic_key,
    trailing,
)
from .produce_client import read_topic

_HEAD = Struct(">iiib")
_SESSION = Struct(">ii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_REPLICA = Struct(">iqx")


def check_version(version: int) -> None:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise UnsupportedVersion(f"Fetch {version} is not known, expected {VERSION_MIN} to {VERSION_MAX}")


def fetch_body(version: int, request: FetchRequest) -> bytes:
    """The body of a request. Topics go by id from 13 on, by name before; what a version cannot say is left out."""
    check_version(version)
    flexible = version >= FLEXIBLE
    end = b"\0" if flexible else b""
    pieces = [] if version >= REPLICA_STATE else [INT32.pack(request.replica_id)]
    pieces.append(
        _HEAD.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    )
    if version >= SESSIONS:
        pieces.append(_SESSION.pack(request.session_id, request.session_epoch))
    pieces.append(count(len(request.topics), flexible))
    for topic, partitions in request.topics:
        pieces += (topic_key(topic, flexible), count(len(partitions), flexible))
        pieces += [_partition(each, version) for each in partitions]
        pieces.append(end)
    if version >= SESSIONS:
        pieces.append(count(len(request.forgotten), flexible))
        for topic, indexes in request.forgotten:
            pieces += (topic_key(topic, flexible), count(len(indexes), flexible))
            pieces += (Struct(f">{len(indexes)}i").pack(*indexes), end)
    if version >= 11:
        pieces.append(string(request.rack_id, flexible))
    if flexible:
        pieces.append(_request_tags(request, version))
    return b"".join(pieces)


def _partition(asked: FetchPartition, version: int) -> bytes:
    partition, epoch, offset, fetched_epoch, log_start, bytes_max, directory_id, high_watermark = asked
    if version < 5:
        return _PARTITION_4.pack(partition, offset, bytes_max)
    if version < 9:
        return _PARTITION_5.pack(partition, offset, log_start, bytes_max)
    if version < FLEXIBLE:
        return _PARTITION_9.pack(partition, epoch, offset, log_start, bytes_max)
    fields = {}
    if directory_id is not None and version >= 17:
        fields[0] = directory_id
    if high_watermark != HIGH_WATERMARK_UNTOLD and version >= 18:
        fields[1] = INT64.pack(high_watermark)
    head = _PARTITION_12.pack(partition, epoch, offset, fetched_epoch, log_start, bytes_max)
    return head + (tags(fields) if fields else b"\0")


def _request_tags(request: FetchRequest, version: int) -> bytes:
    fields = {}
    if request.cluster_id is not None:
        fields[0] = string(request.cluster_id, True)
    if version >= REPLICA_STATE and (request.replica_id, request.replica_epoch) != (CONSUMER, -1):
        fields[1] = _REPLICA.pack(request.replica_id, request.replica_epoch)
    return tags(fields)


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    """0 without a session."""
    topics: list[tuple[TopicKey, list[FetchResult]]]
    node_endpoints: list[NodeEndpoint]


_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_ERROR_SESSION = Struct(">hi")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_SNAPSHOT = Struct(">qi")


def read_fetch_response(body: memoryview, version: int) -> FetchResponse:
    """The response that fills a body."""
    check_version(version)
    try:
        return _read(body, version)
    except (IndexError, struct_error, UnicodeDecodeError, MalformedRequest) as error:
        raise MalformedResponse(f"Fetch {version}: {error}") from error


def _read(body: memoryview, version: int) -> FetchResponse:
    flexible = version >= FLEXIBLE
    (throttle_time_ms,) = INT32.unpack_from(body)
    at = 4
    error_code, session_id = 0, 0
    if version >= SESSIONS:
        error_code, session_id = _ERROR_SESSION.unpack_from(body, at)
        at += _ERROR_SESSION.size
    topics = []
    topic_count, at = read_count(body, at, flexible, 3 if flexible else 6)
    for _ in range(topic_count):
        topic, at = read_topic(body, at, flexible, version >= TOPIC_IDS)
        result_count, at = read_count(body, at, flexible, _RESULT_4.size)
        results = []
        for _ in range(result_count):
            result, at = _result(body, at, version)
            results.append(result)
        if flexible:
            at = skip_tags(body, at)
        topics.append((topic, results))
    endpoints: list[NodeEndpoint] = []
    if flexible:
        found, at = read_tags(body, at)
        if 0 in found and version >= 16:
            endpoints = read_endpoints(body, *found[0])
    if at != len(body):
        raise trailing(body, at)
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _result(body: memoryview, at: int, version: int) -> tuple[FetchResult, int]:
    flexible = version >= FLEXIBLE
    log_start = -1
    if version >= 5:
        partition, error, high_watermark, last_stable, log_start = _RESULT_5.unpack_from(body, at)
        at += _RESULT_5.size
    else:
        partition, error, high_watermark, last_stable = _RESULT_4.unpack_from(body, at)
        at += _RESULT_4.size
    aborted, at = _aborted(body, at, flexible)
    preferred = -1
    if version >= 11:
        (preferred,) = INT32.unpack_from(body, at)
        at += 4
    records, at = _records(body, at, flexible)
    diverging, leader, snapshot = None, None, None
    if flexible:
        found, at = read_tags(body, at)
        diverging, leader, snapshot = _result_tags(body, found)
    fields = (partition, error, high_watermark, last_stable, log_start, records, aborted, preferred)
    return FetchResult(*fields, diverging, leader, snapshot), at


def _aborted(body: memoryview, at: int, flexible: bool) -> tuple[list[AbortedTransaction] | None, int]:
    null = b"\0" if flexible else b"\xff\xff\xff\xff"
    if body[at : at + len(null)] == null:
        return None, at + len(null)
    item_count, at = read_count(body, at, flexible, _ABORTED.size)
    aborted = []
    for _ in range(item_count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(body, at)))
        at += _ABORTED.size
        if flexible:
            at = skip_tags(body, at)
    return aborted, at


def _records(body: memoryview, at: int, flexible: bool) -> tuple[memoryview | None, int]:
    if flexible:
        size, at = read_uvarint(body, at)
        size -= 1
    else:
        (size,) = INT32.unpack_from(body, at)
        at += 4
    if size < 0:
        if size != -1:
            raise MalformedRequest(f"a record set at byte {at} has length {size}, expected -1 or more")
        return None, at
    if size > len(body) - at:
        raise too_long("a record set", size, body, at)
    return body[at : at + size], at + size


def _result_tags(
    body: memoryview, found: dict[int, tuple[int, int]]
) -> tuple[EpochEndOffset | None, CurrentLeader | None, SnapshotId | None]:
    diverging, leader, snapshot = None, None, None
    if 0 in found:
        diverging = EpochEndOffset(*_fixed(body, _EPOCH_END, *found[0]))
    if 1 in found:
        leader = read_leader(body, *found[1])
    if 2 in found:
        snapshot = SnapshotId(*_fixed(body, _SNAPSHOT, *found[2]))
    return diverging, leader, snapshot


def _fixed(body: memoryview, layout: Struct, start: int, stop: int) -> tuple[int, int]:
    first, second = layout.unpack_from(body[:stop], start)
    if skip_tags(body[:stop], start + layout.size) != stop:
        raise MalformedRequest(f"a structure at byte {start} does not end at {stop}, where its tag does")
    return first, second
