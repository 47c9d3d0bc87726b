"""What the sink is told, and what of it makes no sense: one sentence each, before anything runs."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.client.settings import Address
from penstock.records import Codec
from penstock.spark.errors import BadOption, BadRows
from penstock.spark.writing.rows import check_columns
from penstock.spark.writing.sink import StreamWriter, stream_writer, writer
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = StructField("value", BinaryType())
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def test_options_have_the_names_of_sparks_kafka_sink() -> None:
    read = read_sink_options(
        {
            "Kafka.Bootstrap.Servers": "a:1,b:2",
            "TOPIC": "t",
            "kafka.compression.type": "ZSTD",
            "kafka.transaction.timeout.ms": "60000",
            "kafka.linger.ms": "5",
            "checkpointLocation": "/somewhere",
            "queryName": "q",
            "includeHeaders": "true",
            "failOnDataLoss": "false",
        }
    )
    assert (read.servers, read.topic, read.codec) == ((Address("a", 1), Address("b", 2)), "t", Codec.ZSTD)
    assert (read.transaction_timeout_ms, read.fails_on_data_loss) == (60_000, False)
    assert read_sink_options(SERVERS) == SinkOptions(
        (Address("localhost", 9092),), client=read_sink_options(SERVERS).client
    )


def test_who_asks_for_plain_connections_gets_them() -> None:
    assert read_sink_options(SERVERS | {"kafka.security.protocol": "plaintext"}) == read_sink_options(SERVERS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "t"}, "option kafka.bootstrap.servers is missing, expected HOST:PORT[,HOST:PORT]"),
        (
            {"kafka.bootstrap.servers": "a:b"},
            "option kafka.bootstrap.servers: 'a:b' is no server, expected HOST:PORT",
        ),
        (SERVERS | {"kafka.acks": "1"}, "option kafka.acks is '1', expected all or -1"),
        (
            SERVERS | {"kafka.compression.type": "brotli"},
            "option kafka.compression.type is 'brotli', expected none or gzip or snappy or lz4 or zstd",
        ),
        (SERVERS | {"topci": "t"}, "the sink has no option topci, did you mean topic"),
        (
            SERVERS | {"kafka.max.request.size": "-1"},
            "option kafka.max.request.size is '-1', expected a whole number from 1 to 2147483647",
        ),
        (
            SERVERS | {"kafka.transactional.id": "mine"},
            "option kafka.transactional.id is not supported: the sink makes its own ids from the query's",
        ),
        (
            SERVERS | {"kafka.security.protocol": "SASL"},
            "option kafka.security.protocol is 'SASL', expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (SERVERS | {"transactional": "maybe"}, "option transactional is 'maybe', expected true or false"),
        (SERVERS | {"topic": " "}, "option topic is empty, expected the name of a topic"),
    ],
)
def test_an_option_that_makes_no_sense_is_reported(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadOption) as refusal:
        read_sink_options(options)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            [StructField("key", StringType())],
            "the DataFrame has no column value, expected one of string or binary; it has key",
        ),
        (
            [StructField("value", IntegerType())],
            "the DataFrame has column value as int, expected string or binary",
        ),
        (
            [VALUE, StructField("partition", LongType())],
            "the DataFrame has column partition as bigint, expected int",
        ),
        (
            [VALUE, StructField("timestamp", TimestampNTZType())],
            "the DataFrame has column timestamp as timestamp_ntz, expected timestamp",
        ),
        (
            [VALUE, StructField("headers", ArrayType(StringType()))],
            "the DataFrame has column headers as array<string>, expected array<struct<key:string,value:binary>>",
        ),
        ([VALUE, VALUE], "the DataFrame has 2 columns value, expected one"),
    ],
)
def test_columns_that_cannot_be_written_are_reported(fields: list[StructField], sentence: str) -> None:
    with pytest.raises(BadRows) as refusal:
        check_columns(StructType(fields), "t")
    assert str(refusal.value) == sentence


def test_the_columns_of_the_source_can_be_written_as_they_are() -> None:
    fields = [
        VALUE,
        StructField("key", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
    check_columns(StructType(fields), None)


def test_rows_without_a_topic_are_reported() -> None:
    with pytest.raises(
        BadRows, match="no topic is named, expected the option topic or a column topic of string"
    ):
        check_columns(StructType([VALUE]), None)


def test_topics_are_not_overwritten_but_complete_results_are_added() -> None:
    schema, options = StructType([VALUE]), SERVERS | {"topic": "t"}
    with pytest.raises(BadOption, match="mode overwrite is not for topics, expected mode append"):
        writer(schema, options, True)
    assert isinstance(stream_writer(schema, options, True), StreamWriter)
