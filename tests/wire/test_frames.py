from io import BytesIO
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header import v1, v2
from kio.schema.response_header import v0 as response_v0
from kio.schema.response_header import v1 as response_v1
from kio.serial import entity_reader, entity_writer
from tests.wire.entities import EVERY_VERSION, corrupted

from penstock.wire import (
    KAFKA_RANGES,
    Api,
    MalformedRequest,
    MalformedResponse,
    cut_frames,
    parse_header,
    parse_response_header,
    request_frame,
    response_frame,
)
from penstock.wire.catalogue import is_flexible
from penstock.wire.errors import BadFrame
from penstock.wire.frames import response_header_version
from penstock.wire.messages import request_type, response_type

LIMIT = 1000

apis = st.sampled_from(EVERY_VERSION)
int32s = st.integers(-(2**31), 2**31 - 1)
client_ids = st.none() | st.text(max_size=40)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(max_size=30), max_size=5), st.data())
def test_frames_are_cut_wherever_the_bytes_are_split(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, payloads))
    received = data.draw(st.integers(0, len(stream)))
    start = 7
    buffer = memoryview(b"before!" + stream)
    cut = cut_frames(buffer, start, start + received, LIMIT)
    whole = [bytes(frame) for frame in cut.frames]
    assert whole == payloads[: len(whole)]
    assert cut.rest_at == start + sum(4 + len(payload) for payload in whole)
    left = start + received - cut.rest_at
    assert cut.wanted == (4 + len(payloads[len(whole)]) if left >= 4 else 0)
    again = cut_frames(buffer, cut.rest_at, len(buffer), LIMIT)
    assert [bytes(frame) for frame in again.frames] == payloads[len(whole) :]


def test_frames_share_the_memory_of_the_buffer() -> None:
    buffer = bytearray(framed(b"abc"))
    (frame,) = cut_frames(memoryview(buffer), 0, len(buffer), LIMIT).frames
    buffer[4] = ord("x")
    assert frame == b"xbc"


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_length_is_refused_before_its_frame_arrives(length: int) -> None:
    header = length.to_bytes(4, "big", signed=True)
    with pytest.raises(BadFrame, match=str(length)):
        cut_frames(memoryview(header), 0, 4, LIMIT)


def test_a_frame_of_the_limit_is_taken() -> None:
    stream = framed(bytes(LIMIT))
    assert len(cut_frames(memoryview(stream), 0, len(stream), LIMIT).frames[0]) == LIMIT


@given(apis, int32s, client_ids, st.binary(max_size=8))
def test_a_header_reads_as_kio_writes_it(
    api_version: tuple[Api, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    api, version = api_version
    header_type = request_type(api, version).__header_schema__
    out = BytesIO()
    entity_writer(header_type)(
        out,
        header_type(
            request_api_key=api,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    expected = out.getvalue()
    frame = request_frame(api, version, correlation_id, client_id, body)
    assert frame == framed(expected + body)
    header = parse_header(memoryview(frame)[4:])
    assert header == (api, version, correlation_id, client_id, len(expected))


def test_headers_go_with_versions_as_in_kafkas_schemas() -> None:
    headers = [response_v0.ResponseHeader, response_v1.ResponseHeader]
    for api, version in EVERY_VERSION:
        assert is_flexible(api, version) == request_type(api, version).__flexible__
        assert response_type(api, version).__header_schema__ is headers[response_header_version(api, version)]


def test_api_versions_answers_with_header_0_always() -> None:
    """KIP-511: a client that does not know the broker yet must be able to read the correlation id."""
    assert [response_header_version(Api.API_VERSIONS, version) for version in range(6)] == [0] * 6


def test_controlled_shutdown_0_has_no_client_id() -> None:
    frame = memoryview(request_frame(Api.CONTROLLED_SHUTDOWN, 0, 9, "not sent", b"\0\0\0\5"))[4:]
    assert len(frame) == 12
    assert parse_header(frame) == (Api.CONTROLLED_SHUTDOWN, 0, 9, None, 8)


def test_tags_in_a_flexible_header_are_skipped() -> None:
    frame = b"\0\3\0\x0c\0\0\0\1\0\2ab" + b"\1\x63\3xyz" + b"body"
    assert parse_header(memoryview(frame)) == (Api.METADATA, 12, 1, "ab", len(frame) - 4)


def test_an_unknown_api_still_tells_who_called() -> None:
    frame = b"\x7f\xff\0\0\0\0\0\1\0\2ab"
    assert parse_header(memoryview(frame)) == (32767, 0, 1, "ab", 12)


@given(apis, client_ids, st.integers(0, 2**32))
def test_a_damaged_header_is_refused_and_nothing_else(
    api_version: tuple[Api, int], client_id: str | None, seed: int
) -> None:
    frame = request_frame(*api_version, 5, client_id, b"")[4:]
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            parse_header(memoryview(frame)[:end])
    rng = Random(seed)
    for _ in range(20):
        try:
            header = parse_header(memoryview(damaged := corrupted(frame, rng)))
        except MalformedRequest:
            continue
        assert header.body_at <= len(damaged)


@given(apis, int32s, st.binary(max_size=8))
def test_a_response_reads_with_kios_header(
    api_version: tuple[Api, int], correlation_id: int, body: bytes
) -> None:
    api, version = api_version
    frame = response_frame(api, version, correlation_id, body)
    header, size = entity_reader(response_type(api, version).__header_schema__)(frame[4:], 0)
    assert header.correlation_id == correlation_id
    assert frame == framed(frame[4 : 4 + size] + body)
    assert parse_response_header(memoryview(frame)[4:], api, version) == (correlation_id, size)
    for end in range(size):
        with pytest.raises(MalformedResponse):
            parse_response_header(memoryview(frame)[4 : 4 + end], api, version)


def test_every_range_of_kafkas_has_a_schema() -> None:
    assert {request_type(api, low).__header_schema__ for api, (low, _) in KAFKA_RANGES.items()} == {
        v1.RequestHeader,
        v2.RequestHeader,
    }
