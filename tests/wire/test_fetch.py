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
from tests.wire.test_produce import endpoints, ids, int32s, int64s, names, topics

from penstock.base.errors import ErrorCode
from penstock.wire import (
    AbortedTransaction,
    Api,
    CurrentLeader,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResult,
    ForgottenTopic,
    MalformedRequest,
    SnapshotId,
    UnsupportedVersion,
    fetch_reply,
    parse_fetch,
    parse_response_header,
    read_response,
    request_module,
    write_request,
)
from penstock.wire.fetch import HIGH_WATERMARK_UNTOLD, TOPIC_IDS
from penstock.wire.primitives import uvarint

VERSIONS = range(4, 19)

partitions = st.lists(
    st.builds(
        FetchPartition,
        int32s,
        int32s,
        int64s,
        int32s,
        int64s,
        int32s,
        st.none() | ids,
        st.just(HIGH_WATERMARK_UNTOLD) | int64s,
    ),
    max_size=3,
)
heads = st.tuples(int32s, int32s, int32s, st.integers(-128, 127), int32s, int32s)
forgotten_indexes = st.lists(int32s, max_size=3).map(tuple)
tails = st.tuples(names, st.integers(-1, 9), st.integers(-1, 9), st.none() | names)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    """A request, with what its version cannot carry as it is told when it was not."""
    wait, low, high, isolation, session_id, session_epoch = draw(heads)
    rack, replica_id, replica_epoch, cluster_id = draw(tails)
    content = draw(topics(version, partitions))
    forgotten = draw(topics(version, forgotten_indexes))
    if version < 7:
        session_id, session_epoch, forgotten = 0, -1, []
    return FetchRequest(
        wait,
        low,
        high,
        isolation,
        session_id,
        session_epoch,
        [(topic, [carried(each, version) for each in inner]) for topic, inner in content],  # type: ignore[misc]
        [ForgottenTopic(*each) for each in forgotten],
        rack if version >= 11 else "",
        replica_id,
        replica_epoch if version >= 15 else -1,
        cluster_id if version >= 12 else None,
    )


def carried(each: FetchPartition, version: int) -> FetchPartition:
    if version < 5:
        each = each._replace(log_start_offset=-1)
    if version < 9:
        each = each._replace(current_leader_epoch=-1)
    if version < 12:
        each = each._replace(last_fetched_epoch=-1)
    if version < 17:
        each = each._replace(replica_directory_id=None)
    return each if version >= 18 else each._replace(high_watermark=HIGH_WATERMARK_UNTOLD)


def as_kio_writes(version: int, request: FetchRequest) -> bytes:
    module = request_module(Api.FETCH, version)

    def named(topic: str | bytes) -> dict[str, Any]:
        return {"topic_id": UUID(bytes=topic)} if isinstance(topic, bytes) else {"topic": topic}

    def partition(each: FetchPartition) -> Any:
        directory = each.replica_directory_id
        values = {
            **each._asdict(),
            "partition_max_bytes": each.partition_bytes_max,
            "replica_directory_id": None if directory is None else UUID(bytes=directory),
        }
        known = module.FetchPartition.__dataclass_fields__
        return module.FetchPartition(**{name: value for name, value in values.items() if name in known})

    values = {
        "replica_id": request.replica_id,
        "max_wait": timedelta(milliseconds=request.max_wait_ms),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": tuple(
            module.FetchTopic(**named(topic), partitions=tuple(partition(each) for each in inner))
            for topic, inner in request.topics
        ),
        "rack_id": request.rack_id,
        "cluster_id": request.cluster_id,
    }
    if version >= 7:
        values["forgotten_topics_data"] = tuple(
            module.ForgottenTopic(**named(topic), partitions=indexes) for topic, indexes in request.forgotten
        )
    if version >= 15:
        values["replica_state"] = module.ReplicaState(
            replica_id=request.replica_id, replica_epoch=request.replica_epoch
        )
    known = module.FetchRequest.__dataclass_fields__
    entity = module.FetchRequest(**{name: value for name, value in values.items() if name in known})
    return write_request(Api.FETCH, version, entity)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_reads_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    body = as_kio_writes(version, request)
    assert parse_fetch(memoryview(b"head" + body), 4, version) == request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=3)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_damaged_request_is_refused_and_nothing_else(version: int, data: st.DataObject, seed: int) -> None:
    body = as_kio_writes(version, data.draw(requests(version)))
    assault(lambda view: parse_fetch(view, 0, version), body, Random(seed), rounds=40)


def test_tags_anywhere_in_a_flexible_request_are_skipped() -> None:
    """KIP-482; and a tag of a later version is not read in an earlier one."""
    tag = b"\1\x63\2zz"
    head = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    partition = struct.pack(">iiqiqi", 3, -1, 7, -1, -1, 100)
    frame = head + b"\2" + b"i" * 16 + b"\2" + partition + b"\1\1\x08" + bytes(8) + tag + b"\1" + b"\1" + tag
    request = parse_fetch(memoryview(frame), 0, 17)
    assert request.topics == [(b"i" * 16, [FetchPartition(3, -1, 7, -1, -1, 100)])]
    assert parse_fetch(memoryview(frame), 0, 18).topics[0].partitions[0].high_watermark == 0


def with_tags(partitions: int, tags_each: int) -> bytes:
    head = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    tags = bytes((tags_each,)) + b"".join(bytes((tag, 0)) for tag in range(10, 10 + tags_each))
    partition = struct.pack(">iiqiqi", 3, -1, 7, -1, -1, 100) + tags
    return head + b"\2" + b"i" * 16 + uvarint(partitions + 1) + partition * partitions + b"\0\1\1\0"


def test_unknown_tags_are_skipped_up_to_a_number_that_no_client_sends() -> None:
    """64 for each of 2,000 partitions held the loop for 200 ms."""
    assert len(parse_fetch(memoryview(with_tags(100, 12)), 0, 18).topics[0].partitions) == 100
    with pytest.raises(MalformedRequest, match="unknown tagged fields or more, expected at most 1000"):
        parse_fetch(memoryview(with_tags(2000, 64)), 0, 18)


@pytest.mark.parametrize("version", [-1, 0, 3, 19])
def test_versions_outside_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        parse_fetch(memoryview(b""), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_length_that_lies_is_refused_without_making_room_for_it(version: int) -> None:
    flexible = version >= 12
    huge = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
    none, one = (b"\1", b"\2") if flexible else (bytes(4), b"\0\0\0\1")
    head = bytes(17 + (8 if version >= 7 else 0) - (4 if version >= 15 else 0))
    topic = bytes(15) + b"i" if version >= TOPIC_IDS else b"\2t" if flexible else b"\0\1t"
    lies = [huge, one + topic + huge]
    if version >= 7:
        lies += [none + huge, none + one + topic + huge]
    if flexible:
        lies += [none + none + huge, none + none + b"\1" + huge, none + none + b"\1\1\0" + huge]
    tracemalloc.start()
    try:
        for lie in lies:
            with pytest.raises(MalformedRequest):
                parse_fetch(memoryview(head + lie + bytes(50)), 0, version)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (12, uvarint(300_001) + b"\1\1\0" * 300_000),
        (12, b"\3" + (b"\2t" + uvarint(200_001) + bytes(33) * 200_000 + b"\0") * 2),
        (12, b"\1\3" + (b"\2t" + uvarint(200_001) + bytes(4) * 200_000 + b"\0") * 2),
        (4, struct.pack(">i", 2) + (b"\0\1t" + struct.pack(">i", 200_000) + bytes(16) * 200_000) * 2),
    ],
    ids=["topics", "partitions", "forgotten", "plain partitions"],
)
def test_items_are_counted_against_a_limit(version: int, content: bytes) -> None:
    head = bytes(25 if version == 12 else 17)
    with pytest.raises(MalformedRequest, match="items, expected at most 262144"):
        parse_fetch(memoryview(head + content), 0, version)


small = st.integers(0, 9)
results = st.builds(
    FetchResult,
    int32s,
    st.sampled_from(ErrorCode).map(int),
    int64s,
    int64s,
    int64s,
    st.none() | st.binary(max_size=20) | st.just(b"r" * 20_000) | st.just(memoryview(b"view")),
    st.none() | st.lists(st.builds(AbortedTransaction, int64s, int64s), max_size=3),
    int32s,
    st.none() | st.builds(EpochEndOffset, small, small),
    st.none() | st.builds(CurrentLeader, small, small),
    st.none() | st.builds(SnapshotId, small, small),
)


def expected_result(each: FetchResult, version: int) -> FetchResult:
    each = each._replace(records=None if each.records is None else bytes(each.records))
    if version < 5:
        each = each._replace(log_start_offset=-1)
    if version < 11:
        each = each._replace(preferred_read_replica=-1)
    return (
        each if version >= 12 else each._replace(diverging_epoch=None, current_leader=None, snapshot_id=None)
    )


def result_of(entity: Any, version: int) -> FetchResult:
    told: list[Any] = [None, None, None]
    if version >= 12:
        diverging, leader, snapshot = entity.diverging_epoch, entity.current_leader, entity.snapshot_id
        told = [
            None if diverging.epoch == -1 else EpochEndOffset(diverging.epoch, diverging.end_offset),
            None if leader.leader_id == -1 else CurrentLeader(leader.leader_id, leader.leader_epoch),
            None if snapshot.epoch == -1 else SnapshotId(snapshot.end_offset, snapshot.epoch),
        ]
    aborted = entity.aborted_transactions
    return FetchResult(
        entity.partition_index,
        entity.error_code,
        entity.high_watermark,
        entity.last_stable_offset,
        entity.log_start_offset if version >= 5 else -1,
        entity.records,
        None if aborted is None else [AbortedTransaction(e.producer_id, e.first_offset) for e in aborted],
        entity.preferred_read_replica if version >= 11 else -1,
        *told,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_kio_reads_a_reply_as_it_was_written(version: int, data: st.DataObject) -> None:
    content = data.draw(topics(version, st.lists(results, max_size=3)))
    hints, correlation_id, session_id, throttle = (
        data.draw(each) for each in (endpoints, int32s, int32s, int32s)
    )
    buffers, total = fetch_reply(
        version,
        correlation_id,
        content,
        throttle_time_ms=throttle,
        error_code=71,
        session_id=session_id,
        node_endpoints=hints,
    )
    frame = b"".join(buffers)
    assert len(frame) == total
    assert all(buffers)
    assert int.from_bytes(frame[:4], "big") == total - 4
    view = memoryview(frame)[4:]
    answered, at = parse_response_header(view, Api.FETCH, version)
    reply = read_response(Api.FETCH, version, view[at:])
    assert answered == correlation_id
    assert reply.throttle_time == timedelta(milliseconds=throttle)
    assert [
        (
            topic.topic_id.bytes if version >= TOPIC_IDS else topic.topic,
            [result_of(each, version) for each in topic.partitions],
        )
        for topic in reply.responses
    ] == [(topic, [expected_result(each, version) for each in inner]) for topic, inner in content]
    if version >= 7:
        assert (reply.error_code, reply.session_id) == (71, session_id)
    if version >= 16:
        assert [(e.node_id, e.host, e.port, e.rack) for e in reply.node_endpoints] == hints


def test_records_are_passed_on_and_not_copied() -> None:
    first, second = bytes(1000), memoryview(bytearray(1000))
    buffers, _ = fetch_reply(
        12,
        1,
        [
            (
                "t",
                [
                    FetchResult(0, 0, 1, 1, 0, first),
                    FetchResult(1, 0, 1, 1, 0),
                    FetchResult(2, 0, 1, 1, 0, second),
                ],
            )
        ],
    )
    assert [type(each) for each in buffers] == [bytearray, bytes, bytearray, memoryview, bytearray]
    assert buffers[1] is first
    assert buffers[3] is second
