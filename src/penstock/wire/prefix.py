"""Produce requests that repeat the connection's last one, matched without parsing.

Two Produce requests of one client to one topic differ only in the correlation id, the partition and the records.
Header, acks, timeout and topic are the same bytes:

    api key, version | correlation id | client id, transactional id, acks, timeout, one topic | index | records
    ---- same ------                    --------------------- same -----------------------

A connection keeps the bytes that stay the same, and compares them with the next frame. If they match, only three
numbers and a slice are left to read. Anything else (several partitions, null records, tags, too few or too many bytes)
is no match, and goes to the parser. A match always has the values that `parse_header` and `parse_produce` would read.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import MalformedRequest
from .frames import RequestHeader
from .primitives import INT32, TopicKey, read_count, read_nullable_string, read_string, read_uvarint
from .produce import FLEXIBLE, TOPIC_IDS, ProduceRequest

MISSES_MAX = 16
"""Frames that do not match before a connection stops trying: its client alternates between topics."""

_UNPACK_INT32 = INT32.unpack_from
NO_TAGS = b"\0\0\0"
"""The bytes after the records of one flexible partition: no tags of the partition, the topic and the request."""


class Repeated(NamedTuple):
    """The values that a match reads; all others are in the prefix's fields."""

    correlation_id: int
    partition: int
    records: memoryview


class ProducePrefix:
    """The prefix of one connection. Matches nothing until `learn` has been called."""

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
    """The header of the learned request, valid for each match but for the correlation id."""
    request: ProduceRequest | None
    """The learned request, without its topics: transactional id, acks and timeout are valid for each match."""
    topic: TopicKey
    head: bytes
    """API key and version."""
    same: bytes
    """The bytes between the correlation id and the partition's index."""
    records_at: int
    """The position of the length of the records, after the index."""

    def __init__(self) -> None:
        self.header = None
        self.request = None
        self.topic = ""
        self._misses = 0

    def match(self, frame: memoryview) -> Repeated | None:
        """The frame's numbers and records, if it has the learned prefix and one partition."""
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
        """Remember a parsed request, if it has one topic and one partition."""
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
    """The position of the partition's index in a request that was parsed before."""
    flexible = version >= FLEXIBLE
    _, at = read_nullable_string(frame, at, flexible)
    _, at = read_count(frame, at + 6, flexible, 0)
    if version >= TOPIC_IDS:
        at += 16
    else:
        _, at = read_string(frame, at, flexible)
    _, at = read_count(frame, at, flexible, 0)
    return at
