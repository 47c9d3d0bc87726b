import struct
import tracemalloc
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.entities import assault

from penstock.base.errors import ErrorCode
from penstock.wire import (
    Api,
    CurrentLeader,
    MalformedRequest,
    NodeEndpoint,
    ProduceRequest,
    ProduceResult,
    RecordError,
    UnsupportedVersion,
    parse_produce,
    parse_response_header,
    produce_reply,
    produce_reply_one,
    read_response,
    request_module,
    write_request,
)
from penstock.wire.primitives import uvarint
from penstock.wire.produce import TEMPLATES_MAX, TOPIC_IDS, _templates

VERSIONS = range(3, 14)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=10) | st.just("n" * 200)
ids = st.binary(min_size=16, max_size=16).filter(any)
record_sets = st.none() | st.binary(max_size=20) | st.just(b"r" * 300)
partitions = st.lists(st.tuples(int32s, record_sets), max_size=3)
heads = st.tuples(st.none() | names, st.integers(-(2**15), 2**15 - 1), int32s)


def topics(version: int, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str | bytes, Any]]]:
    return st.lists(st.tuples(ids if version >= TOPIC_IDS else names, inner), max_size=3)


def as_kio_writes(version: int, head: tuple[str | None, int, int], content: list[Any]) -> bytes:
    module = request_module(Api.PRODUCE, version)
    key = "topic_id" if version >= TOPIC_IDS else "name"
    return write_request(
        Api.PRODUCE,
        version,
        module.ProduceRequest(
            transactional_id=head[0],
            acks=head[1],
            timeout=timedelta(milliseconds=head[2]),
            topic_data=tuple(
                module.TopicProduceData(
                    **{key: UUID(bytes=topic) if isinstance(topic, bytes) else topic},
                    partition_data=tuple(
                        module.PartitionProduceData(index=index, records=records) for index, records in inner
                    ),
                )
                for topic, inner in content
            ),
        ),
    )


def flat(request: ProduceRequest) -> tuple[tuple[str | None, int, int], list[Any]]:
    content = [
        (topic, [(index, None if records is None else bytes(records)) for index, records in inner])
        for topic, inner in request.topics
    ]
    return (request.transactional_id, request.acks, request.timeout_ms), content


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_reads_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    head, content = data.draw(heads), data.draw(topics(version, partitions))
    body = as_kio_writes(version, head, content)
    assert flat(parse_produce(memoryview(b"head" + body), 4, version)) == (head, content)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=4)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_damaged_request_is_refused_and_nothing_else(version: int, data: st.DataObject, seed: int) -> None:
    body = as_kio_writes(version, data.draw(heads), data.draw(topics(version, partitions)))
    assault(lambda view: parse_produce(view, 0, version), body, Random(seed), rounds=40)


def test_records_share_the_memory_of_the_frame() -> None:
    frame = bytearray(as_kio_writes(9, (None, 1, 100), [("t", [(0, b"abc")])]))
    records = parse_produce(memoryview(frame), 0, 9).topics[0].partitions[0].records
    assert records is not None
    frame[frame.index(b"abc")] = ord("x")
    assert records == b"xbc"


def test_tags_anywhere_in_a_flexible_request_are_skipped() -> None:
    """KIP-482."""
    tag = b"\1\x63\2zz"
    frame = b"\0" + struct.pack(">hi", -1, 5) + b"\2\2t\2" + struct.pack(">i", 7) + b"\2r" + tag + tag + tag
    assert flat(parse_produce(memoryview(frame), 0, 9)) == ((None, -1, 5), [("t", [(7, b"r")])])


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 14])
def test_versions_outside_are_refused(version: int) -> None:
    """Kafka 4 dropped 0 to 2, though it advertises them."""
    with pytest.raises(UnsupportedVersion):
        parse_produce(memoryview(b""), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_length_that_lies_is_refused_without_making_room_for_it(version: int) -> None:
    flexible = version >= 9
    huge = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
    head = (b"\0" if flexible else b"\xff\xff") + struct.pack(">hi", 1, 1)
    one = b"\2" if flexible else b"\0\0\0\1"
    topic = bytes(15) + b"i" if version >= TOPIC_IDS else b"\2t" if flexible else b"\0\1t"
    tracemalloc.start()
    try:
        for lie in (huge, one + topic + huge, one + topic + one + b"\0\0\0\0" + huge):
            with pytest.raises(MalformedRequest):
                parse_produce(memoryview(head + lie + bytes(50)), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (9, uvarint(300_001) + b"\1\1\0" * 300_000),
        (9, b"\3" + (b"\2t" + uvarint(200_001) + b"\0\0\0\0\0\0" * 200_000 + b"\0") * 2),
        (8, struct.pack(">i", 300_000) + bytes(6) * 300_000),
        (8, struct.pack(">i", 2) + (b"\0\1t" + struct.pack(">i", 200_000) + bytes(8) * 200_000) * 2),
    ],
    ids=["topics", "partitions", "plain topics", "plain partitions"],
)
def test_items_are_counted_against_a_limit(version: int, content: bytes) -> None:
    head = (b"\0" if version >= 9 else b"\xff\xff") + struct.pack(">hi", 1, 1)
    with pytest.raises(MalformedRequest, match="items, expected at most 262144"):
        parse_produce(memoryview(head + content + b"\0"), 0, version)


results = st.builds(
    ProduceResult,
    int32s,
    st.sampled_from(ErrorCode).map(int),
    int64s,
    st.just(-1) | st.integers(0, 4_000_000_000_000),
    int64s,
    st.lists(st.builds(RecordError, int32s, st.none() | names), max_size=2),
    st.none() | names,
    st.none() | st.builds(CurrentLeader, st.integers(0, 9), st.integers(0, 9)),
)
endpoints = st.lists(
    st.builds(NodeEndpoint, st.integers(0, 9), names, st.integers(0, 65535), st.none() | names), max_size=2
)


def read_reply(version: int, frame: bytes) -> tuple[int, Any]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(frame)[4:]
    correlation_id, at = parse_response_header(view, Api.PRODUCE, version)
    return correlation_id, read_response(Api.PRODUCE, version, view[at:])


def expected_result(each: ProduceResult, version: int) -> ProduceResult:
    """What is left of a result in a version that has not all of its fields."""
    if version < 5:
        each = each._replace(log_start_offset=-1)
    if version < 8:
        each = each._replace(record_errors=[], error_message=None)
    return each if version >= 10 else each._replace(current_leader=None)


def result_of(entity: Any, version: int) -> ProduceResult:
    leader = entity.current_leader if version >= 10 else None
    return ProduceResult(
        entity.index,
        entity.error_code,
        entity.base_offset,
        -1 if entity.log_append_time is None else round(entity.log_append_time.timestamp() * 1000),
        entity.log_start_offset if version >= 5 else -1,
        [RecordError(e.batch_index, e.batch_index_error_message) for e in entity.record_errors]
        if version >= 8
        else [],
        entity.error_message if version >= 8 else None,
        None
        if leader is None or leader.leader_id == -1
        else CurrentLeader(leader.leader_id, leader.leader_epoch),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_kio_reads_a_reply_as_it_was_written(version: int, data: st.DataObject) -> None:
    content = data.draw(topics(version, st.lists(results, max_size=3)))
    hints, throttle, correlation_id = data.draw(endpoints), data.draw(int32s), data.draw(int32s)
    frame = produce_reply(version, correlation_id, content, throttle_time_ms=throttle, node_endpoints=hints)
    answered, reply = read_reply(version, frame)
    assert answered == correlation_id
    assert reply.throttle_time == timedelta(milliseconds=throttle)
    assert [
        (topic.topic_id.bytes if version >= TOPIC_IDS else topic.name, [result_of(p, version) for p in inner])
        for topic in reply.responses
        for inner in [topic.partition_responses]
    ] == [(topic, [expected_result(each, version) for each in inner]) for topic, inner in content]
    if version >= 10:
        assert [(e.node_id, e.host, e.port, e.rack) for e in reply.node_endpoints] == hints


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@settings(max_examples=5)
def test_the_reply_for_one_partition_is_the_general_one(version: int, data: st.DataObject) -> None:
    topic = data.draw(ids if version >= TOPIC_IDS else names)
    result = ProduceResult(*data.draw(st.tuples(int32s, st.integers(0, 130), int64s, int64s, int64s)))
    partition, error, offset, time_ms, start, *_ = result
    for correlation_id in (7, -8):
        fast = produce_reply_one(version, correlation_id, topic, partition, offset, start, time_ms, error)
        assert fast == produce_reply(version, correlation_id, [(topic, [result])])


def test_templates_do_not_pile_up() -> None:
    for number in range(TEMPLATES_MAX + 10):
        produce_reply_one(9, 1, f"topic-{number}", 0, 0, 0)
    assert len(_templates) <= TEMPLATES_MAX
