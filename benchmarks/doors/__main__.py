"""HTTP and the line protocol against their goals, each beside a bare server: `python -m benchmarks.doors`."""

import argparse
import json
import statistics
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.broker.goals import Goal
from benchmarks.broker.report import machine
from benchmarks.broker.servers import child
from benchmarks.doors.load import Load, drive

ROUNDS = 5
QUICK_SCALE = 0.01
VALUE = b"x" * 100
BATCH = 10


class Row(NamedTuple):
    name: str
    work: str
    door: str
    settings: tuple[str, ...]
    load: Load
    records: int
    """Of one request."""
    requests: int
    reply: str
    """What the bare server answers with; as long as what a node does."""
    goal: Goal
    """Records a second, at least."""


def _post(body: Any) -> bytes:
    text = json.dumps(body).encode()
    return (
        b"POST /produce HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: benchmark\r\nAccept: */*\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)
    )


def _record(number: int) -> dict[str, str]:
    key = b"customer-%04d" % number
    return {"topic": "bench", "key": b64encode(key).decode(), "value": b64encode(VALUE).decode()}


PLACE = '{"topic":"bench","partition":1,"offset":123456}'
SINGLE = Load([_post(_record(number)) for number in range(64)], 64, 1, b"}", b"error")
MANY = Load(
    [_post([_record(each) for each in range(n, n + BATCH)]) for n in range(64)], 64, 1, b"]", b"error"
)
LINES = Load(
    [b"TOPIC bench customer-%04d %d\n%s" % (number, len(VALUE), VALUE) for number in range(16)],
    16,
    32,
    b"\n",
    b"-ERR",
)

ROWS = (
    Row(
        *("http-64", "HTTP produce, 64 connections, fsync", "http", (), SINGLE),
        *(1, 20_000, PLACE, Goal(4_000, at_least=True)),
    ),
    Row(
        *("http-batch", f"HTTP produce, {BATCH} records a call, 64 connections, fsync", "http", (), MANY),
        *(BATCH, 6_000, "[" + ",".join([PLACE] * BATCH) + "]", Goal(12_000, at_least=True)),
    ),
    Row(
        *("line-16", "line protocol, 16 connections, no fsync", "line", ("durability.fsync=never",), LINES),
        *(1, 60_000, "+OFFSET 123456\n", Goal(15_000, at_least=True)),
    ),
)


class Figures(NamedTuple):
    """Of one row, by round."""

    row: Row
    rates: list[float]
    """Records a second."""
    cpu_us: list[float]
    """Of the node, for a record."""
    bare_rates: list[float]
    bare_cpu_us: list[float]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def is_met(self) -> bool:
        return self.row.goal.is_met(self.rate)


def measure(row: Row, directory: Path, rounds: int, scale: float) -> Figures:
    figures = Figures(row, [], [], [], [])
    requests = max(row.load.connections * row.load.in_flight, int(row.requests * scale))
    with _node(row, directory) as node, _bare(row) as bare:
        for number in range(rounds):
            warm = requests // 4 if number == 0 else 0
            for (port, pid), rates, costs in (
                (node, figures.rates, figures.cpu_us),
                (bare, figures.bare_rates, figures.bare_cpu_us),
            ):
                done = drive(port, pid, row.load, requests, warm)
                records = done.requests * row.records
                rates.append(records / done.seconds)
                costs.append(done.cpu_seconds / records * 1e6)
    return figures


@contextmanager
def _node(row: Row, directory: Path) -> Iterator[tuple[int, int]]:
    """Where the door is, and the process."""
    command = [str(Path(sys.executable).with_name("penstock")), "up", "--data", str(directory / row.name)]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]
    command += [word for each in row.settings for word in ("--set", each)]
    with child(command, "penstock ready ") as (process, line, _):
        address = dict(word.split("=", 1) for word in line.split() if "=" in word)[row.door]
        yield int(address.rpartition(":")[2]), process.pid


@contextmanager
def _bare(row: Row) -> Iterator[tuple[int, int]]:
    words = [row.door, json.dumps(row.reply), str(len(row.load.requests[0]))]
    with child([sys.executable, "-m", "benchmarks.doors.bare", *words], "") as (process, line, _):
        yield int(line), process.pid


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    names = options.rows.split(",") if options.rows else [row.name for row in ROWS]
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        sys.exit(f"no row {', '.join(sorted(unknown))}; there are: {', '.join(row.name for row in ROWS)}")
    rounds, scale = (1, QUICK_SCALE) if options.quick else (options.rounds, 1.0)
    found = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for row in ROWS:
            if row.name in names:
                print(f"{row.name} ...", file=sys.stderr, flush=True)
                found.append(measure(row, Path(directory), rounds, scale))
    if options.json:
        print(json.dumps({"machine": machine(), "rows": [_as_json(each) for each in found]}, indent=2))
    else:
        _print(found)
    return 1 if options.goals and not all(each.is_met for each in found) else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.doors", description=__doc__)
    parser.add_argument("--rows", help="only these, separated by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"for each row; {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, to see that it runs")
    parser.add_argument("--no-goals", dest="goals", action="store_false", help="a missed goal is no failure")
    parser.add_argument("--json", action="store_true", help="figures of all rounds instead of a table")
    return parser.parse_args(arguments)


def _as_json(figures: Figures) -> dict[str, Any]:
    return {
        "key": figures.row.name,
        "work": figures.row.work,
        "records_per_second": figures.rates,
        "cpu_us": figures.cpu_us,
        "bare_records_per_second": figures.bare_rates,
        "bare_cpu_us": figures.bare_cpu_us,
        "goal": str(figures.row.goal),
        "is_met": figures.is_met,
    }


def _print(found: list[Figures]) -> None:
    table = Table(
        "work", "bare/s", "records/s", "bare us", "CPU us", "goal", "", title="Penstock's other doors"
    )
    for each in found:
        table.add_row(
            each.row.work,
            f"{statistics.median(each.bare_rates):,.0f}",
            f"{each.rate:,.0f}",
            f"{statistics.median(each.bare_cpu_us):.1f}",
            f"{statistics.median(each.cpu_us):.1f}",
            str(each.row.goal),
            "[green]ok[/]" if each.is_met else "[red]missed[/]",
        )
    console = Console(width=max(Console().width, 130))
    console.print(table)
    console.print(
        "CPU is the server's own, all threads, for a record. Bare is the same door with a reply that is ready, and no "
        "node behind it; for the line protocol, a uvloop server that counts bytes."
    )


if __name__ == "__main__":
    sys.exit(main())
