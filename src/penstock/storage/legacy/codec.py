"""Common part of both formats: a record is an int32 length and that many bytes.

Numbers are big-endian. A length of -1 means null (no key, no value), 0 empty. Every length is checked against
the file, the record and the limit below before it is used.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, Protocol

from penstock.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from penstock.records import DECOMPRESSED_BYTES_MAX, Record

INT32 = Struct(">i")

LENGTH_BYTES = 4
"""Size of the length field, which it does not count."""

RECORD_BYTES_MAX = DECOMPRESSED_BYTES_MAX
"""Both formats allow 2 GB, but our readers would not accept such a batch."""

OFFSET_MAX: Offset = 2**63 - 2
"""The log end, one higher, must fit into an int64 too."""


class BadRecord(Exception):
    """Bytes that are not a sound record, with the value found and the value expected."""

    def __init__(self, problem: str, *, is_framed: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_framed = is_framed
        """The lengths are consistent, so the end of the record is known."""


class Encoded(NamedTuple):
    data: bytes
    headers_left: int
    """Number of headers that the format cannot hold."""


class Codec(Protocol):
    """One format, for the records of one partition."""

    length_min: int
    """Size of a record without key and value."""
    probe_bytes: int
    """Bytes that `candidates` reads."""

    def decode(self, data: bytes, start: int, end: int) -> Record:
        """The record between two positions, its length included; `BadRecord` if it is none."""

    def encode(self, record: Record) -> Encoded: ...

    def is_torn(self, head: bytes, length: int) -> bool:
        """Whether the first bytes of a record prove a length that the file is too short for."""

    def candidates(self, block: bytes) -> Iterator[int]:
        """Positions in a block at which a record may begin, in order. A record whose probe is completely in the block
        begins at one of them."""


def check_numbers(offset: Offset, timestamp: TimestampMs) -> None:
    """Refuse offsets and timestamps that Kafka's format cannot hold."""
    if offset < 0:
        raise BadRecord(f"offset {offset}, expected 0 or more", is_framed=True)
    if timestamp < NO_TIMESTAMP:
        raise BadRecord(f"timestamp {timestamp}, expected {NO_TIMESTAMP} (none) or more", is_framed=True)


def field(value: bytes | None) -> bytes:
    """Length-prefixed bytes."""
    return b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value
