"""The page about groups and transactions is executed: its example, and its commands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.test_docs import ADDRESS, ROOT, blocks, run

from penstock.testing import Broker

PAGE = (ROOT / "docs/groups.md").read_text()


@pytest.mark.long
def test_the_example_of_exactly_once_and_the_commands_run(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("invoices", partitions=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for index, value in enumerate((b"one", b"two", b"three")):
            producer.produce("orders", value, partition=index % 2)
        assert producer.flush(30) == 0

        [example] = blocks("python", PAGE)
        done = run("-c", example.replace(ADDRESS, broker.bootstrap))
        assert done.returncode == 0, done.stderr

        commands = "".join(blocks("sh", PAGE))
        assert commands.count("penstock ") == 13
        shell = f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\n'
        shell += commands + "penstock consume invoices --isolation committed\n"
        said = subprocess.run(
            ["sh", "-e", "-c", shell],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_SERVER": broker.bootstrap},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    assert "billing: Empty, no members, lag 0" in said.stdout
    assert "billing-1: CompleteCommit" in said.stdout
    assert sorted(said.stdout.splitlines()[-3:]) == ["ONE", "THREE", "TWO"]
    assert (tmp_path / "offsets.csv").read_text() == "orders,0,0\norders,1,0\n"
