"""Fetch 4 to 18: hand-written parser of requests; replies as lists of buffers.

    request    replica id 4, to 14 | max wait 4 | min bytes 4 | max bytes 4 | isolation level 1
               | session id 4, epoch 4 from 7 on
               | topics: name, or id from 13 on
                         | partitions: index 4 | leader epoch 4 from 9 on | offset 8
                                       | last fetched epoch 4 from 12 on | log start 8 from 5 on | max bytes 4
                                       | tags: 0 directory id from 17 on, 1 high watermark from 18 on
               | forgotten topics from 7 on: name or id | indexes
               | rack from 11 on | tags: 0 cluster id from 12 on, 1 replica state from 15 on
    response   throttle time 4 | error 2, session id 4 from 7 on
               | topics: name or id
                         | partitions: index 4 | error 2 | high watermark 8 | last stable 8
                                       | log start 8 from 5 on | aborted transactions
                                       | preferred replica 4 from 11 on | records
                                       | tags: 0 diverging epoch, 1 leader, 2 snapshot id
               | tags: 0 addresses of leaders from 16 on

Flexible from 12 on. The reply is a list of buffers for one `writelines`, so that records are not copied into a frame.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from .errors import MalformedRequest, UnsupportedVersion
from .leaders import CurrentLeader, NodeEndpoint, encode_endpoints, encode_leader
from .primitives import (
    INT32,
    INT64,
    REQUEST_ITEMS_MAX,
    UUID_BYTES,
    Buffer,
    Piece,
    TopicKey,
    UnknownTags,
    count,
    read_count,
    read_string,
    read_tags,
    skip_tags,
    string,
    tags,
    too_many,
    topic_key,
    trailing,
    uvarint,
)

VERSION_MIN, VERSION_MAX = 4, 18
SESSIONS, FLEXIBLE, TOPIC_IDS, REPLICA_STATE = 7, 12, 13, 15

CONSUMER: Final = -1
"""The replica id of consumers."""
NO_EPOCH: Final = -1
HIGH_WATERMARK_UNTOLD: Final = 2**63 - 1
"""The high watermark of a follower whose version has no such field (KIP-1166); -1 if the follower does not know it."""

_new = tuple.__new__


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_bytes_max: int
    replica_directory_id: bytes | None = None
    high_watermark: int = HIGH_WATERMARK_UNTOLD


_UNTAGGED = (None, HIGH_WATERMARK_UNTOLD)
_PARTITION_TAGS: Final = 2


class FetchTopic(NamedTuple):
    topic: TopicKey
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    topic: TopicKey
    indexes: tuple[int, ...]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    """0: up to the high watermark; 1: up to the last stable offset. Not validated."""
    session_id: int
    session_epoch: int
    """-1 for no session, 0 to open one, then one more with each request."""
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str
    replica_id: int
    """The follower's id, or CONSUMER; from the replica state in versions that have it."""
    replica_epoch: int
    cluster_id: str | None


_HEAD_4 = Struct(">iiiib")
_HEAD_7 = Struct(">iiiibii")
_HEAD_15 = Struct(">iiibii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_REPLICA_STATE = Struct(">iq")
_UNPACK_15 = _HEAD_15.unpack_from
_UNPACK_PARTITION = _PARTITION_12.unpack_from
_UNPACK_PARTITIONS = Struct(_PARTITION_12.format + "x").iter_unpack
"""The same, one after the other, each with a byte behind it that says how many tags it has."""
_PARTITION_BYTES = _PARTITION_12.size


def parse_fetch(frame: memoryview, at: int, version: int) -> FetchRequest:
    """The request whose body starts at a position of its frame and ends with it."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise UnsupportedVersion(f"Fetch {version} is not supported, expected {VERSION_MIN} to {VERSION_MAX}")
    try:
        if version >= FLEXIBLE:
            return _parse_flexible(frame, at, version)
        return _parse_plain(frame, at, version)
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise MalformedRequest(
            f"A Fetch {version} of {len(frame)} bytes is incomplete or malformed: {error}"
        ) from error


def _parse_flexible(frame: memoryview, at: int, version: int) -> FetchRequest:
    if version >= REPLICA_STATE:
        head = _UNPACK_15(frame, at)
        replica_id = CONSUMER
        at += 21
    else:
        (replica_id,) = INT32.unpack_from(frame, at)
        head = _UNPACK_15(frame, at + 4)
        at += 25
    unknown = UnknownTags()
    topics, at = _topics(frame, at, version, unknown)
    if frame[at] == 1:
        forgotten: list[ForgottenTopic] = []
        at += 1
    else:
        forgotten, at = _forgotten(frame, at, version, unknown)
    if frame[at] == 1:
        rack_id = ""
        at += 1
    else:
        rack_id, at = read_string(frame, at, True)
    replica_epoch, cluster_id = NO_EPOCH, None
    if frame[at] == 0:
        at += 1
    else:
        found, at = read_tags(frame, at)
        if 0 in found:
            cluster_id = _cluster_id(frame, *found[0])
        if 1 in found and version >= REPLICA_STATE:
            replica_id, replica_epoch = _replica_state(frame, *found[1])
    if at != len(frame):
        raise trailing(frame, at)
    return _new(FetchRequest, (*head, topics, forgotten, rack_id, replica_id, replica_epoch, cluster_id))


def _topics(frame: memoryview, at: int, version: int, unknown: UnknownTags) -> tuple[list[FetchTopic], int]:
    topics: list[FetchTopic] = []
    items = 0
    topic_count = frame[at] - 1
    if 0 <= topic_count <= 1:
        at += 1
    else:
        topic_count, at = read_count(frame, at, True, 3)
    for _ in range(topic_count):
        topic: TopicKey
        if version >= TOPIC_IDS:
            topic = bytes(frame[at : at + 16])
            at += 16
        else:
            topic, at = read_string(frame, at, True)
        if frame[at] == 2:
            partition_count = 1
            at += 1
        else:
            partition_count, at = read_count(frame, at, True, _PARTITION_BYTES + 1)
        items += partition_count
        if items > REQUEST_ITEMS_MAX:
            raise too_many(items, at)
        partitions, at = _partitions(frame, at, version, partition_count, unknown)
        at = unknown.skip(frame, at) if frame[at] else at + 1
        topics.append(_new(FetchTopic, (topic, partitions)))
    return topics, at


def _partitions(
    frame: memoryview, at: int, version: int, partition_count: int, unknown: UnknownTags
) -> tuple[list[FetchPartition], int]:
    end = at + partition_count * (_PARTITION_BYTES + 1)
    if end < len(frame) and not any(frame[at + _PARTITION_BYTES : end : _PARTITION_BYTES + 1]):
        # No partition has tags, as in nearly every request: all of them with one call.
        untagged = [_new(FetchPartition, fields + _UNTAGGED) for fields in _UNPACK_PARTITIONS(frame[at:end])]
        return untagged, end
    partitions: list[FetchPartition] = []
    for _ in range(partition_count):
        fields = _UNPACK_PARTITION(frame, at)
        tagged, at = _partition_tags(frame, at + _PARTITION_BYTES, version, unknown)
        partitions.append(_new(FetchPartition, fields + tagged))
    return partitions, at


def _topic(frame: memoryview, at: int, version: int) -> tuple[TopicKey, int]:
    if version < TOPIC_IDS:
        return read_string(frame, at, True)
    stop = at + UUID_BYTES
    if stop > len(frame):
        raise MalformedRequest(f"a topic id at byte {at} has {len(frame) - at} bytes, expected {UUID_BYTES}")
    return bytes(frame[at:stop]), stop


def _partition_tags(
    frame: memoryview, at: int, version: int, unknown: UnknownTags
) -> tuple[tuple[bytes | None, int], int]:
    found, at = read_tags(frame, at)
    if len(found) > _PARTITION_TAGS:
        unknown.add(len(found) - _PARTITION_TAGS)
    directory_id, high_watermark = _UNTAGGED
    if version >= 17 and 0 in found:
        _check_tag(found[0], UUID_BYTES, "directory id")
        directory_id = bytes(frame[slice(*found[0])])
    if version >= 18 and 1 in found:
        _check_tag(found[1], 8, "high watermark")
        (high_watermark,) = INT64.unpack_from(frame, found[1][0])
    return (directory_id, high_watermark), at


def _check_tag(span: tuple[int, int], size: int, what: str) -> None:
    if span[1] - span[0] != size:
        raise MalformedRequest(f"a {what} at byte {span[0]} has {span[1] - span[0]} bytes, expected {size}")


def _cluster_id(frame: memoryview, start: int, stop: int) -> str:
    text, at = read_string(frame[:stop], start, True)
    if at != stop:
        raise MalformedRequest(f"a cluster id ends at byte {at}, expected {stop}")
    return text


def _replica_state(frame: memoryview, start: int, stop: int) -> tuple[int, int]:
    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame[:stop], start)
    if skip_tags(frame[:stop], start + _REPLICA_STATE.size) != stop:
        raise MalformedRequest(f"a replica state at byte {start} does not end at {stop}, where its tag does")
    return replica_id, replica_epoch


def _forgotten(
    frame: memoryview, at: int, version: int, unknown: UnknownTags | None = None
) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= FLEXIBLE
    forgotten = []
    items = 0
    topic_count, at = read_count(frame, at, flexible, 3 if flexible else 6)
    for _ in range(topic_count):
        topic, at = _topic(frame, at, version) if flexible else read_string(frame, at, False)
        index_count, at = read_count(frame, at, flexible, 4)
        items += index_count
        if items > REQUEST_ITEMS_MAX:
            raise too_many(items, at)
        indexes = Struct(f">{index_count}i").unpack_from(frame, at)
        at += 4 * index_count
        if unknown is not None:
            at = unknown.skip(frame, at)
        forgotten.append(ForgottenTopic(topic, indexes))
    return forgotten, at


def _parse_plain(frame: memoryview, at: int, version: int) -> FetchRequest:
    session_id, session_epoch = 0, NO_EPOCH
    if version >= SESSIONS:
        replica_id, wait_ms, low, high, isolation, session_id, session_epoch = _HEAD_7.unpack_from(frame, at)
        at += _HEAD_7.size
    else:
        replica_id, wait_ms, low, high, isolation = _HEAD_4.unpack_from(frame, at)
        at += _HEAD_4.size
    topics, at = _plain_topics(frame, at, version)
    forgotten: list[ForgottenTopic] = []
    if version >= SESSIONS:
        forgotten, at = _forgotten(frame, at, version)
    rack_id = ""
    if version >= 11:
        rack_id, at = read_string(frame, at, False)
    if at != len(frame):
        raise trailing(frame, at)
    return FetchRequest(
        wait_ms,
        low,
        high,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        replica_id,
        NO_EPOCH,
        None,
    )


def _plain_topics(frame: memoryview, at: int, version: int) -> tuple[list[FetchTopic], int]:
    layout = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    topics = []
    items = 0
    topic_count, at = read_count(frame, at, False, 6)
    for _ in range(topic_count):
        topic, at = read_string(frame, at, False)
        partition_count, at = read_count(frame, at, False, layout.size)
        items += partition_count
        if items > REQUEST_ITEMS_MAX:
            raise too_many(items, at)
        stop = at + partition_count * layout.size
        partitions = []
        leader_epoch, log_start = NO_EPOCH, -1
        for fields in layout.iter_unpack(frame[at:stop]):
            if version >= 9:
                partition, leader_epoch, offset, log_start, size = fields
            elif version >= 5:
                partition, offset, log_start, size = fields
            else:
                partition, offset, size = fields
            partitions.append(FetchPartition(partition, leader_epoch, offset, NO_EPOCH, log_start, size))
        at = stop
        topics.append(FetchTopic(topic, partitions))
    return topics, at


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


class FetchResult(NamedTuple):
    """The result of one partition."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Buffer | None = b""
    """Empty and not None where there are none: null is allowed, but Kafka does not send it, and clients have
    been written against Kafka. A broker may put an `Unread` here, which `fetch_reply` passes on."""
    aborted: Sequence[AbortedTransaction] | None = None
    """None for READ_UNCOMMITTED."""
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    snapshot_id: SnapshotId | None = None


_REPLY_4 = Struct(">iii")
_REPLY_7 = Struct(">iiihi")
_REPLY_12 = Struct(">iixihi")
_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_PACK_NOTHING = Struct(">ihqqqBi2s").pack
"""A flexible partition with no records and no tags."""
_PACK_RESULT = Struct(">ihqqqBi").pack
"""A flexible partition up to its records, with its aborted transactions null (0) or none (1)."""
_ABORTED = Struct(">qq")
_ABORTED_12 = Struct(">qqx")
_EPOCH_END = Struct(">iqx")
_SNAPSHOT = Struct(">qix")
_PACK_LENGTH = INT32.pack_into


def fetch_reply(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchResult]]],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> tuple[list[Piece], int]:
    """The frame as buffers to send one after the other, and how many bytes they have together.

    What a version has no field for is left out. The records are passed on, not copied: they must stay as
    they are until they are sent.
    """
    if version >= FLEXIBLE:
        head = bytearray(_REPLY_12.pack(0, correlation_id, throttle_time_ms, error_code, session_id))
        buffers, last, total = _flexible_reply_topics(head, topics)
        last += tags({0: encode_endpoints(node_endpoints)}) if node_endpoints and version >= 16 else b"\0"
        total += len(last)
    else:
        if version >= SESSIONS:
            head = bytearray(_REPLY_7.pack(0, correlation_id, throttle_time_ms, error_code, session_id))
        else:
            head = bytearray(_REPLY_4.pack(0, correlation_id, throttle_time_ms))
        buffers, total = _plain_reply_topics(head, topics, version)
    _PACK_LENGTH(head, 0, total - 4)
    return buffers, total


def _flexible_reply_topics(
    head: bytearray, topics: Sequence[tuple[TopicKey, Sequence[FetchResult]]]
) -> tuple[list[Piece], bytearray, int]:
    """The buffers, the last of them, which is still to be added to, and the bytes of all the others."""
    buffers: list[Piece] = [head]
    total = 0
    head += uvarint(len(topics) + 1)
    for topic, results in topics:
        head += topic if isinstance(topic, bytes) else string(topic, True)
        head += uvarint(len(results) + 1)
        for result in results:
            (
                partition,
                error,
                high,
                stable,
                start,
                records,
                aborted,
                preferred,
                diverging,
                leader,
                snapshot,
            ) = result
            if (
                not records
                and records is not None
                and aborted is None
                and not (leader or diverging or snapshot)
            ):
                head += _PACK_NOTHING(partition, error, high, stable, start, 0, preferred, b"\1\0")
                continue
            if aborted:
                head += _RESULT_5.pack(partition, error, high, stable, start) + uvarint(len(aborted) + 1)
                head += b"".join(_ABORTED_12.pack(*each) for each in aborted) + INT32.pack(preferred)
            else:
                head += _PACK_RESULT(partition, error, high, stable, start, aborted is not None, preferred)
            if records:
                size = len(records)
                head += uvarint(size + 1)
                total += len(head) + size
                head = bytearray()
                buffers += (records, head)
            else:
                head += b"\0" if records is None else b"\1"
            if diverging is None and leader is None and snapshot is None:
                head += b"\0"
            else:
                head += _result_tags(result)
        head += b"\0"
    return buffers, head, total


def _plain_reply_topics(
    head: bytearray, topics: Sequence[tuple[TopicKey, Sequence[FetchResult]]], version: int
) -> tuple[list[Piece], int]:
    """The buffers, and the bytes of all of them."""
    buffers: list[Piece] = [head]
    total = 0
    head += count(len(topics), False)
    for topic, results in topics:
        head += topic_key(topic, False) + count(len(results), False)
        for result in results:
            head += _plain_result(result, version)
            records = result.records
            if records:
                total += len(head) + len(records)
                head = bytearray()
                buffers += (records, head)
    if not head:
        buffers.pop()
    return buffers, total + len(head)


def _plain_result(result: FetchResult, version: int) -> bytes:
    """A partition up to its records."""
    partition, error, high, stable, start, records, aborted, preferred, *_ = result
    if version >= 5:
        encoded = _RESULT_5.pack(partition, error, high, stable, start)
    else:
        encoded = _RESULT_4.pack(partition, error, high, stable)
    encoded += INT32.pack(-1 if aborted is None else len(aborted))
    if aborted:
        encoded += b"".join(_ABORTED.pack(*each) for each in aborted)
    if version >= 11:
        encoded += INT32.pack(preferred)
    return encoded + INT32.pack(-1 if records is None else len(records))


def _result_tags(result: FetchResult) -> bytes:
    fields = {}
    if result.diverging_epoch is not None:
        fields[0] = _EPOCH_END.pack(*result.diverging_epoch)
    if result.current_leader is not None:
        fields[1] = encode_leader(result.current_leader)
    if result.snapshot_id is not None:
        fields[2] = _SNAPSHOT.pack(*result.snapshot_id)
    return tags(fields)
