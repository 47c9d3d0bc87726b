"""What the two formats have in common: a record is an int32 length and as many bytes.

Numbers are big-endian. A length of -1 stands for what is not there (no key, no value), 0 for what is empty.
No length is believed before it is known to fit into what holds it: the file, the record, or the limit here.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, Protocol

from penstock.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from penstock.records import DECOMPRESSED_BYTES_MAX, Record

INT32 = Struct(">i")

LENGTH_BYTES = 4
"""The length itself, which it does not count."""

RECORD_BYTES_MAX = DECOMPRESSED_BYTES_MAX
"""Both formats have lengths up to 2 GB, but what our readers would not take out of a batch is not put into one."""

OFFSET_MAX: Offset = 2**63 - 2
"""The log end, one further, is an int64 as well."""


class BadRecord(Exception):
    """Bytes that are not a sound record; says what was found and what was expected."""

    def __init__(self, problem: str, *, is_framed: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_framed = is_framed
        """The lengths agree with each other, so the record is known to end where its length says."""


class Encoded(NamedTuple):
    data: bytes
    headers_left: int
    """Headers for which the format has no room."""


class Codec(Protocol):
    """One format, for the records of one partition."""

    length_min: int
    """Of a record without key and value."""
    probe_bytes: int
    """How many bytes `candidates` looks at."""

    def decode(self, data: bytes, start: int, end: int) -> Record:
        """The record between two positions, its length included; `BadRecord` if it is none."""

    def encode(self, record: Record) -> Encoded: ...

    def is_torn(self, head: bytes, length: int) -> bool:
        """Whether the first bytes of a record prove a length that the file is too short for."""

    def candidates(self, block: bytes) -> Iterator[int]:
        """Where in a block a record might begin, in order: nowhere else does one whose probe lies in it whole."""


def check_numbers(offset: Offset, timestamp: TimestampMs) -> None:
    """Refuse what Kafka's format cannot hold, in a record whose lengths are in order."""
    if offset < 0:
        raise BadRecord(f"offset {offset}, expected 0 or more", is_framed=True)
    if timestamp < NO_TIMESTAMP:
        raise BadRecord(f"timestamp {timestamp}, expected {NO_TIMESTAMP} (none) or more", is_framed=True)


def field(value: bytes | None) -> bytes:
    """Bytes with their length in front."""
    return b"\xff\xff\xff\xff" if value is None else INT32.pack(len(value)) + value
