"""What a connection remembers of a commit: a match reads what kio reads, and a reply is what kio would write."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.wire import (
    Api,
    parse_header,
    read_request,
    request_frame,
    request_module,
    response_frame,
    write_request,
    write_response,
)
from penstock.wire.commits import (
    FRAME_BYTES_MAX,
    TOPIC_IDS,
    VERSION_MAX,
    VERSION_MIN,
    CommitPattern,
    commit_pattern,
    may_repeat,
)
from penstock.wire.messages import response_module

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
Numbers = tuple[int, int, int]
NUMBERS = st.tuples(INT32, INT64, INT32)
TEXT = st.none() | st.text(max_size=3)


def frame_of(
    version: int,
    topics: list[list[tuple[Numbers, str | None]]],
    correlation_id: int = 1,
    *,
    group: str = "g",
    generation: int = 3,
    instance: str | None = None,
) -> memoryview:
    """A commit for topics 0, 1, 2 and so on, as it lies in the receive buffer."""
    module = request_module(Api.OFFSET_COMMIT, version)
    named = [
        {"topic_id": UUID(int=each + 1)} if version >= TOPIC_IDS else {"name": f"topic-{each}"}
        for each in range(len(topics))
    ]
    request = module.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id="someone",
        **({"group_instance_id": instance} if version >= 7 else {}),
        topics=tuple(
            module.OffsetCommitRequestTopic(
                **name,
                partitions=tuple(
                    module.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=text,
                    )
                    for (index, offset, epoch), text in rows
                ),
            )
            for name, rows in zip(named, topics, strict=True)
        ),
    )
    body = write_request(Api.OFFSET_COMMIT, version, request)
    return memoryview(request_frame(Api.OFFSET_COMMIT, version, correlation_id, "client", body))[4:]


def read(frame: memoryview) -> tuple[Any, Any]:
    header = parse_header(frame)
    return header, read_request(Api.OFFSET_COMMIT, header.api_version, frame[header.body_at :])


def pattern_of(frame: memoryview) -> CommitPattern:
    pattern = commit_pattern(frame, *read(frame))
    assert pattern is not None
    return pattern


def written(version: int, correlation_id: int, request: Any, codes: list[int]) -> bytes:
    """The reply as kio writes it."""
    module = response_module(Api.OFFSET_COMMIT, version)
    left = iter(codes)
    response = module.OffsetCommitResponse(
        throttle_time=timedelta(),
        topics=tuple(
            module.OffsetCommitResponseTopic(
                **({"topic_id": topic.topic_id} if version >= TOPIC_IDS else {"name": topic.name}),
                partitions=tuple(
                    module.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=ErrorCode(next(left))
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
    body = write_response(Api.OFFSET_COMMIT, version, response)
    return response_frame(Api.OFFSET_COMMIT, version, correlation_id, body)


@given(st.data())
def test_a_match_reads_and_answers_what_kio_does(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    texts = data.draw(st.lists(st.lists(TEXT, max_size=4), min_size=1, max_size=3))
    if not any(texts):
        texts[0] = [""]

    def drawn(correlation_id: int) -> memoryview:
        topics = [[(data.draw(NUMBERS), text) for text in rows] for rows in texts]
        return frame_of(version, topics, correlation_id, instance="me")

    pattern = pattern_of(drawn(1))
    frame = drawn(7)
    _, request = read(frame)
    numbers = pattern.match(frame)
    assert numbers is not None
    assert numbers[1] == 7
    rows = [each for topic in request.topics for each in topic.partitions]
    assert numbers[3::4] == tuple(each.partition_index for each in rows)
    assert numbers[4::4] == tuple(each.committed_offset for each in rows)
    assert numbers[5::4] == tuple(each.committed_leader_epoch for each in rows)
    codes = data.draw(st.lists(st.sampled_from((0, 3, 22, 25)), min_size=len(rows), max_size=len(rows)))
    results = [(each.partition_index, code) for each, code in zip(rows, codes, strict=True)]
    assert pattern.reply(7, results) == written(version, 7, request, codes)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_other_byte_counts(version: int) -> None:
    """Only the correlation id and sixteen bytes for each partition may differ."""
    frame = frame_of(version, [[((1, 2, 3), "x"), ((4, 5, 6), None)]])
    pattern = pattern_of(frame)
    free = []
    for at in range(len(frame)):
        other = bytearray(frame)
        other[at] ^= 1
        if pattern.match(memoryview(other)) is not None:
            free.append(at)
    assert len(free) == 4 + 2 * 16
    assert free[:4] == [4, 5, 6, 7]
    assert pattern.match(memoryview(bytes(frame) + b"\0")) is None
    assert pattern.match(frame[:-1]) is None


@pytest.mark.parametrize("version", [8, 9, 10])
def test_what_has_tags_has_no_pattern(version: int) -> None:
    """A flexible request ends with the tags of the partition, of the topic and of the request: it has none."""
    frame = bytes(frame_of(version, [[((1, 2, 3), "")]]))
    tag = b"\1\x63\1\0"  # one tag: 99, of one byte
    for tail in (tag + b"\0\0", b"\0" + tag + b"\0", b"\0\0" + tag):
        tagged = memoryview(frame[:-3] + tail)
        assert commit_pattern(tagged, *read(tagged)) is None


@pytest.mark.parametrize("topics", [[], [[]]], ids=["topics", "partitions"])
def test_a_commit_without_partitions_has_no_pattern(topics: list[list[Any]]) -> None:
    frame = frame_of(9, topics)
    assert commit_pattern(frame, *read(frame)) is None


def test_a_long_commit_or_one_of_an_old_version_is_not_remembered() -> None:
    frame = frame_of(9, [[((0, 0, 0), "")]])
    header = parse_header(frame)
    assert may_repeat(frame, header)
    assert not may_repeat(memoryview(bytes(FRAME_BYTES_MAX + 1)), header)
    assert not may_repeat(frame, header._replace(api_version=VERSION_MIN - 1))
