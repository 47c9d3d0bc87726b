"""A topic as a table, and back: without Spark where a crash can be placed, with it where the whole is to be seen."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from penstock.spark.archive import ArchiveJob, prepare, start


def test_smoke(spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    spark_broker.create_topic(topic, partitions=2)
    p = Producer({"bootstrap.servers": spark_broker.bootstrap})
    for i in range(1000):
        p.produce(topic, key=f"k{i}", value=f"v{i}", partition=i % 2, headers=[("a", b"1")])
    p.flush()
    job = ArchiveJob(topic, str(tmp_path / "t"), spark_broker.bootstrap)
    prepare(job)
    start(spark, job, every=None).awaitTermination()
    print(list((tmp_path / "t").rglob("*.parquet")))
    df = spark.read.parquet(job.directory)
    df.printSchema()
    assert df.count() == 1000
