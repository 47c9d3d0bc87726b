"""What a producer says again and again, remembered by its connection.

Between two Produce requests of one client to one topic, only the correlation id, the partition and the
records differ; header, acks, timeout and topic come again byte for byte:

    api key, version | correlation id | client id, transactional id, acks, timeout, one topic | index | records
    ---- same ------                    --------------------- same -----------------------

A connection keeps the bytes that stay the same, and asks of the next frame whether it has them. Where it
does, all there is to read are three numbers and a slice. Anything out of the ordinary, several partitions,
null records, tags, bytes too few or too many, is no match, and left to the parser, which knows what to say
about it. So a match never says anything else than `parse_header` and `parse_produce` would.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import MalformedRequest
from .frames import RequestHeader
from .primitives import INT32, TopicKey, read_count, read_nullable_string, read_string, read_uvarint
from .produce import FLEXIBLE, TOPIC_IDS, ProduceRequest

MISSES_MAX = 16
"""Matches tried in vain before a connection stops trying, and learning: its client changes topics all the time."""

_UNPACK_INT32 = INT32.unpack_from
NO_TAGS = b"\0\0\0"
"""After the records of one flexible partition: no tags of the partition, the topic and the request."""


class Repeated(NamedTuple):
    """What a match reads; the rest is in the prefix's own fields."""

    correlation_id: int
    partition: int
    records: memoryview


class ProducePrefix:
    """The prefix of one connection; useless, and harmless, until `learn` has been called."""

    __slots__ = (
        "_flexible",
        "_misses",
        "_unpack",
        "head",
        "header",
        "records_at",
        "request",
        "same",
        "topic",
    )

    header: RequestHeader | None
    """Of the request that was learned: all but the correlation id holds for each match."""
    request: ProduceRequest | None
    """The same: transactional id, acks and timeout hold. It has no topics, since their records are gone."""
    topic: TopicKey
    head: bytes
    """API key and version."""
    same: bytes
    """All that stays the same between the correlation id and the partition's index."""
    records_at: int
    """Where, after the index, the length of the records begins."""

    def __init__(self) -> None:
        self.header = None
        self.request = None
        self.topic = ""
        self._misses = 0

    def match(self, frame: memoryview) -> Repeated | None:
        """The frame's numbers and records, if it begins like the one that was learned and has one partition."""
        if self.header is None:
            return None
        try:
            head, correlation_id, same, partition = self._unpack(frame)
            if same == self.same and head == self.head:
                at: int = self.records_at
                if self._flexible:
                    size = frame[at]
                    if size < 128:
                        at += 1
                    else:
                        size, at = read_uvarint(frame, at)
                    stop = at + size - 1
                    if size and frame[stop:] == NO_TAGS:
                        self._misses = 0
                        return tuple.__new__(Repeated, (correlation_id, partition, frame[at:stop]))
                else:
                    (size,) = _UNPACK_INT32(frame, at)
                    stop = at + 4 + size
                    if size >= 0 and stop == len(frame):
                        self._misses = 0
                        return tuple.__new__(Repeated, (correlation_id, partition, frame[at + 4 : stop]))
        except (IndexError, struct_error, MalformedRequest):
            pass
        self._misses += 1
        if self._misses == MISSES_MAX:
            self.header = None
        return None

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember a request that was parsed, if it is of the kind that repeats: one topic, one partition."""
        if self._misses >= MISSES_MAX or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return
        version = header.api_version
        self._flexible = version >= FLEXIBLE
        index_at = _index_at(frame, header.body_at, version)
        self.records_at = index_at + 4
        self._unpack = Struct(f">4si{index_at - 8}si").unpack_from
        self.head = bytes(frame[:4])
        self.same = bytes(frame[8:index_at])
        self.topic = request.topics[0].topic
        self.request = request._replace(topics=[])
        self.header = header


def _index_at(frame: memoryview, at: int, version: int) -> int:
    """Where the partition's index is, in a request that was parsed before."""
    flexible = version >= FLEXIBLE
    _, at = read_nullable_string(frame, at, flexible)
    _, at = read_count(frame, at + 6, flexible, 0)
    if version >= TOPIC_IDS:
        at += 16
    else:
        _, at = read_string(frame, at, flexible)
    _, at = read_count(frame, at, flexible, 0)
    return at
