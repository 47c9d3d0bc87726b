"""confluent-kafka's serializers and deserializers, for all three formats, with references and evolution."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.records.schema_framing import parse_frame, parse_message_indexes


@pytest.fixture
def context() -> SerializationContext:
    return SerializationContext(f"t-{uuid4()}", MessageField.VALUE)


def subject_of(context: SerializationContext) -> str:
    return f"{context.topic}-value"


def test_avro_records_are_read_by_later_and_earlier_readers(
    client: SchemaRegistryClient, context: SerializationContext
) -> None:
    first = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    second = {**first, "fields": [*first["fields"], {"name": "note", "type": "string", "default": "-"}]}  # type: ignore[misc]
    old = AvroSerializer(client, json.dumps(first))({"id": 1}, context)
    new = AvroSerializer(client, json.dumps(second))({"id": 2, "note": "x"}, context)
    assert old is not None
    assert new is not None
    assert client.get_versions(subject_of(context)) == [1, 2]
    assert parse_frame(old).schema_id == client.get_version(subject_of(context), 1).schema_id
    reader = AvroDeserializer(client, json.dumps(second))
    assert reader(old, context) == {"id": 1, "note": "-"}
    assert AvroDeserializer(client, json.dumps(first))(new, context) == {"id": 2}
    assert AvroDeserializer(client)(new, context) == {"id": 2, "note": "x"}


def test_avro_with_references(client: SchemaRegistryClient, context: SerializationContext) -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "zip", "type": "string"}]}
    subject = f"address-{uuid4()}"
    client.register_schema(subject, Schema(json.dumps(address), "AVRO"))
    person = {
        "type": "record",
        "name": "shop.Person",
        "fields": [{"name": "homes", "type": {"type": "array", "items": "shop.Address"}}],
    }
    schema = Schema(json.dumps(person), "AVRO", [SchemaReference("shop.Address", subject, 1)])
    value = {"homes": [{"zip": "1010"}, {"zip": "1020"}]}
    data = AvroSerializer(client, schema)(value, context)
    assert AvroDeserializer(client)(data, context) == value


def test_json_records_with_references(client: SchemaRegistryClient, context: SerializationContext) -> None:
    subject = f"money-{uuid4()}"
    money = {"$id": "money.json", "type": "object", "properties": {"cents": {"type": "integer"}}}
    client.register_schema(subject, Schema(json.dumps(money), "JSON"))
    order = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"total": {"$ref": "money.json"}},
        "additionalProperties": False,
    }
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("money.json", subject, 1)])
    data = JSONSerializer(schema, client)({"total": {"cents": 5}}, context)
    assert JSONDeserializer(None, schema_registry_client=client)(data, context) == {"total": {"cents": 5}}
    wider = {**order, "properties": {**order["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    JSONSerializer(Schema(json.dumps(wider), "JSON", schema.references), client)({"note": "x"}, context)
    assert client.get_versions(subject_of(context)) == [1, 2]
    with pytest.raises(Exception, match="TYPE_CHANGED"):
        client.register_schema(subject_of(context), Schema('{"type": "string"}', "JSON"))


# -- Protobuf ------------------------------------------------------------------------------------------


def message_types(
    package: str, *fields: tuple[str, int], extra: dict[str, str] | None = None
) -> Iterator[type[Any]]:
    """Classes of Order and its nested Line, with Line in a file of its own, as a compiler makes them."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    line = descriptor_pb2.FileDescriptorProto(name=f"{package}/line.proto", package=package, syntax="proto3")
    made = line.message_type.add(name="Line")
    made.field.add(name="sku", number=1, type=9, label=1)
    pool.Add(line)
    order = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/order.proto",
        package=package,
        syntax="proto3",
        dependency=[line.name, "google/protobuf/timestamp.proto"],
    )
    order.message_type.add(name="Unused").field.add(name="x", number=1, type=5, label=1)
    made = order.message_type.add(name="Order")
    made.field.add(name="id", number=1, type=3, label=1)
    made.field.add(name="lines", number=2, type=11, type_name=f".{package}.Line", label=3)
    made.field.add(name="at", number=3, type=11, type_name=".google.protobuf.Timestamp", label=1)
    for name, number in fields:
        made.field.add(name=name, number=number, type=9, label=1)
    nested = made.nested_type.add(name="Note")
    nested.field.add(name="text", number=1, type=9, label=1)
    pool.Add(order)
    for name in ("Order", "Line", "Order.Note"):
        yield message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


def test_protobuf_records_with_imports_and_evolution(
    client: SchemaRegistryClient, context: SerializationContext, rest: httpx.Client
) -> None:
    package = f"shop{uuid4().hex[:8]}"
    order_type, _, note_type = message_types(package)
    serialize = ProtobufSerializer(order_type, client, {"use.deprecated.format": False})
    order = order_type(id=7)
    order.lines.add(sku="a")
    order.at.seconds = 12
    data = serialize(order, context)
    assert data is not None
    assert parse_message_indexes(data)[0] == (1,)
    read = ProtobufDeserializer(order_type, {"use.deprecated.format": False}, client)(data, context)
    assert read == order

    # Not with the client, which would use the text for what it wants serialized.
    stored = rest.get(f"/subjects/{subject_of(context)}/versions/latest").json()
    assert [each["name"] for each in stored["references"]] == [f"{package}/line.proto"]
    text = stored["schema"]
    assert f"repeated {package}.Line lines = 2;" in text
    assert text.startswith('syntax = "proto3";')

    wider_type, *_ = message_types(package, ("note", 4))
    wider = ProtobufSerializer(wider_type, client, {"use.deprecated.format": False})
    later = wider(wider_type(id=8, note="n"), context)
    assert client.get_versions(subject_of(context)) == [1, 2]
    old_reader = ProtobufDeserializer(order_type, {"use.deprecated.format": False}, client)
    assert old_reader(later, context).id == 8

    nested = SerializationContext(f"n-{uuid4()}", MessageField.VALUE)
    data = ProtobufSerializer(note_type, client, {"use.deprecated.format": False})(
        note_type(text="hi"), nested
    )
    assert data is not None
    assert parse_message_indexes(data)[0] == (1, 0)
    reader = ProtobufDeserializer(note_type, {"use.deprecated.format": False}, client)
    assert reader(data, nested).text == "hi"


def test_a_proto_file_and_its_descriptor_are_the_same_schema(
    client: SchemaRegistryClient, rest: httpx.Client
) -> None:
    subject = f"p-{uuid4()}"
    text = """// What the shop sells.
    syntax = "proto3";
    package shop;
    message Item { string sku = 1; map<string, int32> stock = 2; optional bool sold = 3; }
    """
    first = client.register_schema(subject, Schema(text, "PROTOBUF"))
    assert rest.get(f"/schemas/ids/{first}").json()["schema"] == text
    serialized = rest.get(f"/schemas/ids/{first}?format=serialized").json()["schema"]
    found = client.lookup_schema(subject, Schema(serialized, "PROTOBUF"))
    assert found.schema_id == first
    assert client.register_schema(subject, Schema(serialized, "PROTOBUF")) == first
    assert client.get_versions(subject) == [1]
    with pytest.raises(Exception, match="FIELD_SCALAR_KIND_CHANGED"):
        client.register_schema(subject, Schema(text.replace("string sku", "double sku"), "PROTOBUF"))
