"""The commands of docs/http-overview.md run as they stand, and its tables name everything there is."""

import json
import re
import subprocess
from pathlib import Path

from penstock.gateway.observing.event import Kind
from penstock.gateway.observing.series import SERIES
from penstock.testing import Broker

PAGE = (Path(__file__).parents[3] / "docs" / "http-overview.md").read_text()


def test_commands_run() -> None:
    with Broker(http=True) as broker:
        [commands] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
        commands = commands.replace("http://127.0.0.1:8080", broker.http_url).replace(
            "curl -s", "curl -sf -w '\\n'"
        )
        ran = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    overview, history, events, *stream = ran.stdout.splitlines()
    assert json.loads(overview)["status"] == "ok"
    assert [each["name"] for each in json.loads(history)["series"]] == ["bytes_in", "produce_p99_ms"]
    assert json.loads(events)["events"][0]["kind"] == "node_started"
    assert stream[0].startswith("retry: ")
    assert "event: end" in stream


def test_every_kind_of_event_and_every_series_is_told() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    for kind in ("fetch", "other", "http", "line"):  # "the same of"
        if kind in named:
            named |= {f"{kind}_p50_ms", f"{kind}_p99_ms"}
    assert set(map(str, Kind)) <= named
    assert set(SERIES) <= named
