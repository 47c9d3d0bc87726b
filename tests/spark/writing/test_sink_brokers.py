"""Brokers go away and come back while a stream is written: the query goes on, and each row is there once."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.drivers import Job, start_query
from tests.spark.sinks import Server, committed, values

from penstock.testing import Broker, Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 100
BATCHES = 30
REPLICATED = {"default.replication.factor": 3, "min.insync.replicas": 2}
AWAY_S = 3.0
"""Long enough for tasks to begin while nobody answers."""


def begin(spark: "SparkSession", server: Server, directory: Path) -> "StreamingQuery":
    server.create_topic("t", 3)
    (directory / "in").mkdir()
    for batch in range(BATCHES):
        lines = [json.dumps({"n": each}) + "\n" for each in range(batch * ROWS, (batch + 1) * ROWS)]
        (directory / "in" / f"{batch:03}.json").write_text("".join(lines))
    return start_query(spark, Job(server.bootstrap, "t", str(directory), 3))


def wait_for_batch(query: "StreamingQuery", directory: Path, number: int) -> None:
    deadline = time.monotonic() + 120
    while not (directory / "checkpoint" / "commits" / str(number)).exists():
        assert time.monotonic() < deadline
        assert query.isActive, query.exception()
        time.sleep(0.02)


def expect_each_once(query: "StreamingQuery", server: Server) -> None:
    assert query.awaitTermination(240)
    assert sorted(map(int, values(committed(server, "t")))) == list(range(BATCHES * ROWS))


@pytest.mark.long
def test_brokers_of_a_cluster_that_crash_in_turn(spark: "SparkSession", tmp_path: Path) -> None:
    """Partitions, coordinators and controllers move, under tasks and under commits."""
    with Cluster(settings=REPLICATED) as cluster:
        query = begin(spark, cluster, tmp_path)
        for round_, broker in enumerate([*cluster.brokers, cluster.brokers[0]]):
            wait_for_batch(query, tmp_path, 1 + 5 * round_)
            broker.kill()
            wait_for_batch(query, tmp_path, 4 + 5 * round_)
            broker.start()
        expect_each_once(query, cluster)


@pytest.mark.long
def test_the_only_broker_that_crashes_again_and_again(spark: "SparkSession", tmp_path: Path) -> None:
    with Broker() as broker:
        query = begin(spark, broker, tmp_path)
        for round_ in range(4):
            wait_for_batch(query, tmp_path, 1 + 5 * round_)
            broker.kill()
            time.sleep(AWAY_S)
            broker.start()
        expect_each_once(query, broker)
