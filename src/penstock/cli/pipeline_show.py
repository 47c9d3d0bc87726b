"""Output of a running pipeline: a table updated in place on a terminal, otherwise text lines or JSON lines."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.cli.output import Cell, print_json_line, printable
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.spec import PipelineSpec

_COLUMNS = {
    "FLOW": "flow",
    "STATE": "state",
    "BATCH": "batch",
    "ROWS": "rows",
    "ROWS/S": "rows_per_s",
    "BATCH MS": "batch_ms",
    "LAG": "lag",
    "STATE ROWS": "state_rows",
}


def columns() -> list[str]:
    return list(_COLUMNS)


def row_of(flow: Mapping[str, Any]) -> list[Cell]:
    """A flow as a table row, with its rate as an integer."""
    cells: list[Cell] = []
    for key in _COLUMNS.values():
        value = flow.get(key)
        cells.append(round(value) if isinstance(value, float) else value)
    return cells


class ProgressOutput(Protocol):
    def watch(self, flows: Sequence[FlowProgress]) -> None: ...
    def tell(self, progress: FlowProgress) -> None: ...
    def end(self, state: str) -> None: ...


@contextmanager
def show_of(spec: PipelineSpec, *, as_json: bool) -> Iterator[ProgressOutput]:
    if as_json:
        yield _Json(spec.name)
    elif sys.stdout.isatty():
        live = _Live(spec.name)
        with live.running():
            yield live
    else:
        yield _Lines(spec.name)


class _Json:
    """Prints an object for each batch and each change of a flow's state, and one for the pipeline at the end."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._flows: Sequence[FlowProgress] = ()

    def watch(self, flows: Sequence[FlowProgress]) -> None:
        self._flows = flows

    def tell(self, progress: FlowProgress) -> None:
        print_json_line({"pipeline": self._pipeline, **progress.as_json()})
        sys.stdout.flush()

    def end(self, state: str) -> None:
        print_json_line(
            {"pipeline": self._pipeline, "state": state, "rows": sum(each.rows for each in self._flows)}
        )
        sys.stdout.flush()


class _Lines:
    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._flows: Sequence[FlowProgress] = ()
        self._began = time.monotonic()

    def watch(self, flows: Sequence[FlowProgress]) -> None:
        self._flows = flows

    def tell(self, progress: FlowProgress) -> None:
        print(line_of(progress), flush=True)

    def end(self, state: str) -> None:
        rows, took_s = sum(each.rows for each in self._flows), time.monotonic() - self._began
        print(f"pipeline {self._pipeline}: {state} after {took_s:.1f} s and {rows:,} rows", flush=True)


def line_of(progress: FlowProgress) -> str:
    """`totals: batch 3, 1,200 rows, 5,400 rows/s, 212 ms, lag 0, 17 rows of state`."""
    if progress.state != "running" or progress.batch is None:
        error = f": {printable(progress.error)}" if progress.error else ""
        return f"{progress.flow}: {progress.state}{error}"
    parts = [f"batch {progress.batch}", f"{progress.rows_last:,} rows", f"{progress.rows_per_s:,.0f} rows/s"]
    if progress.batch_ms is not None:
        parts.append(f"{progress.batch_ms:,} ms")
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.state_rows is not None:
        parts.append(f"{progress.state_rows:,} rows of state")
    return f"{progress.flow}: {', '.join(parts)}"


class _Live(_Lines):
    """A table that is redrawn when the numbers change; other output is printed above it."""

    def __init__(self, pipeline: str) -> None:
        from rich.live import Live  # noqa: PLC0415  # only a terminal pays for rich

        super().__init__(pipeline)
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._table, refresh_per_second=4)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._live:
            yield

    def tell(self, progress: FlowProgress) -> None:
        pass  # rich redraws the table

    def end(self, state: str) -> None:
        self._live.refresh()
        self._live.stop()
        super().end(state)

    def _table(self) -> Any:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
        for name, key in _COLUMNS.items():
            table.add_column(name, justify="left" if key in ("flow", "state") else "right")
        table.add_column("ERROR", overflow="fold")
        with self._lock:
            for each in self._flows:
                cells = [
                    "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell
                    for cell in row_of(each.as_json())
                ]
                table.add_row(*(Text(printable(cell)) for cell in cells), Text(printable(each.error or "")))
        return table
