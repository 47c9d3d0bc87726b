"""Typed columns: what Confluent's serializers write is read by Spark, as a batch, as a stream and from files."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType
from tests.spark.topics import Topics

from penstock.spark.errors import BadOption
from penstock.spark.functions import from_registry, to_registry
from penstock.spark.reading.typed_rows import CorruptValue
from penstock.spark.source import DefaultSource
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "int"}, {"name": "customer", "type": "string"},
  {"name": "tags", "type": {"type": "map", "values": "long"}},
  {"name": "lines", "type": {"type": "array", "items":
    {"type": "record", "name": "Line", "fields": [{"name": "price", "type": ["null", "double"]}]}}},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""
NEWER = ORDER.replace(
    '"fields": [', '"fields": [{"name": "note", "type": ["null", "string"], "default": null},', 1
)
PLACE = '{"type": "object", "title": "Place", "properties": {"x": {"type": "integer"}, "name": {"type": "string"}}}'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        yield running


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:
    with Topics(broker) as made:
        yield made


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry_url}) as made:
        yield made


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"c{number}",
        "tags": {"n": number},
        "lines": [{"price": number / 2}, {"price": None}],
        "at": 1_700_000_000_000 + number,
    }


def avro(
    registry: SchemaRegistryClient, topic: str, schema: str, values: list[dict[str, Any]]
) -> list[bytes]:
    encode = AvroSerializer(registry, schema)
    return [encode(each, SerializationContext(topic, MessageField.VALUE)) for each in values]


def registry_options(broker: Broker) -> dict[str, str]:
    return {"value.format": "registry", "schema.registry.url": broker.registry_url}


def source_of(options: dict[str, str]) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict(options))


def rows_of(options: dict[str, str]) -> list[dict[str, Any]]:
    """Planned and read in this process, without Spark."""
    source = source_of(options)
    reader = source.reader(source.schema())
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def read(topics: Topics, topic: str, **more: str) -> list[dict[str, Any]]:
    return rows_of(topics.options(topic) | registry_options(topics.broker) | more)


def test_serializers_write_and_spark_reads_columns(
    spark: "SparkSession", topics: Topics, registry: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Batch, stream and files give the same rows. A restart of a stream keeps its schema or says why it cannot."""
    topics.broker.create_topic("typed", 2)
    topics.produce("typed", avro(registry, "typed", ORDER, [order(each) for each in range(40)]))
    topics.produce("typed", [b"not framed"], partition=1)
    options = topics.options("typed", startingOffsets="earliest") | registry_options(topics.broker)
    options["on.corrupt"] = "null"

    frame = spark.read.format("penstock").options(**options).load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:int,customer:string,tags:map<string,bigint>,lines:array<struct<price:double>>,at:timestamp>"
    )
    rows = frame.where("value is not null").select("value.*").orderBy("id").collect()
    assert [row["id"] for row in rows] == list(range(40))
    assert rows[3]["tags"] == {"n": 3}
    assert [line["price"] for line in rows[3]["lines"]] == [1.5, None]
    assert rows[3]["at"].timestamp() == 1_700_000_000.003
    [corrupt] = frame.where("_corrupt is not null").select("_corrupt", "partition", "value").collect()
    assert corrupt["_corrupt"].startswith("value: it begins with byte 110, expected 0 and a schema id")
    assert (corrupt["partition"], corrupt["value"]) == (1, None)

    # A later version arrives: this DataFrame stays with the schema that it began with.
    topics.produce(
        "typed", avro(registry, "typed", NEWER, [order(each) | {"note": "n"} for each in (40, 41)])
    )
    again = spark.read.format("penstock").options(**options | {"value.schema.version": "1"}).load()
    assert again.where("value is not null").count() == 42
    assert "note" not in again.select("value.*").columns

    def stream(version: str | None) -> list[int]:
        chosen = options if version is None else options | {"value.schema.version": version}
        source = spark.readStream.format("penstock").options(**chosen).load().where("value is not null")
        query = (
            source.selectExpr("value.id")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "table"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect())

    assert stream("1") == list(range(42))
    with pytest.raises(Exception, match="was started with version 1 of subject typed-value"):
        stream(None)
    topics.produce("typed", avro(registry, "typed", NEWER, [order(42) | {"note": "n"}]))
    assert stream("1") == list(range(43))


def test_files_have_the_same_columns(topics: Topics, registry: SchemaRegistryClient) -> None:
    topics.produce("filed", avro(registry, "filed", ORDER, [order(each) for each in range(5)]))
    by_broker = read(topics, "filed")
    files = {"path": str(topics.broker.data), "subscribe": "filed"} | registry_options(topics.broker)
    by_files = rows_of(files)
    assert by_files[4]["value"]["customer"] == "c4"
    assert [row["value"] for row in by_files] == [row["value"] for row in by_broker]


def test_a_value_that_does_not_decode_fails_the_query(topics: Topics, registry: SchemaRegistryClient) -> None:
    topics.produce("failing", [*avro(registry, "failing", ORDER, [order(1)]), b"\0\0\0\0\x63zz"])
    expected = (
        "partition 0 of topic failing has a record at offset 1 that does not decode: value: schema id 99"
    )
    with pytest.raises(CorruptValue, match=expected):
        read(topics, "failing")


def test_json_keys_and_avro_values(topics: Topics, registry: SchemaRegistryClient) -> None:
    encode = JSONSerializer(PLACE, registry)
    key = encode({"x": 3, "name": "here"}, SerializationContext("both", MessageField.KEY))
    topics.produce("both", avro(registry, "both", ORDER, [order(1)]), key=key)
    [row] = read(topics, "both", **{"key.format": "json"})
    assert row["key"] == {"x": 3, "name": "here"}
    assert row["value"]["id"] == 1


def test_protobuf_of_the_serializer_is_columns(topics: Topics, registry: SchemaRegistryClient) -> None:
    """With messages in a repeated field, and a type of a well-known file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="typed_shop.proto",
        package="typed_shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    order_type = file.message_type.add(name="Order")
    order_type.field.add(name="id", number=1, type=3, label=1)
    order_type.field.add(name="lines", number=2, type=11, type_name=".typed_shop.Line", label=3)
    order_type.field.add(name="at", number=3, type=11, type_name=".google.protobuf.Timestamp", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb))
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("typed_shop.Order"))
    message = made(id=7, lines=[{"sku": "a"}, {"sku": "b"}])
    message.at.seconds = 5
    encode = ProtobufSerializer(made, registry, {"use.deprecated.format": False})
    topics.produce("proto", [encode(message, SerializationContext("proto", MessageField.VALUE))])
    [row] = read(topics, "proto", **{"value.message": "Order"})
    assert row["value"] == {
        "id": 7,
        "lines": [{"sku": "a"}, {"sku": "b"}],
        "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
    }


def test_schemas_can_be_given_inline(topics: Topics) -> None:
    """Then values have no schema id."""
    topics.produce("inline", [b'{"x": 1, "name": "a"}'])
    for schema in (
        PLACE,
        '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}},'
        '{"name":"name","type":"string","nullable":true,"metadata":{}}]}',
    ):
        [row] = rows_of(topics.options("inline") | {"value.format": "json", "value.schema": schema})
        assert row["value"] == {"x": 1, "name": "a"}


def test_a_dataframe_keeps_the_schema_that_it_was_made_with(
    topics: Topics, registry: SchemaRegistryClient
) -> None:
    """Spark pickles the source between its columns and its reader; a new version in between changes nothing."""
    topics.produce("kept", avro(registry, "kept", ORDER, [order(1)]))
    source = source_of(topics.options("kept") | registry_options(topics.broker))
    schema = source.schema()
    topics.produce("kept", avro(registry, "kept", NEWER, [order(2) | {"note": "n"}]))
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["value"]["id"] for row in rows] == [1, 2]
    assert "note" not in rows[1]["value"]
    latest = read(topics, "kept")
    assert [row["value"]["note"] for row in latest] == [None, "n"]


def test_only_the_columns_of_a_schema_are_decoded(topics: Topics, registry: SchemaRegistryClient) -> None:
    topics.produce("chosen", avro(registry, "chosen", ORDER, [order(1)]))
    source = source_of(topics.options("chosen") | registry_options(topics.broker))
    kind = source.schema()["value"]
    reader = source.reader(StructType([kind]))
    [batch] = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert batch.schema.names == ["value"]
    with pytest.raises(BadOption, match="the schema has column value as binary, expected struct<id:int"):
        source.reader(StructType.fromJson({"fields": [kind.jsonValue() | {"type": "binary"}]}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "avro"}, "value.format is avro, which needs value.schema or schema.registry.url"),
        ({"value.format": "registry"}, "value.format is registry, which needs schema.registry.url"),
        ({"value.format": "xml"}, "value.format is 'xml', expected avro or json or protobuf or registry"),
        ({"value.schema": "{}"}, "value.schema is given without value.format"),
        ({"on.corrupt": "null"}, "on.corrupt is given without key.format or value.format"),
        (
            {"value.format": "avro", "value.schema": "{"},
            "values cannot be columns: the Avro schema cannot be parsed",
        ),
        ({"value.format": "json", "value.schema": "id INT"}, "value.schema is not JSON"),
        (
            {"value.format": "registry", "schema.registry.url": "localhost"},
            "schema.registry.url is 'localhost', expected http://HOST:PORT",
        ),
        (
            {
                "value.format": "avro",
                "schema.registry.url": "http://a",
                "value.schema": "{}",
                "value.subject": "s",
            },
            "options value.schema and value.subject or value.schema.version are given",
        ),
        (
            {"value.format": "registry", "schema.registry.url": "http://a", "subscribe": "a,b"},
            "several topics are read, expected the option value.subject",
        ),
        (
            {
                "value.format": "registry",
                "schema.registry.url": "http://a",
                "schema.registry.basic.auth.user.info": "x",
            },
            "schema.registry.basic.auth.user.info has no colon",
        ),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        source_of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"} | options).schema()


def test_a_subject_that_does_not_exist(topics: Topics) -> None:
    with pytest.raises(BadOption, match=r"subject missing-value cannot be read: .* answered 404"):
        read(topics, "missing")


def test_the_sink_registers_schemas_and_serializers_read_what_it_wrote(
    spark: "SparkSession", topics: Topics, registry: SchemaRegistryClient
) -> None:
    """And the functions read and write the same bytes."""
    topics.broker.create_topic("made", 1)
    frame = spark.sql(
        "select named_struct('id', id, 'name', concat('n', id), 'tags', map('a', id)) value, "
        "named_struct('id', id) key from range(3)"
    )
    frame.coalesce(1).write.format("penstock").mode("append").options(
        **{
            "kafka.bootstrap.servers": topics.broker.bootstrap,
            "topic": "made",
            "value.format": "avro",
            "key.format": "json",
            "schema.registry.url": topics.broker.registry_url,
        }
    ).save()
    assert registry.get_latest_version("made-value").schema.schema_type == "AVRO"
    raw = topics.read("made", isolation__level="read_committed")
    decode, decode_key = AvroDeserializer(registry), JSONDeserializer(None, schema_registry_client=registry)
    values = [decode(row["value"], SerializationContext("made", MessageField.VALUE)) for row in raw]
    assert values == [{"id": each, "name": f"n{each}", "tags": {"a": each}} for each in range(3)]
    keys = [decode_key(row["key"], SerializationContext("made", MessageField.KEY)) for row in raw]
    assert keys == [{"id": each} for each in range(3)]
    typed = read(topics, "made", **{"isolation.level": "read_committed", "key.format": "registry"})
    assert [(row["key"], row["value"]["name"]) for row in typed] == [
        ({"id": each}, f"n{each}") for each in range(3)
    ]

    where = {"schema.registry.url": topics.broker.registry_url}
    there = frame.select(to_registry("value", "made-value", where).alias("bytes"))
    back = there.select(from_registry("bytes", "made-value", where).alias("v")).select("v.*").orderBy("id")
    assert [row.asDict() for row in back.collect()] == values
    damaged = spark.createDataFrame([(b"\0\0\0\0\x01",), (None,)], "bytes binary")
    found = damaged.select(from_registry("bytes", "made-value", where, on_corrupt="null").alias("v"))
    assert [row["v"] for row in found.collect()] == [None, None]


def test_the_sink_refuses_a_schema_that_breaks_readers(
    topics: Topics, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("strict-value", Schema('{"type":"record","name":"R","fields":[]}', "AVRO"))
    options = topics.options() | {
        "topic": "strict",
        "value.format": "avro",
        "schema.registry.url": topics.broker.registry_url,
        "value.schema": '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}',
    }
    kind = StructType([StructField("value", StructType([StructField("id", IntegerType())]))])
    with pytest.raises(
        BadOption, match=r"schema of subject strict-value cannot be registered: .* answered 409"
    ):
        source_of(options).writer(kind, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "protobuf"}, "value.format is 'protobuf', expected avro or json"),
        ({"value.format": "avro"}, "value.format needs schema.registry.url"),
        ({"value.subject": "s"}, "value.subject is given without value.format"),
        (
            {"schema.registry.url": "http://a"},
            "schema.registry.url is given without key.format or value.format",
        ),
    ],
)
def test_options_of_the_sink_are_checked(options: dict[str, str], message: str) -> None:
    kind = StructType([StructField("value", BinaryType())])
    with pytest.raises(BadOption, match=message):
        source_of({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | options).writer(kind, False)
