"""Bad bytes over a real socket: the connection ends or an error is sent, the log gets one line at most, and the broker
goes on.

A frame is sent, and then the end of the stream. The broker may answer, and must close. An exception that nobody
expected would reach the loop and be logged as an error, which is what is looked for after every frame.
"""

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.server.raw import (
    FETCH,
    METADATA,
    PRODUCE,
    RawClient,
    batch,
    create_topic,
    fetch_request,
    metadata_request,
    produce_request,
)
from tests.wire.entities import corrupted, make

from penstock.handlers.support.dispatch import RANGES
from penstock.testing import Broker
from penstock.wire import Api, request_frame, write_request
from penstock.wire.messages import request_type

CORRUPT_MESSAGE, INVALID_TXN_STATE = 2, 48

REQUEST_BYTES_MAX = 1_000_000
TOPIC = "fuzzed"

MOVING = (Api.UNREGISTER_BROKER, Api.ALTER_PARTITION_REASSIGNMENTS, Api.ELECT_LEADERS)
"""What takes the honest client's partition away from the broker where it happens to be sound; they have tests of their
own (`tests/handlers/test_reassignments.py`)."""

SERVED = [
    (api, version)
    for api, (low, high) in sorted(RANGES.items())
    if api not in MOVING
    for version in range(low, high + 1)
]


class Lines(logging.Handler):
    """What was logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self) -> list[logging.LogRecord]:
        records, self.records = self.records, []
        return records


class Target:
    """A broker under fire, and an honest client that watches it."""

    def __init__(self, port: int, lines: Lines, honest: RawClient) -> None:
        self.port, self.lines, self.honest = port, lines, honest
        [topic] = honest.ask(Api.METADATA, METADATA, metadata_request(TOPIC)).topics
        self.topic_id: UUID = topic.topic_id

    def hit(self, data: bytes) -> list[bytes]:
        """Send data and the end of the stream; return the frames that came back before the broker closed."""
        with RawClient(self.port) as client:
            with suppress(OSError):  # it may be closed before all is sent
                client.send(data)
            frames = client.finish()
        [topic] = self.honest.ask(Api.METADATA, METADATA, metadata_request(TOPIC)).topics
        assert topic.topic_id == self.topic_id
        assert int(topic.error_code) == 0
        return frames

    def check_log(self, lines_max: int = 1) -> list[str]:
        """Return the warnings, of which there may be so many and nothing worse."""
        records = self.lines.take()
        worse = [each for each in records if each.levelno > logging.WARNING]
        formatter = logging.Formatter()
        assert not worse, "\n".join(formatter.format(each) for each in worse)
        told = [each.getMessage() for each in records]
        assert len(told) <= lines_max, told
        return told


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    settings = {
        "socket.request.max.bytes": str(REQUEST_BYTES_MAX),
        "auto.create.topics.enable": "true",
        # Deleted by an AlterConfigs or a DeleteRecords that happens to be sound, the topic would be missed.
        "delete.topic.enable": "false",
    }
    try:
        with Broker(settings=settings) as broker:
            create_topic(broker.port, TOPIC)
            with RawClient(broker.port) as honest:
                answer = honest.ask(Api.PRODUCE, PRODUCE, produce_request(TOPIC, batch(b"one", b"two")))
                assert int(answer.responses[0].partition_responses[0].error_code) == 0
                yield Target(broker.port, lines, honest)
    finally:
        logging.getLogger().removeHandler(lines)


@pytest.fixture
def hit(target: Target) -> Iterator[Target]:
    target.lines.take()
    yield target
    assert not target.lines.records, "a test looks at the log itself"


def aimed(message: Any, topic_id: UUID, rng: Random) -> Any:
    """The same message, with names, ids and partitions that are there in many places: it gets further in."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if rng.random() < 0.3:
            continue
        if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            changes[field.name] = tuple(aimed(each, topic_id, rng) for each in value)
        elif field.name in ("name", "topic", "topic_name", "resource_name") and value is not None:
            changes[field.name] = TOPIC
        elif field.name == "topic_id":
            changes[field.name] = topic_id
        elif field.name in ("partition", "partition_index", "index") and isinstance(value, int):
            changes[field.name] = 0
        elif field.metadata.get("kafka_type") == "records":
            changes[field.name] = batch(b"fuzz", rng.randbytes(30))
    return dataclasses.replace(message, **changes)


def frame_of(api: Api, version: int, topic_id: UUID, rng: Random) -> bytes:
    message = aimed(make(request_type(api, version), rng), topic_id, rng)
    return request_frame(api, version, 7, "fuzz", write_request(api, version, message))


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 100), marks=pytest.mark.long)], ids=["some", "many"]
)
@pytest.mark.parametrize(
    ("api", "version"), SERVED, ids=[f"{api.label}-{version}" for api, version in SERVED]
)
def test_a_sound_frame_of_any_content_is_answered_or_waits(
    hit: Target, api: Api, version: int, seeds: range
) -> None:
    """No value inside a well-formed request may surprise a handler: edges of integers, names that are none."""
    for seed in seeds:
        rng = Random(f"{api}-{version}-{seed}")
        hit.hit(frame_of(api, version, hit.topic_id, rng))
        hit.check_log()


@given(st.sampled_from(SERVED), st.integers(0, 2**32))
def test_a_damaged_frame_harms_nobody_else(target: Target, kind: tuple[Api, int], seed: int) -> None:
    rng = Random(seed)
    frame = frame_of(*kind, target.topic_id, rng)
    body = corrupted(frame[4:], rng)
    target.lines.take()
    target.hit(len(body).to_bytes(4, "big") + body)
    target.check_log()


@given(st.sampled_from(SERVED), st.integers(0, 2**32), st.floats(0, 1))
def test_a_frame_that_breaks_off_is_forgotten(
    target: Target, kind: tuple[Api, int], seed: int, share: float
) -> None:
    frame = frame_of(*kind, target.topic_id, Random(seed))
    target.lines.take()
    assert target.hit(frame[: int(share * (len(frame) - 1))]) == []
    assert target.check_log() == []


@given(st.binary(max_size=200))
@example(b"")
@example(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
@example(b"\0\0\0\0")
@example(b"\xff\xff\xff\xff")
@example(b"\x80\0\0\0")
@example(b"\x7f\xff\xff\xff")
@example(b"\0\0\0\x01\0")
def test_bytes_of_no_protocol_are_turned_away(target: Target, data: bytes) -> None:
    target.lines.take()
    target.hit(data)
    target.check_log()


@pytest.mark.parametrize(
    ("key", "version", "told"),
    [
        (999, 0, "unknown API 999"),
        (-1, 0, "unknown API -1"),
        (int(Api.METADATA), 99, "Metadata version 99"),
        (int(Api.METADATA), -1, "Metadata version -1"),
        (int(Api.PRODUCE), 2, "Produce 2"),
        (int(Api.FETCH), 3, "Fetch 3"),
        (int(Api.FETCH), 32767, "Fetch 32767"),
        (int(Api.LEADER_AND_ISR), 4, "LeaderAndIsr"),
        (int(Api.VOTE), 0, "Vote"),
    ],
)
def test_an_api_or_version_that_is_not_served_ends_the_connection_and_is_named(
    hit: Target, key: int, version: int, told: str
) -> None:
    head = (
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + b"\0\0\0\x07\xff\xff\0"
    )
    frames = hit.hit(len(head).to_bytes(4, "big") + head)
    [line] = hit.check_log()
    assert frames == []
    assert told in line
    assert "127.0.0.1" in line


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_gets_error_35_in_the_form_of_version_0(
    hit: Target, version: int
) -> None:
    """KIP-511: a newer client learns from it which version to ask with."""
    head = int(Api.API_VERSIONS).to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x07\xff\xff\0"
    [frame] = hit.hit(len(head).to_bytes(4, "big") + head)
    assert frame[:4] == b"\0\0\0\x07"
    assert frame[4:6] == b"\0\x23"
    assert hit.check_log() == []


def test_a_frame_longer_than_the_limit_is_refused_by_its_length_alone(hit: Target) -> None:
    hit.hit((REQUEST_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\3")
    [line] = hit.check_log()
    assert str(REQUEST_BYTES_MAX + 1) in line


@pytest.mark.parametrize("count", [2**31 - 1, -2, -(2**31), 1_000_000])
def test_an_array_that_lies_about_its_length_ends_the_connection(hit: Target, count: int) -> None:
    """Metadata 1: an array of names, said to be longer than the frame could hold."""
    body = count.to_bytes(4, "big", signed=True) + b"\0\1a"
    head = int(Api.METADATA).to_bytes(2, "big") + b"\0\1\0\0\0\x07\xff\xff"
    assert hit.hit(len(head + body).to_bytes(4, "big") + head + body) == []
    assert len(hit.check_log()) == 1


@pytest.mark.parametrize("length", [2**31 - 1, -2, 1000])
def test_records_that_lie_about_their_length_end_the_connection(hit: Target, length: int) -> None:
    records = batch(b"x")
    of = request_frame(Api.PRODUCE, 8, 7, None, _produce_8(records))
    at = of.index(len(records).to_bytes(4, "big") + records)
    lying = of[:at] + length.to_bytes(4, "big", signed=True) + of[at + 4 :]
    assert hit.hit(lying) == []
    assert len(hit.check_log()) == 1


def _produce_8(records: bytes) -> bytes:
    message = produce_request(TOPIC, records)
    of = request_type(Api.PRODUCE, 8)
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(of)}
    return write_request(Api.PRODUCE, 8, of(**fields))


@given(st.integers(0, 2**32))
def test_a_damaged_batch_is_refused_with_an_error_and_not_kept(target: Target, seed: int) -> None:
    """The frame is sound; what is in it is not: the client gets an error code."""
    rng = Random(seed)
    whole = batch(b"first", b"second")
    damaged = bytearray(whole)
    damaged[rng.randrange(21, len(damaged))] ^= 1 << rng.randrange(8)  # under the checksum
    target.lines.take()
    with RawClient(target.port) as client:
        end = _log_end(client)
        answer = client.ask(Api.PRODUCE, PRODUCE, produce_request(TOPIC, bytes(damaged)))
        [partition] = answer.responses[0].partition_responses
        # A damaged bit may also make it a transaction's, which is looked at before the checksum.
        assert int(partition.error_code) in (CORRUPT_MESSAGE, INVALID_TXN_STATE)
        assert _log_end(client) == end
    target.check_log()


def _log_end(client: RawClient) -> int:
    answer = client.ask(Api.FETCH, FETCH, fetch_request(TOPIC, 0))
    return int(answer.responses[0].partitions[0].high_watermark)
