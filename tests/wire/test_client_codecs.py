"""The client's side of Produce and Fetch, held against kio: the same bytes out, the same meaning in."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire import test_fetch, test_produce
from tests.wire.entities import assault
from tests.wire.test_produce import endpoints, int32s, topics

from penstock.wire import (
    Api,
    MalformedResponse,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    UnsupportedVersion,
    fetch_reply,
    parse_fetch,
    parse_produce,
    parse_response_header,
    produce_reply,
    read_response,
    write_response,
)
from penstock.wire.fetch_client import fetch_body, read_fetch_response
from penstock.wire.produce_client import produce_body, read_produce_response


@pytest.mark.parametrize("version", test_produce.VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_produce_request_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    head, content = data.draw(test_produce.heads), data.draw(topics(version, test_produce.partitions))
    request = ProduceRequest(
        *head, [ProduceTopic(topic, [ProducePartition(*each) for each in inner]) for topic, inner in content]
    )
    body = produce_body(version, request)
    assert body == test_produce.as_kio_writes(version, head, content)
    assert test_produce.flat(parse_produce(memoryview(body), 0, version)) == (head, content)


@pytest.mark.parametrize("version", test_fetch.VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_fetch_request_is_written_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    request = data.draw(test_fetch.requests(version))
    body = fetch_body(version, request)
    assert body == test_fetch.as_kio_writes(version, request)
    assert parse_fetch(memoryview(body), 0, version) == request


def produce_response(version: int, data: st.DataObject) -> tuple[bytes, list, list, int]:  # type: ignore[type-arg]
    content = data.draw(topics(version, st.lists(test_produce.results, max_size=3)))
    hints, throttle = data.draw(endpoints), data.draw(int32s)
    frame = produce_reply(version, 7, content, throttle_time_ms=throttle, node_endpoints=hints)
    return body_of(frame, Api.PRODUCE, version), content, hints, throttle


def fetch_response(version: int, data: st.DataObject) -> tuple[bytes, list, list, int]:  # type: ignore[type-arg]
    content = data.draw(topics(version, st.lists(test_fetch.results, max_size=3)))
    hints, throttle = data.draw(endpoints), data.draw(int32s)
    buffers, _ = fetch_reply(
        version, 7, content, throttle_time_ms=throttle, error_code=71, session_id=9, node_endpoints=hints
    )
    return body_of(b"".join(buffers), Api.FETCH, version), content, hints, throttle


def body_of(frame: bytes, api: Api, version: int) -> bytes:
    """Read and written again by kio, so that its bytes are read and not ours."""
    view = memoryview(frame)[4:]
    _, at = parse_response_header(view, api, version)
    return write_response(api, version, read_response(api, version, view[at:]))


@pytest.mark.parametrize("version", test_produce.VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_produce_response_reads_as_it_was_meant(version: int, data: st.DataObject) -> None:
    body, content, hints, throttle = produce_response(version, data)
    response = read_produce_response(memoryview(body), version)
    assert response.throttle_time_ms == throttle
    read = [
        (topic, [each._replace(record_errors=list(each.record_errors)) for each in inner])
        for topic, inner in response.topics
    ]
    assert read == [
        (topic, [test_produce.expected_result(each, version) for each in inner]) for topic, inner in content
    ]
    assert response.node_endpoints == (hints if version >= 10 else [])


@pytest.mark.parametrize("version", test_fetch.VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_a_fetch_response_reads_as_it_was_meant(version: int, data: st.DataObject) -> None:
    body, content, hints, throttle = fetch_response(version, data)
    response = read_fetch_response(memoryview(body), version)
    assert response.throttle_time_ms == throttle
    assert (response.error_code, response.session_id) == ((71, 9) if version >= 7 else (0, 0))
    assert response.topics == [
        (topic, [test_fetch.expected_result(each, version) for each in inner]) for topic, inner in content
    ]
    assert response.node_endpoints == (hints if version >= 16 else [])


@pytest.mark.parametrize("version", [3, 8, 13])
@settings(max_examples=3)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_damaged_produce_response_is_refused(version: int, data: st.DataObject, seed: int) -> None:
    body, *_ = produce_response(version, data)
    assault(lambda view: read_produce_response(view, version), body, Random(seed), rounds=40)


@pytest.mark.parametrize("version", [4, 11, 18])
@settings(max_examples=1)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_damaged_fetch_response_is_refused(version: int, data: st.DataObject, seed: int) -> None:
    body, *_ = fetch_response(version, data)
    assault(lambda view: read_fetch_response(view, version), body, Random(seed), rounds=40)


def test_a_length_that_lies_is_refused() -> None:
    huge = b"\xff\xff\xff\xff\x07"
    with pytest.raises(MalformedResponse, match="items"):
        read_produce_response(memoryview(huge + bytes(50)), 12)
    with pytest.raises(MalformedResponse, match="items"):
        read_fetch_response(memoryview(bytes(10) + huge + bytes(50)), 12)


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        produce_body(14, ProduceRequest(None, 1, 1, []))
    with pytest.raises(UnsupportedVersion):
        read_fetch_response(memoryview(b""), 3)
