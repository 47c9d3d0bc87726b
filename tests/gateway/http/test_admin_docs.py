"""The commands of docs/http-cluster.md and docs/http-security.md run as they stand."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Broker

DOCS = Path(__file__).parents[3] / "docs"


def answers(broker: Broker, page: str) -> list[Any]:
    [commands] = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    commands = commands.replace("http://127.0.0.1:8080", broker.http_url)
    commands = commands.replace("curl -s", "curl -s -w '\\n'")
    ran = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines() if line]


@pytest.mark.parametrize(("page", "count"), [("http-cluster.md", 9), ("http-security.md", 7)])
def test_commands_run(page: str, count: int) -> None:
    with Broker(http=True) as broker:
        broker.create_topic("orders")
        found = answers(broker, page)
    assert len(found) == count
    assert [each for each in found if "error" in each] == []
