from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.entities import corrupted
from tests.wire.test_produce import as_kio_writes, heads, ids, int32s, names

from penstock.wire import Api, ProducePrefix, parse_header, parse_produce, request_frame
from penstock.wire.prefix import MISSES_MAX

VERSIONS = range(3, 14)
HEAD = (None, -1, 30_000)


def frame_of(
    version: int, content: list[Any], head: tuple[str | None, int, int] = HEAD, correlation_id: int = 1
) -> memoryview:
    return memoryview(
        request_frame(Api.PRODUCE, version, correlation_id, "me", as_kio_writes(version, head, content))
    )[4:]


def learned_from(frame: memoryview) -> ProducePrefix:
    prefix = ProducePrefix()
    header = parse_header(frame)
    prefix.learn(frame, header, parse_produce(frame, header.body_at, header.api_version))
    return prefix


def check(prefix: ProducePrefix, frame: memoryview) -> bool:
    """Whether the frame matches; if it does, the parser must say the same."""
    found = prefix.match(frame)
    if found is None:
        return False
    header = parse_header(frame)
    request = parse_produce(frame, header.body_at, header.api_version)
    assert prefix.header is not None
    assert prefix.request is not None
    assert header == prefix.header._replace(correlation_id=found.correlation_id)
    assert request == prefix.request._replace(topics=[(prefix.topic, [(found.partition, found.records)])])  # type: ignore[list-item]
    return True


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=4)
@given(data=st.data())
def test_a_request_that_repeats_is_read_as_the_parser_reads_it(version: int, data: st.DataObject) -> None:
    head, topic = data.draw(heads), data.draw(ids if version >= 13 else names)
    first = frame_of(version, [(topic, [(data.draw(int32s), b"first")])], head)
    prefix = learned_from(first)
    for size in (0, 1, 126, 127, 200, 20_000):
        again = frame_of(version, [(topic, [(data.draw(int32s), b"r" * size)])], head, data.draw(int32s))
        assert check(prefix, again)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_a_match_never_says_anything_but_what_the_parser_would(version: int, seed: int) -> None:
    rng = Random(seed)
    topic = bytes(range(16)) if version >= 13 else "topic"
    frame = frame_of(version, [(topic, [(3, b"records")])])
    for _ in range(40):
        check(learned_from(frame), memoryview(corrupted(bytes(frame), rng)))
    for end in range(len(frame)):
        assert not check(learned_from(frame), frame[:end])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_out_of_the_ordinary_is_left_to_the_parser(version: int) -> None:
    topic, other = (b"i" * 16, b"j" * 16) if version >= 13 else ("topic", "tipoc")
    frame = frame_of(version, [(topic, [(3, b"records")])])
    for odd in (
        frame_of(version, [(other, [(3, b"records")])]),
        frame_of(version, [(topic, [(3, b"records"), (4, b"records")])]),
        frame_of(version, [(topic, [(3, b"records")]), (other, [])]),
        frame_of(version, [(topic, [(3, None)])]),
        frame_of(version, [(topic, [(3, b"records")])], (None, 1, 30_000)),
        frame_of(version, [(topic, [(3, b"records")])], ("txn", -1, 30_000)),
        memoryview(bytes(frame) + b"\0"),
    ):
        assert learned_from(frame).match(odd) is None


def test_what_has_not_one_partition_is_not_learned() -> None:
    for content in (
        [],
        [("a", [])],
        [("a", [(0, b"r"), (1, b"r")])],
        [("a", [(0, b"r")]), ("b", [(0, b"r")])],
    ):
        assert learned_from(frame_of(9, content)).header is None


def test_a_connection_that_never_repeats_stops_trying() -> None:
    frame, other = frame_of(9, [("topic", [(0, b"r")])]), frame_of(9, [("tipoc", [(0, b"r")])])
    prefix = learned_from(frame)
    for _ in range(MISSES_MAX):
        assert prefix.match(other) is None
    assert prefix.match(frame) is None
    header = parse_header(frame)
    prefix.learn(frame, header, parse_produce(frame, header.body_at, 9))
    assert prefix.match(frame) is None
