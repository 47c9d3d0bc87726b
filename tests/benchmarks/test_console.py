"""The benchmark of the console runs, and its rows measure something. How fast anything is, is not judged here."""

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from tests.console.conftest import ARGUMENTS, CHROMIUM
from tests.processes import Process

from benchmarks import console


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_every_row_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LOADS", 1)
    with Process(data=tmp_path / "data", http=True) as node, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        rows = list(console.rows(browser, node, seconds=1, partitions=100, records=500))
        browser.close()
    assert [row.work for row in rows] == [
        "first view, compressed",
        "first view usable, nothing cached",
        "CPU of the node, Overview open",
        "scroll 100 partitions",
        "scroll messages of 500 records",
        "memory of the node, console in use",
    ]
    assert all(row.measured for row in rows)
