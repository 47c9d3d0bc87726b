"""What docs/http.md shows is so."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.gateway.http.protocol.errors import ALWAYS
from penstock.gateway.http.protocol.request_parser import HEAD_BYTES_MAX, HEADERS_MAX
from penstock.gateway.http.server import BATCHES_MAX
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.testing import Broker

PAGE = (Path(__file__).parents[3] / "docs/http.md").read_text()
[COMMANDS] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands_of_the_page_run() -> None:
    with Broker(http=True) as broker:
        produce, read, docs = (
            subprocess.run(
                ["sh", "-e", "-c", line.replace("http://127.0.0.1:8080", broker.http_url)],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout
            for line in COMMANDS.splitlines()
        )
    place = json.loads(produce)
    assert (place["topic"], place["offset"]) == ("orders", 0)
    assert "hello" in read
    assert docs.startswith("<!doctype html>")


def test_the_limits_of_the_page_are_the_limits() -> None:
    assert f"{HEAD_BYTES_MAX // 1024} KB, {HEADERS_MAX} headers" in PAGE
    message_bytes = int(BROKER_SETTINGS["message.max.bytes"].default or 0)
    assert f"{BATCHES_MAX} x `message.max.bytes` ({BATCHES_MAX * message_bytes >> 20} MB)" in PAGE


def test_every_status_of_any_request_is_on_the_page() -> None:
    named = {
        int(each) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for each in row.split(",")
    }
    assert set(ALWAYS) <= named
