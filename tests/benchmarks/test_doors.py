"""The benchmark of the other doors runs: its replies are told apart, and its rows measure something. How fast anything
is, is not judged here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from benchmarks.broker.load import BadReply
from benchmarks.doors.__main__ import LINES, MANY, ROWS, SINGLE
from benchmarks.doors.load import Load, drive

from penstock.testing import Broker

ROOT = Path(__file__).parents[2]


@contextmanager
def broker() -> Iterator[Broker]:
    with Broker(http=True, line=True, settings={"durability.fsync": "never"}) as running:
        yield running


def written(running: Broker) -> int:
    with urlopen(f"{running.http_url}/topics/bench", timeout=30) as response:
        return sum(each["end"] for each in json.load(response)["partitions"])


@pytest.mark.parametrize(
    ("load", "door", "records"), [(SINGLE, "http", 1), (MANY, "http", 10), (LINES, "line", 1)]
)
def test_every_request_that_is_counted_was_carried_out(load: Load, door: str, records: int) -> None:
    with broker() as running:
        port = running.line_port if door == "line" else int(running.http_url.rpartition(":")[2])
        measured = drive(port, os.getpid(), load._replace(connections=4), 101, 20)
        assert measured.requests == 101
        assert measured.seconds > 0
        assert written(running) == (101 + 20) * records


def test_an_answer_that_says_that_something_is_wrong_ends_the_run() -> None:
    with broker() as running:
        bad = [each.replace(b"bench", b"b*nch") for each in SINGLE.requests]
        with pytest.raises(BadReply, match="invalid"):
            drive(int(running.http_url.rpartition(":")[2]), os.getpid(), SINGLE._replace(requests=bad), 10)


@pytest.mark.long
def test_all_rows_run() -> None:
    command = [sys.executable, "-m", "benchmarks.doors", "--quick", "--no-goals", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["key"] for row in rows] == [row.name for row in ROWS]
    for row in rows:
        figures = ("records_per_second", "cpu_us", "bare_records_per_second", "bare_cpu_us")
        assert all(value > 0 for name in figures for value in row[name])
