"""A driver killed with -9 in the middle of a commit, and started again with its rows dealt to other tasks."""

import json
import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.drivers import Driver, Job, Stop, start_query, wait_for
from tests.spark.sinks import committed, values

from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 120


def write_input(directory: Path, batches: int) -> None:
    (directory / "in").mkdir()
    for batch in range(batches):
        lines = [json.dumps({"n": each}) + "\n" for each in range(batch * ROWS, (batch + 1) * ROWS)]
        (directory / "in" / f"{batch:03}.json").write_text("".join(lines))


def expect_each_once(broker: Broker, topic: str, batches: int) -> None:
    assert sorted(map(int, values(committed(broker, topic)))) == list(range(batches * ROWS))


@pytest.mark.long
def test_a_driver_killed_within_a_commit_leaves_each_row_once(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Once between the record and the first end, once between the first end and the last."""
    batches, directory = 4, tmp_path
    spark_broker.create_topic(topic, 3)
    write_input(directory, batches)
    pipe_path = str(directory / "pipe")
    os.mkfifo(pipe_path)
    pipe = os.open(pipe_path, os.O_RDWR)
    try:
        for tasks, stop in (
            (3, Stop(1, "END_TXN", 1, pipe_path)),
            (2, Stop(2, "END_TXN", 2, pipe_path)),
        ):
            job = Job(spark_broker.bootstrap, topic, str(directory), tasks, stop)
            with Driver(job, directory / "log"):
                wait_for(pipe)
    finally:
        os.close(pipe)
    start_query(spark, Job(spark_broker.bootstrap, topic, str(directory), 4)).awaitTermination(120)
    expect_each_once(spark_broker, topic, batches)


@pytest.mark.long
def test_a_driver_killed_at_random_leaves_each_row_once(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Each life is given until a few more batches are in, and then a moment by chance."""
    batches, directory, rng = 60, tmp_path, random.Random(6)
    spark_broker.create_topic(topic, 3)
    write_input(directory, batches)
    for life in range(8):
        job = Job(spark_broker.bootstrap, topic, str(directory), rng.randrange(1, 5))
        with Driver(job, directory / "log") as driver:
            wait_for_batches(directory, driver, (life + 1) * 4)
            with suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(0, 0.6))
    start_query(spark, Job(spark_broker.bootstrap, topic, str(directory), 3)).awaitTermination(300)
    expect_each_once(spark_broker, topic, batches)


def wait_for_batches(directory: Path, driver: Driver, count: int) -> None:
    """Until the checkpoint has so many batches as committed."""
    deadline = time.monotonic() + 120
    while not (directory / "checkpoint" / "commits" / str(count)).exists():
        assert time.monotonic() < deadline, (directory / "log").read_text()
        with suppress(subprocess.TimeoutExpired):
            driver.wait(0.02)
            return
