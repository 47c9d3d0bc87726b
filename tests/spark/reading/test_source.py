"""`spark.read.format("penstock")`, by real Spark: found by itself, its columns, its errors.

What ranges, codecs and losses do is in test_batch, without Spark around it.
"""

import datetime
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.topics import Topics, corrupt, numbers, send

from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = 1_794_000_000_000


def load(
    spark: "SparkSession", topics: Topics, topic: str, schema: str | None = None, **options: Any
) -> "DataFrame":
    reader = spark.read.format("penstock").options(**topics.options(topic, **options))
    return (reader.schema(schema) if schema else reader).load()


def test_every_column_of_several_partitions(spark: "SparkSession", topics: Topics, topic: str) -> None:
    """Nothing was registered: Spark finds the format by the package's name."""
    topics.broker.create_topic(topic, partitions=2)
    topics.produce(topic, [b"hello"], 1, key=b"k", timestamp=T, headers=[("trace", b"1"), ("none", None)])
    topics.produce(topic, [None], 1, timestamp=T + 1)
    topics.produce(topic, [b""], 0, key=b"", timestamp=T + 2)
    df = load(spark, topics, topic, includeHeaders=True)
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = df.selectExpr("*", "unix_millis(timestamp) AS ms").drop("timestamp").orderBy("partition", "offset")
    assert [tuple(row) for row in rows.collect()] == [
        (b"", b"", topic, 0, 0, 0, None, T + 2),
        (b"k", b"hello", topic, 1, 0, 0, [("trace", b"1"), ("none", None)], T),
        (None, None, topic, 1, 1, 0, None, T + 1),
    ]


def test_without_headers_unless_they_are_asked_for(spark: "SparkSession", topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    assert "headers" not in load(spark, topics, topic).columns


def test_a_users_schema_is_what_comes(spark: "SparkSession", topics: Topics, topic: str) -> None:
    """Counts, filters and unions of one DataFrame agree: nothing is pushed into the reader."""
    topics.broker.create_topic(topic, partitions=2)
    for index in range(2):
        topics.produce(topic, numbers(3 + index), index)
    df = load(spark, topics, topic, "partition int, value binary")
    assert df.where("partition = 1").count() == 4
    assert df.count() == 7
    both = df.where("partition = 0").union(df.where("partition = 1"))
    assert sorted(map(tuple, both.collect())) == sorted(
        (index, value) for index in range(2) for value in map(bytearray, numbers(3 + index))
    )


def test_an_empty_topic_and_an_empty_range(spark: "SparkSession", topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    assert load(spark, topics, topic).count() == 0
    topics.produce(topic, numbers(3))
    end = json.dumps({topic: {"0": 0}})
    assert load(spark, topics, topic, endingOffsets=end).count() == 0


def test_split_partitions_large_values_and_codecs_at_once(
    spark: "SparkSession", topics: Topics, topic: str
) -> None:
    topics.broker.create_topic(topic, partitions=2, max_message_bytes=2_000_000)
    values = [each * 10 for each in numbers(2000, 1000)]
    for index, codec in enumerate(("zstd", "lz4")):
        send(topics.producer(compression_type=codec, batch_num_messages=64), topic, values, index)
    large = b"x" * 1_000_000
    send(topics.producer(message_max_bytes=2_000_000), topic, [large] * 4)
    df = load(spark, topics, topic, minPartitions=7)
    assert df.rdd.getNumPartitions() == 7
    got = df.selectExpr("count(*)", "count(DISTINCT partition, offset)", "sum(length(value))").collect()
    assert [tuple(row) for row in got] == [(4004, 4004, 2 * 2000 * 40 + 4 * len(large))]


def test_a_join_of_two_reads_with_transactions(spark: "SparkSession", topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.transaction(topic, [b"a"], transactional_id=topic).abort_transaction(30)
    topics.transaction(topic, [b"b"], transactional_id=topic).commit_transaction(30)
    everything = load(spark, topics, topic, "offset long, value binary")
    committed = load(spark, topics, topic, "offset long, value binary", isolation__level="read_committed")
    rows = everything.join(committed.withColumnRenamed("value", "kept"), "offset", "left").orderBy("offset")
    assert [(bytes(row["value"]), row["kept"] and bytes(row["kept"])) for row in rows.collect()] == [
        (b"a", None),
        (b"b", b"b"),
    ]


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        (
            {"startingOffset": "latest"},
            None,
            "there is no option startingoffset, did you mean startingOffsets",
        ),
        ({"subscribePattern": "a.*"}, None, "expected only one of subscribe, subscribePattern, assign"),
        (
            {"startingOffsets": "latest"},
            None,
            "option startingOffsets is latest, expected earliest or offsets",
        ),
        ({}, "value string", "the schema has column value as string, expected binary"),
        ({}, "body binary", "the schema has a column 'body', expected some of key, value, topic"),
        ({"kafka__security__protocol": "TLS"}, None, "kafka.security.protocol is 'TLS', expected one of"),
    ],
)
def test_mistakes_are_one_clear_sentence(
    spark: "SparkSession",
    topics: Topics,
    topic: str,
    options: dict[str, str],
    schema: str | None,
    sentence: str,
) -> None:
    topics.broker.create_topic(topic)
    with pytest.raises(Exception, match=re.escape(sentence)):
        load(spark, topics, topic, schema, **options).count()


def test_in_sql_a_topic_is_a_temporary_view_and_not_a_table(
    spark: "SparkSession", topics: Topics, topic: str
) -> None:
    """Of a catalog's table Spark hands a Python source no options, so that is said, and what to do instead."""
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(3))
    options = f"('kafka.bootstrap.servers' '{topics.broker.bootstrap}', subscribe '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW plain USING penstock OPTIONS {options}")
    assert spark.sql("SELECT count(*), max(offset) FROM plain").first() == (3, 2)
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept USING penstock OPTIONS {options}")
    spark.sql(f"CREATE TABLE kept (value binary) USING penstock OPTIONS {options}")
    try:
        for query in ("SELECT * FROM kept", "INSERT INTO kept SELECT cast('a' AS binary)"):
            with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
                spark.sql(query).collect()
    finally:
        spark.sql("DROP TABLE kept")
        spark.sql("DROP VIEW plain")


def test_several_directories_at_once_are_refused_in_a_sentence(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match=r"load\(\) is given several paths, expected one directory"):
        spark.read.format("penstock").load(["/one", "/two"])


def test_a_loss_reaches_the_user_whole(spark: "SparkSession", topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(10))
    df = load(spark, topics, topic)
    assert df.count() == 10
    topics.cut(topic, 4)
    with pytest.raises(
        Exception, match=r"cannot be read completely: offsets 0 to 3 no longer exist"
    ) as caught:
        df.collect()  # planned when it was loaded
    assert f"{topic}-0 [0, 10)" in str(caught.value)
    assert load(spark, topics, topic).count() == 6


def test_a_corrupt_batch_reaches_the_user_as_a_sentence(spark: "SparkSession") -> None:
    with Broker() as broker, Topics(broker) as topics:
        broker.create_topic("orders")
        topics.produce("orders", numbers(10))
        topics.produce("orders", numbers(10, 10))
        corrupt(broker, "orders", b"15")
        with pytest.raises(
            Exception, match=r"partition 0 of topic orders has corrupt records at offset 10: "
        ):
            load(spark, topics, "orders").count()


def test_times_are_as_spark_shows_them(spark: "SparkSession", topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    for each in (0, 60_000, 120_000):
        topics.produce(topic, [b"x"], timestamp=T + each)
    df = load(spark, topics, topic, startingTimestamp=T + 1)
    expected = datetime.datetime.fromtimestamp((T + 60_000) / 1000, datetime.UTC)
    assert df.where(f"timestamp = TIMESTAMP '{expected:%Y-%m-%d %H:%M:%S} UTC'").count() == 1
    assert df.count() == 2
