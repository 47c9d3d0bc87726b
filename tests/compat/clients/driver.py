"""What the tests ask of every client library, in one shape, so that a case is written once and runs with all three.

A `Driver` speaks to one server through one library. It hides how a library is called and nothing of what it does:
records, offsets and error codes come back as the library gave them. A refusal by the server (or by the client in
its name) is raised as `Refused` with the protocol's code. What only one library can do is tested beside that
library, in a file of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""The timestamp types, by the protocol's numbers."""

SECONDS_MAX = 90.0
"""Nothing here takes a tenth of this on an idle machine. It is only how long a test hangs when something is wrong."""

Headers = tuple[tuple[str, bytes | None], ...]


class Refused(Exception):
    """The server or the client said no."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code


class Unsupported(Exception):
    """The library has no way to ask for this; a test skips with the reason."""


@dataclass(frozen=True)
class Record:
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True)
class Got:
    """A record that came back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int


def first_of(polled: Mapping[Any, Sequence[Any]]) -> Got | None:
    """The first record of what kafka-python has polled, or aiokafka: theirs look alike."""
    for record in (each for records in polled.values() for each in records):
        return Got(
            record.partition,
            record.offset,
            record.key,
            record.value,
            tuple(record.headers),
            record.timestamp,
            record.timestamp_type,
        )
    return None


@dataclass(frozen=True)
class Sending:
    """How a producer is set up."""

    codec: str = "none"
    acks: int = -1
    is_idempotent: bool = False
    request_bytes_max: int = 1_000_000
    linger_ms: int = 20
    """Enough that what is sent together goes in one batch."""
    give_up_ms: int = 30_000


@dataclass(frozen=True)
class Fetching:
    """How a consumer is set up."""

    partition_bytes_max: int = 1 << 20
    wait_ms_max: int = 500
    bytes_min: int = 1


class Reader(Protocol):
    """A consumer with partitions assigned by hand."""

    def next(self, seconds_max: float = SECONDS_MAX) -> Got | None:
        """The next record, or None when none came in time."""

    def seek(self, partition: int, offset: int) -> None: ...


class Driver(Protocol):
    name: str
    codecs: frozenset[str]
    """What the library can compress with, as it is installed."""

    def produce(self, topic: str, records: Sequence[Record], sending: Sending = ...) -> list[int]:
        """Send all, wait for all acknowledgements, and return the offsets (-1 where acks=0 tells none)."""

    def reader(
        self, topic: str, starts: Mapping[int, int], fetching: Fetching = ...
    ) -> AbstractContextManager[Reader]: ...

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the one after the last."""

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this time or a later one; None where there is none."""

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partition_count(self, topic: str) -> int: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def describe_configs(self, topic: str) -> dict[str, str | None]: ...

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """AlterConfigs: what is not named returns to its default."""

    def change_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """IncrementalAlterConfigs: None takes a setting away; what is not named stays."""

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete what lies before an offset, and return the partition's first offset."""

    def brokers(self) -> set[int]: ...


def read(driver: Driver, topic: str, count: int, starts: Mapping[int, int] | None = None) -> list[Got]:
    """Read so many records, from the beginning of partition 0 unless told otherwise."""
    return read_with(driver, topic, count, Fetching(), starts)


def read_with(
    driver: Driver, topic: str, count: int, fetching: Fetching, starts: Mapping[int, int] | None = None
) -> list[Got]:
    got: list[Got] = []
    with driver.reader(topic, starts or {0: 0}, fetching) as reader:
        while len(got) < count:
            record = reader.next()
            assert record is not None, f"only {len(got)} of {count} records came"
            got.append(record)
    return got
