"""`schema.validation`: records without a valid schema are refused, with which record and why."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.server.raw import RawClient
from tests.wire_requests import produce_body

from penstock.records import build_batch
from penstock.records.schema_framing import write_frame, write_guid_frame
from penstock.testing import Broker
from penstock.wire import Api, read_response
from penstock.wire.frames import parse_response_header, request_frame

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def send(broker: Broker) -> Callable[..., list[int]]:
    """Produces records in one batch; returns the error code of each."""

    def produce(topic: str, *records: tuple[bytes | None, bytes | None], **more: Any) -> list[int]:
        errors: list[int] = [-1] * len(records)

        def done(index: int) -> Callable[[KafkaError | None, object], None]:
            def noted(error: KafkaError | None, _: object) -> None:
                errors[index] = 0 if error is None else error.code()

            return noted

        settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "retries": 3, **more}
        producer = Producer(settings)
        for index, (key, value) in enumerate(records):
            producer.produce(topic, value, key, partition=0, on_delivery=done(index))
        producer.flush(30)
        return errors

    return produce


def new_topic(broker: Broker, validation: str = "value", mode: str = "id") -> str:
    topic = f"v-{uuid4()}"
    broker.create_topic(topic, schema_validation=validation, schema_validation_mode=mode)
    return topic


INVALID_RECORD = KafkaError.INVALID_RECORD


@pytest.mark.parametrize("idempotent", [False, True])
def test_values_must_have_an_id_of_the_subject(
    broker: Broker, client: SchemaRegistryClient, send: Callable[..., list[int]], idempotent: bool
) -> None:
    topic = new_topic(broker)
    other = client.register_schema(f"o-{uuid4()}-value", Schema('"string"', "AVRO"))
    more = {"enable.idempotence": idempotent}
    assert send(topic, (b"k", b"plain"), **more) == [INVALID_RECORD]
    assert send(topic, (b"k", write_frame(other) + b"\2a"), **more) == [INVALID_RECORD]
    mine = client.register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))
    good = write_frame(mine) + b"\2"
    assert send(topic, (b"k", good), (None, good), (b"k", None), **more) == [0, 0, 0]
    assert send(topic, (b"k" * 200, good), **more) == [0]
    assert send(topic, (None, good), **more) == [0]


def test_the_refused_record_is_named(broker: Broker, client: SchemaRegistryClient) -> None:
    topic = new_topic(broker)
    mine = client.register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))
    good = write_frame(mine) + b"\2"
    values = (good, b"\0\0\0\0\x7fx", b"")
    batch = bytes(build_batch([(None, each, 1_700_000_000_000) for each in values]))
    with RawClient(broker.port) as raw:
        raw.send(request_frame(Api.PRODUCE, 9, 1, "raw", produce_body(9, [(topic, [(0, batch)])])))
        frame = raw.receive_frame()
    assert frame is not None
    _, at = parse_response_header(memoryview(frame), Api.PRODUCE, 9)
    [answer] = read_response(Api.PRODUCE, 9, memoryview(frame)[at:]).responses
    [result] = answer.partition_responses
    assert result.error_code.value == INVALID_RECORD
    first, second = result.record_errors
    assert (first.batch_index, second.batch_index) == (1, 2)
    assert first.batch_index_error_message == (
        f"its value has schema id 127, which is no schema of subject {topic}-value"
    )
    assert "it is empty" in second.batch_index_error_message
    assert "2 of 3 records are refused" in result.error_message


def test_keys_can_be_checked_too(
    broker: Broker, client: SchemaRegistryClient, send: Callable[..., list[int]]
) -> None:
    topic = new_topic(broker, "both")
    key = write_frame(client.register_schema(f"{topic}-key", Schema('"long"', "AVRO"))) + b"\2"
    value = write_frame(client.register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))) + b"\2"
    assert send(topic, (key, value)) == [0]
    assert send(topic, (b"plain", value)) == [INVALID_RECORD]
    assert send(topic, (value, value)) == [INVALID_RECORD]
    only_keys = new_topic(broker, "key")
    client.register_schema(f"{only_keys}-key", Schema('"long"', "AVRO"))
    assert send(only_keys, (key, b"anything")) == [0]
    assert send(only_keys, (b"x", b"anything")) == [INVALID_RECORD]


def test_ids_in_headers_and_guids_are_known(broker: Broker, client: SchemaRegistryClient) -> None:
    topic = new_topic(broker)
    client.register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))
    found = client.lookup_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))
    assert found.schema_id is not None
    assert found.guid is not None
    by_id, by_guid = write_frame(found.schema_id), write_guid_frame(found.guid)
    results: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value, headers in (
        (b"\2", [("__value_schema_id", by_id)]),
        (b"\2", [("__value_schema_id", by_guid)]),
        (by_guid + b"\2", []),
    ):
        producer.produce(topic, value, headers=headers, on_delivery=lambda error, _: results.append(error))
        producer.flush(30)
    assert results == [None, None, None]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_full_validation_decodes(
    broker: Broker, client: SchemaRegistryClient, send: Callable[..., list[int]], compression: str
) -> None:
    more = {"compression.type": compression}
    topic = new_topic(broker, "value", "full")
    context = SerializationContext(topic, MessageField.VALUE)
    data = AvroSerializer(client, SCHEMA)({"id": 5}, context)
    assert send(topic, (None, data), **more) == [0]
    assert send(topic, (None, data), (None, data[:5] if data else b""), **more) == [INVALID_RECORD] * 2
    assert send(topic, (None, (data or b"") + b"x"), **more) == [INVALID_RECORD]

    topic = new_topic(broker, "value", "full")
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    frame = write_frame(client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "JSON")))
    assert send(topic, (None, frame + b'{"id": 1}'), **more) == [0]
    assert send(topic, (None, frame + b'{"id": "1"}'), **more) == [INVALID_RECORD]
    assert send(topic, (None, frame + b"{"), **more) == [INVALID_RECORD]

    topic = new_topic(broker, "value", "full")
    proto = 'syntax = "proto3"; package p; message A { int64 id = 1; message B { string s = 1; } }'
    frame = write_frame(client.register_schema(f"{topic}-value", Schema(proto, "PROTOBUF")))
    assert send(topic, (None, frame + b"\0" + b"\x08\x05"), (None, frame + b"\4\0\0\x0a\1x"), **more) == [
        0,
        0,
    ]
    assert send(topic, (None, frame + b"\0" + b"\x0a\x05"), **more) == [INVALID_RECORD]
    assert send(topic, (None, frame + b"\2\6"), **more) == [INVALID_RECORD]


def test_http_produce_is_held_to_it_too(broker: Broker, client: SchemaRegistryClient) -> None:
    topic = new_topic(broker)
    refused = httpx.post(f"{broker.http_url}/produce", json={"topic": topic, "value": "eA=="})
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "invalid_record"
    assert "no schema id" in refused.json()["error"]["message"]


def test_validation_can_be_turned_off_again(
    broker: Broker, rest: httpx.Client, send: Callable[..., list[int]]
) -> None:
    topic = new_topic(broker)
    assert send(topic, (None, b"x")) == [INVALID_RECORD]
    url = f"{broker.http_url}/topics/{topic}/configs"
    httpx.patch(url, json={"configs": {"schema.validation": None}}).raise_for_status()
    assert send(topic, (None, b"x")) == [0]
