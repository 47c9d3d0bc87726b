"""A pipeline on a real standalone cluster, one of whose workers is killed in the middle of it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue

import pyspark
import pytest

from penstock.spark.java import prepare_java
from penstock.testing import Broker

from .running import consume, produce, written

WAIT_S = 300.0
ROWS = 2000

PIPELINE = """
pipeline: cluster
checkpoint: state
conf:
  spark.executor.memory: 512m
  spark.executor.cores: 1
  spark.cores.max: 2
  spark.sql.shuffle.partitions: 2
  spark.driver.memory: 512m
sources:
  orders:
    topic: cluster-orders
    value: json
    schema: id BIGINT, amount DOUBLE
    options: {maxOffsetsPerTrigger: 250}
flows:
  copies:
    sql: SELECT id, amount * 2 AS twice FROM orders
    to: {topic: cluster-copies, key: id}
  sums:
    sql: SELECT id % 10 AS digit, sum(amount) AS total, count(*) AS n FROM orders GROUP BY id % 10
    mode: update
    to: {delta: out/sums, upsert: digit}
  files:
    sql: SELECT id FROM orders
    to: {delta: out/ids}
"""


@contextmanager
def daemon(
    log: Path, *arguments: str, says: str
) -> Iterator[tuple["subprocess.Popen[bytes]", "re.Match[str]"]]:
    """A process of Spark's, in a group of its own, once its log says this; killed with the block."""
    environment = {
        **os.environ,
        **prepare_java(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment["SPARK_DAEMON_MEMORY"] = "512m"
    process = subprocess.Popen(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    found: Queue[re.Match[str] | None] = Queue()

    def follow() -> None:
        assert process.stdout is not None
        with log.open("wb") as copy:
            for line in process.stdout:
                copy.write(line)
                copy.flush()
                match = re.search(says, line.decode(errors="replace"))
                if match is not None:
                    found.put(match)
        found.put(None)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        match = found.get(timeout=WAIT_S)
        assert match is not None, log.read_text()
        yield process, match
    finally:
        kill(process)
        follower.join(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """A worker and the executors that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.long
def test_a_pipeline_on_a_cluster_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415

    file = str(written(tmp_path, PIPELINE))
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        broker.create_topic("cluster-orders", partitions=4)
        produce(broker, "cluster-orders", [{"id": each, "amount": 1.0} for each in range(ROWS)])
        _, at = stack.enter_context(
            daemon(
                tmp_path / "master.log",
                *(
                    "org.apache.spark.deploy.master.Master",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    "0",
                    "--webui-port",
                    "0",
                ),
                says=r"Starting Spark master at (spark://127\.0\.0\.1:\d+)",
            )
        )
        workers = [
            stack.enter_context(
                daemon(
                    tmp_path / f"worker-{number}.log",
                    *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0"),
                    *(
                        "--webui-port",
                        "0",
                        "-c",
                        "1",
                        "-m",
                        "1g",
                        "-d",
                        str(tmp_path / f"work-{number}"),
                        at[1],
                    ),
                    says="Successfully registered with master",
                )
            )[0]
            for number in range(2)
        ]
        process = stack.enter_context(
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "pipeline", "run", file, "--once", "--json"),
                    *("--master", at[1], "-s", broker.bootstrap),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        batches = 0
        for line in process.stdout:
            batches += json.loads(line).get("batch") is not None
            if batches == 3:
                kill(workers[0])
        assert process.stderr is not None
        error = process.stderr.read()
        log = (tmp_path / "state" / "spark.log").read_text()

        assert process.wait(WAIT_S) == 0, error
        assert batches >= 24
        assert "Lost executor" in log or "ExecutorLost" in log or "lost" in log, "the worker had work to do"
        copies = [value["id"] for _, value in consume(broker, "cluster-copies")]
        assert sorted(copies) == list(range(ROWS))
        sums = DeltaTable(tmp_path / "out/sums").to_pyarrow_table().to_pylist()
        assert {each["digit"]: each["n"] for each in sums} == dict.fromkeys(range(10), ROWS // 10)
        ids = DeltaTable(tmp_path / "out/ids").to_pyarrow_table().column("id").to_pylist()
        assert sorted(ids) == list(range(ROWS))
