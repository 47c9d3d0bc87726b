"""A pipeline through a real Spark Connect server, started from the pip package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Broker

from .running import consume, produce, written
from .test_cluster import daemon

PIPELINE = """
pipeline: remote
checkpoint: state
sources:
  orders: {topic: remote-orders, value: json, schema: "id BIGINT, amount DOUBLE"}
flows:
  copies:
    sql: SELECT id, amount * 2 AS twice FROM orders
    to: {topic: remote-copies, key: id}
  ids:
    sql: SELECT id FROM orders
    to: {delta: out/ids}
  sums:
    sql: SELECT id % 2 AS odd, count(*) AS n FROM orders GROUP BY id % 2
    mode: update
    to: {delta: out/sums, upsert: odd}
"""


@pytest.mark.long
def test_a_pipeline_runs_and_resumes_through_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    from deltalake import DeltaTable  # noqa: PLC0415

    file = written(tmp_path, PIPELINE)
    with (
        Broker() as broker,
        daemon(
            tmp_path / "server.log",
            *("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--driver-memory", "1g"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(
                "--conf",
                "spark.connect.grpc.binding.port=0",
                "--conf",
                "spark.connect.grpc.binding.address=127.0.0.1",
            ),
            *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
            "spark-internal",
            says=r"Spark Connect server started at: \S+?:(\d+)",
        ) as (_, at),
    ):
        broker.create_topic("remote-orders", partitions=2)
        for part in range(2):
            produce(
                broker, "remote-orders", [{"id": part * 100 + each, "amount": 1.0} for each in range(100)]
            )
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "penstock", "pipeline", "run", str(file), "--once", "--json"),
                    *("--remote", f"sc://127.0.0.1:{at[1]}", "-s", broker.bootstrap),
                ],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout.splitlines()[-1]) == {
                "pipeline": "remote",
                "state": "finished",
                "rows": 300,
            }

        assert sorted(value["id"] for _, value in consume(broker, "remote-copies")) == list(range(200))
        ids = DeltaTable(tmp_path / "out/ids").to_pyarrow_table().column("id").to_pylist()
        assert sorted(ids) == list(range(200))
        sums = DeltaTable(tmp_path / "out/sums").to_pyarrow_table().to_pylist()
        assert {each["odd"]: each["n"] for each in sums} == {0: 100, 1: 100}
