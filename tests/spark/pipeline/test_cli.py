"""`penstock pipeline run` as a process: shown, asked about, stopped, resumed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Broker

from .running import consume, produce, written

WAIT_S = 180.0

PIPELINE = """
pipeline: cli
checkpoint: state
conf: {spark.driver.extraJavaOptions: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
sources:
  orders: {topic: cli-orders, value: json, schema: "id BIGINT, amount DOUBLE"}
flows:
  copies:
    sql: SELECT id, amount * 2 AS twice FROM orders
    to: {topic: cli-copies, key: id}
  sums:
    sql: SELECT id % 2 AS odd, sum(amount) AS total FROM orders GROUP BY id % 2
    mode: update
    to: {delta: out/sums, upsert: odd}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "pipeline", *arguments]


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A run in a process group of its own, as a terminal gives it; ended with the block."""
    process = subprocess.Popen(
        command("run", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_until(
    process: "subprocess.Popen[str]", holds: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """JSON lines up to one of which this holds."""
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        told.append(json.loads(line))
        if holds(told[-1]):
            return told
    assert process.stderr is not None
    raise AssertionError(f"it ended before that: {told} {process.stderr.read()}")


@pytest.mark.long  # a minute of two cores; `test_demo` runs the command, `test_pipelines` stops and resumes
def test_a_run_is_shown_asked_about_stopped_and_resumed(tmp_path: Path) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415

    file = str(written(tmp_path, PIPELINE))
    with Broker() as broker:
        broker.create_topic("cli-orders", partitions=2)
        produce(broker, "cli-orders", [{"id": each, "amount": 1.0} for each in range(100)])
        with running(file, "--json", "-s", broker.bootstrap) as process:
            rows = {"copies": 0, "sums": 0}

            def both_are_through(told: dict[str, Any]) -> bool:
                rows[told["flow"]] = told["rows"]
                return set(rows.values()) == {100}

            read_until(process, both_are_through)
            asked = subprocess.run(
                command("status", file, "--json", "-s", broker.bootstrap),
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            second = subprocess.run(
                command("run", file), capture_output=True, text=True, timeout=60, check=False
            )
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to Java and to Python workers as well
            out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, err
        assert err == ""
        assert json.loads(out.splitlines()[-1]) == {"pipeline": "cli", "state": "stopped", "rows": 200}
        status = json.loads(asked.stdout)
        assert (status["state"], status["pid"]) == ("running", process.pid)
        assert [each["lag"] for each in status["flows"]] == [0, 0]
        assert second.returncode == 2
        assert "pipeline cli is already running" in second.stderr

        produce(broker, "cli-orders", [{"id": each, "amount": 1.0} for each in range(100, 150)])
        again = subprocess.run(
            command("run", file, "--once", "-s", broker.bootstrap),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert again.returncode == 0, again.stderr
        lines = again.stdout.splitlines()
        assert any(line.startswith("copies: batch ") and ", 50 rows, " in line for line in lines), lines
        assert lines[-1].startswith("pipeline cli: finished after ")
        assert again.stderr.count("\n") == 1, "Spark's own words go to its log"

        assert sorted(value["id"] for _, value in consume(broker, "cli-copies")) == list(range(150))
        table = DeltaTable(tmp_path / "out/sums").to_pyarrow_table().to_pylist()
        assert {each["odd"]: each["total"] for each in table} == {0: 75.0, 1: 75.0}


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_runs_that_end_anyhow_lose_and_repeat_nothing(tmp_path: Path, how: signal.Signals) -> None:
    """Four runs, each ended after some batches by a signal to it alone; then one to the end."""
    from deltalake import DeltaTable  # noqa: PLC0415

    limited = PIPELINE.replace(
        '"id BIGINT, amount DOUBLE"', '"id BIGINT, amount DOUBLE", options: {maxOffsetsPerTrigger: 50}'
    )
    file = str(written(tmp_path, limited))
    with Broker() as broker:
        broker.create_topic("cli-orders", partitions=2)
        produce(broker, "cli-orders", [{"id": each, "amount": 1.0} for each in range(3000)])
        for round_ in range(4):
            with running(file, "--json", "-s", broker.bootstrap) as process:
                for _ in range(4 + 3 * round_):
                    read_until(process, lambda told: told["batch"] is not None)
                os.kill(process.pid, how)
                process.communicate(timeout=WAIT_S)
                assert process.returncode == (-how if how == signal.SIGKILL else 0)
        last = subprocess.run(
            command("run", file, "--once", "-s", broker.bootstrap),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

        assert last.returncode == 0, last.stderr
        assert sorted(value["id"] for _, value in consume(broker, "cli-copies")) == list(range(3000))
        table = DeltaTable(tmp_path / "out/sums").to_pyarrow_table().to_pylist()
        assert {each["odd"]: each["total"] for each in table} == {0: 1500.0, 1: 1500.0}
