"""Rows written to topics by Spark jobs: what becomes of columns, partitions, order, failures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from tests.spark.sinks import committed, everything, values

from penstock.base.hashing import partition_of_key
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.settings import parse_servers
from penstock.spark.errors import BadOption
from penstock.spark.writing.changed_rows import changed_rows
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_MS = 1_700_000_000_000


def save(frame: "DataFrame", broker: Broker, **options: str) -> None:
    writer = frame.write.format("penstock").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def test_every_column_is_written_as_it_is(spark: "SparkSession", spark_broker: Broker, topic: str) -> None:
    spark_broker.create_topic(topic, 3)
    frame = spark.sql(
        f"""select cast(concat('k', id) as binary) key, if(id = 3, null, concat('value ', id)) value,
                   '{topic}' topic, cast(id % 3 as int) partition,
                   timestamp_millis({FIRST_MS} + id) timestamp,
                   array(struct('a' as key, cast(cast(id as string) as binary) as value),
                         struct('a' as key, cast(null as binary) as value)) headers,
                   'left out' more
            from range(0, 9, 1, 2)"""
    )
    save(frame, spark_broker)
    found = {
        (partition, record.key, record.value, record.timestamp, tuple(record.headers))
        for partition, records in committed(spark_broker, topic).items()
        for record in records
    }
    assert found == {
        (
            each % 3,
            b"k%d" % each,
            None if each == 3 else b"value %d" % each,
            FIRST_MS + each,
            (("a", b"%d" % each), ("a", None)),
        )
        for each in range(9)
    }


def test_keys_go_where_kafkas_producers_put_them_and_stay_in_order(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 5)
    frame = spark.sql(
        "select concat('key ', id % 40) key, cast(id as string) value from range(0, 30000, 1, 1)"
    )
    save(frame, spark_broker, topic=topic, kafka__compression__type="zstd")
    found = committed(spark_broker, topic)
    assert sum(map(len, found.values())) == 30_000
    for partition, records in found.items():
        last: dict[bytes | None, int] = {}
        for record in records:
            assert record.key is not None
            assert record.value is not None
            assert partition_of_key(record.key, 5) == partition
            assert last.get(record.key, -1) < int(record.value)
            last[record.key] = int(record.value)


def test_rows_without_keys_are_spread_in_large_runs(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 4)
    frame = spark.sql("select repeat('x', 1000) value from range(0, 20000, 1, 1)")
    save(frame, spark_broker, topic=topic)
    counts = {partition: len(records) for partition, records in committed(spark_broker, topic).items()}
    assert sum(counts.values()) == 20_000
    assert sum(count > 0 for count in counts.values()) >= 2


def test_a_value_of_a_megabyte_is_written_where_the_topic_takes_it(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 1, max_message_bytes=2_000_000)
    save(spark.sql("select repeat('y', 1000000) value from range(3)"), spark_broker, topic=topic)
    [records] = committed(spark_broker, topic).values()
    assert [len(record.value or b"") for record in records] == [1_000_000] * 3


@pytest.mark.long
def test_batches_are_made_small_enough_for_the_topic(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 1, max_message_bytes=5_000)
    frame = spark.sql("select concat(id, repeat('z', 300)) value from range(0, 2000, 1, 1)")
    save(frame, spark_broker, topic=topic)
    [records] = committed(spark_broker, topic).values()
    assert [int((record.value or b"").rstrip(b"z")) for record in records] == list(range(2000))


def test_a_topic_that_is_not_there_is_created_as_by_any_producer(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    save(spark.sql("select 'first' value"), spark_broker, topic=topic)
    assert values(committed(spark_broker, topic)) == [b"first"]


def test_attempts_that_fail_leave_nothing_that_committed_readers_see(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    """A task fails when some of its rows are in the log. `test_job` has other moments, one by one."""
    spark_broker.create_topic(topic, 2)
    servers = spark_broker.bootstrap

    def fail_when_written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        with Cluster(parse_servers(servers)) as cluster:
            backoff = cluster.backoff(60_000)
            wanted = {TopicPartition(topic, each): LATEST for each in range(2)}
            while not any(each.offset for each in list_offsets(cluster, wanted).values()):
                backoff.pause(RuntimeError("nothing is written"))
        raise RuntimeError("no more")

    frame = spark.sql("select repeat('a', 1000) value from range(0, 40000, 1, 1)")
    with pytest.raises(Exception, match="no more"):
        save(frame.mapInArrow(fail_when_written, "value string"), spark_broker, topic=topic)
    assert len(values(everything(spark_broker, topic))) > 0
    assert values(committed(spark_broker, topic)) == []
    save(spark.sql("select 'after' value"), spark_broker, topic=topic)
    assert values(committed(spark_broker, topic)) == [b"after"], "the job that failed is in nobody's way"


def test_without_transactions_rows_are_written_once_where_nothing_fails(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 2)
    frame = spark.sql("select cast(id as string) value from range(1000)")
    save(frame, spark_broker, topic=topic, transactional="false")
    assert sorted(values(everything(spark_broker, topic)), key=int) == [b"%d" % each for each in range(1000)]


def test_what_cannot_be_written_is_reported_before_anything_runs(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    with pytest.raises(Exception, match="column value as int, expected string or binary"):
        save(spark.sql("select 1 value"), spark_broker, topic=topic)


def test_a_partition_that_the_topic_has_not_is_reported(
    spark: "SparkSession", spark_broker: Broker, topic: str
) -> None:
    spark_broker.create_topic(topic, 2)
    with pytest.raises(Exception, match="a row has 2 in column partition, expected 0 to 1"):
        save(spark.sql("select 'a' value, 2 partition"), spark_broker, topic=topic)


def test_a_stream_is_written_once_through_stops_and_starts(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    spark_broker.create_topic(topic, 3)
    lines = tmp_path / "in"
    lines.mkdir()
    for batch in range(3):
        text = "".join(json.dumps({"n": each}) + "\n" for each in range(batch * 100, batch * 100 + 100))
        (lines / f"{batch}.json").write_text(text)
        stream = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1).json(str(lines))
        query = (
            stream.selectExpr("cast(n as string) key", "cast(n as string) value")
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", spark_broker.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        found = sorted(map(int, values(committed(spark_broker, topic))))
        assert found == list(range(batch * 100 + 100))


def test_a_job_whose_servers_do_not_answer_fails_before_it_begins(spark: "SparkSession") -> None:
    writer = spark.sql("select 'a' value").write.format("penstock").mode("append")
    writer = writer.option("kafka.bootstrap.servers", "127.0.0.1:1").option("topic", "t")
    with pytest.raises(AnalysisException, match=r"cannot reach 127\.0\.0\.1:1: connection refused"):
        writer.save()


@pytest.mark.long
def test_rows_that_change_are_written_once_through_stops_and_starts(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Output mode update: of each batch, the groups that it changed. A batch that is replayed adds nothing."""
    spark_broker.create_topic(topic, 2)
    lines, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    lines.mkdir()
    options = {"kafka.bootstrap.servers": spark_broker.bootstrap, "topic": topic}

    def run() -> None:
        numbers = spark.readStream.schema("n int").json(str(lines))
        counts = (
            numbers.groupBy("n").count().selectExpr("cast(n as string) key", "cast(count as string) value")
        )
        query = (
            counts.writeStream.outputMode("update")
            .foreachBatch(changed_rows(spark, options))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    def written() -> list[tuple[str, str]]:
        found = committed(spark_broker, topic).values()
        return sorted(
            (str(each.key, "utf8"), str(each.value, "utf8")) for records in found for each in records
        )

    (lines / "0.json").write_text('{"n": 1}\n{"n": 2}\n{"n": 2}\n')
    run()
    assert written() == [("1", "1"), ("2", "2")]
    (lines / "1.json").write_text('{"n": 2}\n{"n": 3}\n')
    run()
    after = [("1", "1"), ("2", "2"), ("2", "3"), ("3", "1")]
    assert written() == after
    for each in (checkpoint / "commits").glob("*1*"):
        each.unlink()  # as a driver leaves it that dies when its batch is written, and before Spark has noted that
    run()
    assert written() == after


def test_options_of_rows_that_change_are_checked_before_anything_runs(spark: "SparkSession") -> None:
    with pytest.raises(BadOption, match="the sink has no option topci, did you mean topic"):
        changed_rows(spark, {"kafka.bootstrap.servers": "127.0.0.1:1", "topci": "t"})
