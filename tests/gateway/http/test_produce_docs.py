"""docs/http-produce.md: its example runs as it stands, and answers what it says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.gateway.http.produce import RECORDS_MAX
from penstock.gateway.idempotency import HEADER, IDEMPOTENCY_KEY_BYTES_MAX
from penstock.gateway.idempotency.keys import RECENT_TOTAL_MAX
from penstock.gateway.idempotency.topic_keys import RECENT_MAX
from penstock.testing import Broker

PAGE = (Path(__file__).parents[3] / "docs" / "http-produce.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_runs() -> None:
    command, answer = re.search(r"```sh\n(.*?)```\n```json\n(.*?)```", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    with Broker(http=True) as broker:
        for _ in range(2):
            done = subprocess.run(
                ["sh", "-e", "-c", command.replace("http://127.0.0.1:8080", broker.http_url)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == json.loads(answer)


def test_the_numbers_are_those_of_the_code() -> None:
    for number in (RECORDS_MAX, RECENT_MAX, RECENT_TOTAL_MAX):
        assert f"{number:,}" in PAGE
    assert f"1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes" in PAGE
    assert f"`{HEADER}`" in PAGE
