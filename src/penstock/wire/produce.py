"""Produce 3 to 13: hand-written codec, since brokers handle it most often.

    request    transactional id | acks 2 | timeout 4 | topics: name, or id from 13 on
                                                       | partitions: index 4 | records
    response   topics: name or id | partitions: index 4 | error 2 | base offset 8 | append time 8
                                                | log start 8 from 5 on
                                                | record errors, message from 8 on
               | throttle time 4

Flexible from 9 on; from 10 on a partition's tag 0 tells its leader, the response's tag 0 the leaders'
addresses. Versions 0 to 2 have no transactional id and are rejected, as in Kafka 4.

The records of a partition are a slice of the frame, and must be copied to outlive the receive buffer. A reply for one
partition, the usual case, is one `Struct.pack` around constant bytes, which are cached by topic and version.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import MalformedRequest, UnsupportedVersion
from .leaders import CurrentLeader, NodeEndpoint, encode_endpoints, encode_leader
from .primitives import (
    INT32,
    REQUEST_ITEMS_MAX,
    TopicKey,
    UnknownTags,
    count,
    read_count,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    tags,
    too_long,
    too_many,
    topic_key,
    trailing,
    uvarint,
)

VERSION_MIN, VERSION_MAX = 3, 13
FLEXIBLE, TOPIC_IDS = 9, 13

TEMPLATES_MAX = 4096
"""Replies remembered for topics; all are forgotten when there are more, which a client that names topics
at random can bring about, and which costs no more than making them anew."""

_UNPACK_ACKS = Struct(">hi").unpack_from
_UNPACK_INT32 = INT32.unpack_from
_new = tuple.__new__


class ProducePartition(NamedTuple):
    partition: int
    records: memoryview | None
    """A slice of the frame; None for null."""


class ProduceTopic(NamedTuple):
    topic: TopicKey
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


def parse_produce(frame: memoryview, at: int, version: int) -> ProduceRequest:
    """The request whose body starts at a position of its frame and ends with it."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise UnsupportedVersion(
            f"Produce {version} is not supported, expected {VERSION_MIN} to {VERSION_MAX}"
        )
    flexible = version >= FLEXIBLE
    try:
        if flexible and frame[at] == 0:
            transactional_id = None
            at += 1
        else:
            transactional_id, at = read_nullable_string(frame, at, flexible)
        acks, timeout_ms = _UNPACK_ACKS(frame, at)
        topics, at = (
            _flexible_topics(frame, at + 6, version >= TOPIC_IDS)
            if flexible
            else _plain_topics(frame, at + 6)
        )
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise MalformedRequest(
            f"A Produce {version} of {len(frame)} bytes is incomplete or malformed: {error}"
        ) from error
    if at != len(frame):
        raise trailing(frame, at)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _flexible_topics(frame: memoryview, at: int, ids: bool) -> tuple[list[ProduceTopic], int]:
    topics: list[ProduceTopic] = []
    items = 0
    unknown = UnknownTags()
    if frame[at] == 2:
        topic_count = 1
        at += 1
    else:
        topic_count, at = read_count(frame, at, True, 3)
    for _ in range(topic_count):
        topic: TopicKey
        if ids:
            topic = bytes(frame[at : at + 16])
            at += 16
        else:
            size = frame[at]
            if 0 < size < 128:
                topic = str(frame[at + 1 : at + size], "utf-8")
                at += size
            else:
                topic, at = read_string(frame, at, True)
        partitions, at = _flexible_partitions(frame, at, unknown)
        items += len(partitions)
        if items > REQUEST_ITEMS_MAX:
            raise too_many(items, at)
        at = unknown.skip(frame, at) if frame[at] else at + 1
        topics.append(_new(ProduceTopic, (topic, partitions)))
    return topics, skip_tags(frame, at) if frame[at] else at + 1


def _flexible_partitions(
    frame: memoryview, at: int, unknown: UnknownTags
) -> tuple[list[ProducePartition], int]:
    partitions: list[ProducePartition] = []
    if frame[at] == 2:
        partition_count = 1
        at += 1
    else:
        partition_count, at = read_count(frame, at, True, 6)
    for _ in range(partition_count):
        (partition,) = _UNPACK_INT32(frame, at)
        size = frame[at + 4]
        if size < 128:
            at += 5
        else:
            size, at = read_uvarint(frame, at + 4)
        if size:
            stop = at + size - 1
            if stop >= len(frame):
                raise too_long("a record set", size - 1, frame, at)
            partitions.append(_new(ProducePartition, (partition, frame[at:stop])))
            at = stop
        else:
            partitions.append(_new(ProducePartition, (partition, None)))
        at = unknown.skip(frame, at) if frame[at] else at + 1
    return partitions, at


def _plain_topics(frame: memoryview, at: int) -> tuple[list[ProduceTopic], int]:
    topics = []
    end = len(frame)
    items = 0
    topic_count, at = read_count(frame, at, False, 6)
    for _ in range(topic_count):
        topic, at = read_string(frame, at, False)
        partition_count, at = read_count(frame, at, False, 8)
        items += partition_count
        if items > REQUEST_ITEMS_MAX:
            raise too_many(items, at)
        partitions = []
        for _ in range(partition_count):
            (partition,) = _UNPACK_INT32(frame, at)
            (size,) = _UNPACK_INT32(frame, at + 4)
            at += 8
            if size < 0:
                if size != -1:
                    raise MalformedRequest(
                        f"a record set at byte {at} has length {size}, expected -1 or more"
                    )
                partitions.append(ProducePartition(partition, None))
                continue
            if size > end - at:
                raise too_long("a record set", size, frame, at)
            partitions.append(_new(ProducePartition, (partition, frame[at : at + size])))
            at += size
        topics.append(ProduceTopic(topic, partitions))
    return topics, at


class RecordError(NamedTuple):
    batch_index: int
    """Which record of the batch; the field's name is the protocol's."""
    message: str | None = None


class ProduceResult(NamedTuple):
    """The result of one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    """-1 where the topic keeps the producers' timestamps."""
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


class _Template(NamedTuple):
    frame: Struct
    """Length, correlation id, before, the partition's numbers, after."""
    length: int
    before: bytes
    after: bytes


_templates: dict[tuple[int, TopicKey], _Template] = {}


def reply_template(version: int, topic: TopicKey) -> _Template:
    """The constant parts of replies for one partition of a topic."""
    made = _templates.get((version, topic))
    return _template(version, topic) if made is None else made


def _template(version: int, topic: TopicKey) -> _Template:
    flexible = version >= FLEXIBLE
    one = count(1, flexible)
    before = (b"\0" if flexible else b"") + one + topic_key(topic, flexible) + one
    after = b""
    if version >= 8:
        after += count(0, flexible) + string(None, flexible)
    if flexible:
        after += b"\0\0"
    after += INT32.pack(0)
    if flexible:
        after += b"\0"
    start = "q" if version >= 5 else ""
    frame = Struct(f">ii{len(before)}sihqq{start}{len(after)}s")
    made = _Template(frame, frame.size - 4, before, after)
    if len(_templates) >= TEMPLATES_MAX:
        _templates.clear()
    _templates[version, topic] = made
    return made


def produce_reply_one(
    version: int,
    correlation_id: int,
    topic: TopicKey,
    partition: int,
    base_offset: int,
    log_start_offset: int,
    log_append_time_ms: int = -1,
    error_code: int = 0,
) -> bytes:
    """The frame of a reply for one partition without error message, leader hint or throttling."""
    frame, length, before, after = reply_template(version, topic)
    if version >= 5:
        return frame.pack(
            length,
            correlation_id,
            before,
            partition,
            error_code,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            after,
        )
    return frame.pack(
        length, correlation_id, before, partition, error_code, base_offset, log_append_time_ms, after
    )


_RESULT = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")


def produce_reply(
    version: int,
    correlation_id: int,
    topics: Iterable[tuple[TopicKey, Sequence[ProduceResult]]],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The frame of any reply. Values that the version has no field for are left out."""
    flexible = version >= FLEXIBLE
    pieces: list[bytes] = []
    topic_count = 0
    for topic, results in topics:
        topic_count += 1
        pieces += (topic_key(topic, flexible), count(len(results), flexible))
        pieces += [_encode_result(each, version, flexible) for each in results]
        if flexible:
            pieces.append(b"\0")
    pieces.append(INT32.pack(throttle_time_ms))
    if flexible:
        pieces.append(tags({0: encode_endpoints(node_endpoints)} if node_endpoints and version >= 10 else {}))
    head = INT32.pack(correlation_id) + (b"\0" if flexible else b"") + count(topic_count, flexible)
    body = b"".join(pieces)
    return INT32.pack(len(head) + len(body)) + head + body


def _encode_result(result: ProduceResult, version: int, flexible: bool) -> bytes:
    partition, error_code, base_offset, append_time_ms, log_start_offset, errors, message, leader = result
    if version < 5:
        return _RESULT.pack(partition, error_code, base_offset, append_time_ms)
    encoded = _RESULT_5.pack(partition, error_code, base_offset, append_time_ms, log_start_offset)
    if version < 8:
        return encoded
    end = b"\0" if flexible else b""
    encoded += count(len(errors), flexible)
    for batch_index, text in errors:
        encoded += INT32.pack(batch_index) + string(text, flexible) + end
    encoded += string(message, flexible)
    if leader is None or version < 10:
        return encoded + end
    hint = encode_leader(leader)
    return encoded + b"\1\0" + uvarint(len(hint)) + hint
