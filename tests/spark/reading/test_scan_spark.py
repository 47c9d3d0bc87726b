"""`option("path", DIR)` through real Spark: the same rows as through a broker, and errors that reach the user."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 2000


@pytest.fixture(scope="module")
def written(spark_broker: Broker) -> str:
    """A topic with keys, values, headers and nulls, on a node that goes on running."""
    topic = "scanned"
    spark_broker.create_topic(topic, partitions=3, segment_bytes=20_000)
    producer = Producer(
        {"bootstrap.servers": spark_broker.bootstrap, "batch.num.messages": 50, "compression.type": "zstd"}
    )
    for number in range(COUNT):
        producer.produce(
            topic,
            key=None if number % 5 == 0 else b"k%d" % number,
            value=None if number % 7 == 0 else b"v%d" % number,
            partition=number % 3,
            headers=[("n", b"%d" % number), ("none", None)] if number % 11 == 0 else None,
            timestamp=1_794_000_000_000 + number,
        )
        producer.poll(0)
    producer.flush()
    return topic


def read(spark: "SparkSession", **options: Any) -> "DataFrame":
    return spark.read.format("penstock").options(**options).load()


def test_a_live_node_s_files_have_the_rows_that_its_broker_gives(
    spark: "SparkSession", spark_broker: Broker, written: str
) -> None:
    assert spark_broker.data is not None
    through_broker = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", spark_broker.bootstrap)
        .options(subscribe=written, includeHeaders="true")
        .load()
    )
    from_files = read(
        spark, path=spark_broker.data, subscribe=written, includeHeaders="true", minPartitions="4"
    )
    assert from_files.schema == through_broker.schema
    wanted = through_broker.orderBy("partition", "offset").collect()
    assert len(wanted) == COUNT
    assert from_files.orderBy("partition", "offset").collect() == wanted
    assert from_files.rdd.getNumPartitions() >= 4


def test_a_schema_narrows_what_is_read_and_load_takes_the_path(
    spark: "SparkSession", spark_broker: Broker, written: str
) -> None:
    path = Path(str(spark_broker.data)) / "logs" / f"{written}-1"
    frame = spark.read.format("penstock").schema("offset long, value binary").load(str(path))
    assert frame.columns == ["offset", "value"]
    assert frame.selectExpr("count(value)", "min(offset)").first()[0] == sum(
        1 for each in range(1, COUNT, 3) if each % 7
    )


def test_errors_reach_the_user_as_they_were_said(
    spark: "SparkSession", spark_broker: Broker, written: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="option subscribe names topic nothing, which "):
        read(spark, path=spark_broker.data, subscribe="nothing").collect()
    with pytest.raises(Exception, match=r"option path is for spark\.read"):
        (
            spark.readStream.format("penstock")
            .option("path", spark_broker.data)
            .load()
            .writeStream.format("noop")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
            .awaitTermination()
        )
    copy = tmp_path / f"{written}-2"
    copy.mkdir()
    for each in (Path(str(spark_broker.data)) / "logs" / f"{written}-2").iterdir():
        (copy / each.name).write_bytes(each.read_bytes())
    first = min(copy.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    with pytest.raises(Exception, match=f"{written}.* offset 0.*{first.name}"):
        read(spark, path=str(copy)).collect()
