"""A running pipeline on a terminal, in a pipe, and as JSON lines."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.pipeline_show import _Live, line_of, row_of, show_of
from penstock.spark.pipeline import load
from penstock.spark.pipeline.progress import FlowProgress

FLOW = FlowProgress(
    "totals",
    "running",
    batch=3,
    rows=1200,
    rows_last=200,
    rows_per_s=54.6,
    batch_ms=1212,
    lag=7,
    state_rows=17,
)


def spec_in(directory: Path) -> Any:
    file = directory / "p.yaml"
    file.write_text(
        "pipeline: p\nsources: {s: {rate: 1}}\nflows: {totals: {reads: s, to: {console: true}}}\n"
    )
    return load(file)


def test_a_batch_is_a_line_and_so_is_an_end() -> None:
    assert line_of(FLOW) == "totals: batch 3, 200 rows, 55 rows/s, 1,212 ms, lag 7, 17 rows of state"
    assert line_of(FlowProgress("f", "running")) == "f: running"
    assert line_of(FlowProgress("f", "failed", batch=1, error="no\x1bmore")) == "f: failed: no\\x1bmore"


def test_a_pipe_gets_lines_and_json_gets_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        with show_of(spec_in(tmp_path), as_json=as_json) as shown:
            shown.watch([FLOW])
            shown.tell(FLOW)
            shown.end("stopped")

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == line_of(FLOW)
    assert lines[1].startswith("pipeline p: stopped after 0.0 s and 1,200 rows")
    assert json.loads(lines[2]) == {"pipeline": "p", **FLOW.as_json()}
    assert json.loads(lines[3]) == {"pipeline": "p", "state": "stopped", "rows": 1200}


def test_a_terminal_gets_a_table() -> None:
    live = _Live("p")
    live.watch([FLOW, FlowProgress("other", "failed", error="no \x1b[31mdisk")])
    told = io.StringIO()
    Console(file=told, width=120).print(live._table())

    head, first, second = told.getvalue().splitlines()
    assert head.split() == [
        "FLOW",
        "STATE",
        "BATCH",
        "ROWS",
        "ROWS/S",
        "BATCH",
        "MS",
        "LAG",
        "STATE",
        "ROWS",
        "ERROR",
    ]
    assert first.split() == ["totals", "running", "3", "1,200", "55", "1,212", "7", "17"]
    assert second.split() == ["other", "failed", "-", "0", "0", "-", "-", "-", "no", "\\x1b[31mdisk"]


def test_a_row_of_a_status_that_lacks_something_has_gaps() -> None:
    assert row_of({"flow": "f"}) == ["f", None, None, None, None, None, None, None]
