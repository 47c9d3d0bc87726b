"""Frames that real clients sent; golden.json tells which."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.wire.entities import assault

from penstock.records import RecordBatch
from penstock.wire import Api, parse_fetch, parse_header, parse_produce, read_request, write_request

FRAMES = json.loads((Path(__file__).parent / "golden.json").read_text())["frames"]
TOPIC_ID = bytes(range(16))


def frames(api: Api) -> list[Any]:
    return [
        pytest.param(bytes.fromhex(each["frame"]), each["version"], id=f"{each['client']} {each['version']}")
        for each in FRAMES
        if each["api"] == api.label
    ]


@pytest.mark.parametrize(
    ("frame", "version"),
    [each for api in (Api.API_VERSIONS, Api.METADATA, Api.INIT_PRODUCER_ID) for each in frames(api)],
)
def test_requests_read_through_kio_are_written_back_the_same(frame: bytes, version: int) -> None:
    header = parse_header(memoryview(frame))
    assert (header.api_version, header.client_id) == (version, "golden")
    api = Api(header.api_key)
    body = memoryview(frame)[header.body_at :]
    assert write_request(api, version, read_request(api, version, body)) == body


@pytest.mark.parametrize(("frame", "version"), frames(Api.PRODUCE))
def test_produce(frame: bytes, version: int) -> None:
    header = parse_header(memoryview(frame))
    assert header[:2] == (Api.PRODUCE, version)
    request = parse_produce(memoryview(frame), header.body_at, version)
    assert request.transactional_id is None
    assert request.acks in {1, -1}
    ((topic, ((partition, records),)),) = request.topics
    assert (topic, partition) == ("golden", 0)
    assert records is not None
    (record,) = RecordBatch.parse(records).records()
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_000)
    assault(
        lambda view: parse_produce(view, header.body_at, version),
        frame[header.body_at :].rjust(len(frame)),
        Random(1),
    )


@pytest.mark.parametrize(("frame", "version"), frames(Api.FETCH))
def test_fetch(frame: bytes, version: int) -> None:
    header = parse_header(memoryview(frame))
    assert header[:2] == (Api.FETCH, version)
    request = parse_fetch(memoryview(frame), header.body_at, version)
    assert (request.replica_id, request.rack_id, request.forgotten) == (-1, "", [])
    assert request.min_bytes == 1
    for topic, (partition,) in request.topics:
        assert topic == (TOPIC_ID if version >= 13 else "golden")
        assert (partition.partition, partition.fetch_offset) == (0, 0)


def test_a_session_that_goes_on_names_only_what_changed() -> None:
    """KIP-227: the second Fetch of a session, of a client that uses them, is empty when nothing moved."""
    parsed = [
        (each["client"], parse_fetch(frame, parse_header(frame).body_at, each["version"]))
        for each in FRAMES
        if each["api"] == "Fetch"
        for frame in [memoryview(bytes.fromhex(each["frame"]))]
    ]
    first, second = (request for client, request in parsed if client.startswith("kafka-python"))
    assert (first.session_id, first.session_epoch, len(first.topics)) == (0, 0, 1)
    assert (second.session_id, second.session_epoch, second.topics) == (77, 1, [])
