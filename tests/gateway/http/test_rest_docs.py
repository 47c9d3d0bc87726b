"""The commands of docs/http-rest.md run as they stand."""

import json
import re
import subprocess
from pathlib import Path

from penstock.testing import Broker

PAGE = (Path(__file__).parents[3] / "docs" / "http-rest.md").read_text()


def test_commands_run() -> None:
    with Broker(http=True) as broker:
        commands = (
            "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
            .replace("http://127.0.0.1:8080", broker.http_url)
            .replace("curl -s", "curl -s -w '\\n'")
        )
        ran = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line]
    created, described, produced, records, moved, lag, preview, newest, copied = answers
    assert created["partitions"] == len(described["partitions"]) == 3
    assert produced["offset"] == 0
    [record] = records["records"]
    assert (record["key"], record["value"]) == ("alice", {"paid": True})
    assert len(moved["partitions"]) == 3
    assert lag["lag"] == 1
    assert [each["offset"] for each in preview["partitions"]].count(0) == 3
    assert preview["refused"] is None
    assert [each["key"] for each in newest["records"]] == ["alice"]
    assert copied["copied"] == 1
