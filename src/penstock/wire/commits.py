"""OffsetCommit requests that repeat the connection's last one, matched without kio.

Two commits of one consumer differ only in the correlation id, and in three numbers of each partition:

    api key, version | correlation id | client id, group, generation, member, topic | index 4, offset 8, epoch 4 | text
    ---- same ------                    ------------------ same ------------------                                same

A connection keeps the bytes that stay the same, and compares them with the next frame. A match always has the values
that kio would read. The reply has the same partitions in the same order, and is built by one `pack`. Versions 6 to 10:
earlier ones have no leader epochs, and current clients do not send them.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from .catalogue import Api, is_flexible
from .frames import RequestHeader
from .primitives import count, read_count, read_nullable_string, string

VERSION_MIN, VERSION_MAX = 6, 10
TOPIC_IDS = 10
FRAME_BYTES_MAX = 4096
"""The longest commit that is remembered: some hundred partitions."""

_NUMBERS_BYTES = 16
_UUID_BYTES = 16
_THROTTLE_BYTES = 4


class CommitPattern:
    """The common bytes of a connection's commits."""

    __slots__ = ("_head", "_pack", "_parts", "_reply_bytes", "_same", "_unpack", "frame_bytes")

    def __init__(self, frame: memoryview, version: int, places: list[int], request: Any) -> None:
        """Of a request that was parsed; `places` are where the numbers of its partitions are."""
        ends = [8, *(each + _NUMBERS_BYTES for each in places)]
        sizes = [stop - start for start, stop in zip(ends, [*places, len(frame)], strict=True)]
        numbers = "".join(f"iqi{size}s" for size in sizes[1:])
        taken = Struct(f">4si{sizes[0]}s{numbers}")
        self.frame_bytes = taken.size
        self._unpack = taken.unpack
        self._head = bytes(frame[:4])
        self._same = taken.unpack(frame)[2::4]
        parts = _reply_parts(version, request)
        given = Struct(f">ii{len(parts[0])}s" + "".join(f"ih{len(each)}s" for each in parts[1:]))
        self._reply_bytes = given.size - 4
        self._pack = given.pack
        self._parts = parts

    def match(self, frame: memoryview) -> tuple[Any, ...] | None:
        """The numbers of a frame: at 1 the correlation id, from 3 on each fourth is an index, an offset, an epoch."""
        if len(frame) != self.frame_bytes:
            return None
        numbers = self._unpack(frame)
        return numbers if numbers[2::4] == self._same and numbers[0] == self._head else None

    def reply(self, correlation_id: int, results: Sequence[tuple[int, int]]) -> bytes:
        """The reply's frame, from the index and error code of each partition in the request's order."""
        parts = self._parts
        values: list[Any] = [self._reply_bytes, correlation_id, parts[0]]
        for (index, code), after in zip(results, parts[1:], strict=True):
            values += (index, code, after)
        return self._pack(*values)


def may_repeat(frame: memoryview, header: RequestHeader) -> bool:
    """Whether a commit's version has patterns, and it is short enough to be remembered."""
    return VERSION_MIN <= header.api_version <= VERSION_MAX and len(frame) <= FRAME_BYTES_MAX


def commit_pattern(frame: memoryview, header: RequestHeader, request: Any) -> CommitPattern | None:
    """The pattern of a request that kio has read, and that may repeat; None where it has tags, or no partitions.
    A topic that goes by its id has one."""
    places = _places(frame, header.body_at, header.api_version)
    return CommitPattern(frame, header.api_version, places, request) if places else None


def _places(frame: memoryview, at: int, version: int) -> list[int]:
    """The positions of the partitions' numbers; none if the request has tags."""
    flexible = is_flexible(Api.OFFSET_COMMIT, version)
    tags = 1 if flexible else 0
    places = []
    _, at = read_nullable_string(frame, at, flexible)
    _, at = read_nullable_string(frame, at + 4, flexible)
    if version >= 7:
        _, at = read_nullable_string(frame, at, flexible)
    topics, at = read_count(frame, at, flexible, 0)
    for _ in range(topics):
        if version >= TOPIC_IDS:
            at += _UUID_BYTES
        else:
            _, at = read_nullable_string(frame, at, flexible)
        partitions, at = read_count(frame, at, flexible, 0)
        for _ in range(partitions):
            places.append(at)
            _, at = read_nullable_string(frame, at + _NUMBERS_BYTES, flexible)
            if tags and frame[at]:
                return []
            at += tags
        if tags and frame[at]:
            return []
        at += tags
    return places if at + tags == len(frame) else []


def _reply_parts(version: int, request: Any) -> list[bytes]:
    """The bytes before, between and after the indexes and error codes of a reply."""
    flexible = is_flexible(Api.OFFSET_COMMIT, version)
    tags = b"\0" if flexible else b""
    parts = [tags + bytes(_THROTTLE_BYTES) + count(len(request.topics), flexible)]
    for topic in request.topics:
        parts[-1] += topic.topic_id.bytes if version >= TOPIC_IDS else string(topic.name, flexible)
        parts[-1] += count(len(topic.partitions), flexible)
        parts += [tags] * len(topic.partitions)
        parts[-1] += tags
    parts[-1] += tags
    return parts
