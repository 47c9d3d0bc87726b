"""What is searched for, and the pieces in which work is given out and results come back.

All of it is small plain data: it is pickled for helper processes and sent between brokers.
"""

from typing import Final, NamedTuple

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs

FIELDS: Final = ("any", "key", "value", "headers")
"""Where `contains` and `regex` look."""

CONTAINS_BYTES_MAX: Final = 4096
REGEX_CHARS_MAX: Final = 1000
WHERE_CHARS_MAX: Final = 4096

FIELD_BYTES: Final = 64 << 10
FIELD_BYTES_MAX: Final = 1 << 20
"""Bytes of a key, a value or a header that a result carries; longer ones are cut."""

LIMIT: Final = 100
LIMIT_MAX: Final = 10_000


class BadQuery(KafkaError):
    """A query that cannot be run: a bad regular expression, a bad CEL expression, no condition."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.INVALID_REQUEST)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return BadQuery, (str(self),)


class SearchQuery(msgspec.Struct, array_like=True, frozen=True):
    """The conditions. A record matches if it meets all that are given."""

    contains: bytes | None = None
    regex: str | None = None
    """In RE2's syntax."""
    where: str | None = None
    """In CEL, a boolean expression over key, value, headers, partition, offset and timestamp."""
    field: str = "any"
    """Where `contains` and `regex` look: one of `FIELDS`."""
    since_ms: TimestampMs | None = None
    before_ms: TimestampMs | None = None
    """The timestamps of records: at or after, and before."""
    field_bytes: int = FIELD_BYTES
    """Results carry at most this much of each key, value and header."""


def check_query(query: SearchQuery) -> None:
    """Raise BadQuery for what can be told without a regular expression or CEL engine."""
    if query.contains is None and query.regex is None and query.where is None:
        raise BadQuery("nothing to search for: set contains, regex or where")
    if query.contains == b"":
        raise BadQuery("contains is empty, expected at least one byte")
    if query.contains is not None and len(query.contains) > CONTAINS_BYTES_MAX:
        raise BadQuery(f"contains has {len(query.contains)} bytes, expected at most {CONTAINS_BYTES_MAX}")
    if query.regex is not None and not 0 < len(query.regex) <= REGEX_CHARS_MAX:
        raise BadQuery(f"regex has {len(query.regex)} characters, expected 1 to {REGEX_CHARS_MAX}")
    if query.where is not None and not 0 < len(query.where) <= WHERE_CHARS_MAX:
        raise BadQuery(f"where has {len(query.where)} characters, expected 1 to {WHERE_CHARS_MAX}")
    if query.field not in FIELDS:
        raise BadQuery(f"in is {query.field!r}, expected one of {', '.join(FIELDS)}")


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """A range of offsets of a partition that is searched in one piece."""

    partition: int
    start: Offset
    stop: Offset
    size_bytes: int
    """About how many bytes of the log it has."""
    point: tuple[Offset, Offset, int] | None = None
    """A known position before it: last offset of the batch there, base offset of its segment, position."""


class PartitionPlan(msgspec.Struct, array_like=True, frozen=True):
    """The chunks of one partition, newest first."""

    partition: int
    chunks: tuple[Chunk, ...]
    skipped_bytes: int = 0
    """Bytes that the index rules out."""
    problem: str = ""
    """Why the partition cannot be searched; then there are no chunks."""


class Match(msgspec.Struct, array_like=True, frozen=True):
    """A record that meets the conditions."""

    partition: int
    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    cut: tuple[tuple[str, int], ...] = ()
    """Fields that are longer than the query's `field_bytes`, with their lengths in bytes."""


class Unsearched(msgspec.Struct, array_like=True, frozen=True):
    """Offsets that could not be searched."""

    partition: int
    start: Offset
    stop: Offset
    why: str


class Portion(msgspec.Struct, array_like=True, frozen=True):
    """The result of searching some chunks for a moment."""

    matches: tuple[Match, ...]
    """In the order of the chunks; within a chunk, newest first."""
    done: int
    """How many of the chunks were searched."""
    rests: tuple[Chunk, ...] = ()
    """What is left of the last of them, newest first."""
    size_bytes: int = 0
    """Bytes of the log that were looked at, by the estimate of the chunks."""
    unsearched: tuple[Unsearched, ...] = ()
    failed_count: int = 0
    """Records for which `where` had no result: a missing field, say."""
    failed_why: str = ""
    """The error of one of them."""


class SearchSpan(NamedTuple):
    """A range of a partition on this machine: offsets from start up to, and without, stop."""

    topic: str
    partition: int
    directory: str
    log_start: Offset
    start: Offset
    stop: Offset
    aborted: tuple[tuple[int, Offset, Offset], ...] = ()
    """Producer id, first and last offset of aborted transactions; empty for read_uncommitted."""
    points: tuple[tuple[Offset, int], ...] = ()
    """Last offsets and positions of some batches of the last segment, whose index a broker keeps in memory."""
