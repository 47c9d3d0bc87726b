"""Spark's queries over a topic, beside yardsticks and Spark's own Kafka connector: `python -m benchmarks.spark`."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.compat.spark.peer import Connector, ConnectorUnavailable

from benchmarks.broker.report import machine
from benchmarks.spark.report import as_json, held, print_tables
from benchmarks.spark.rows import Row, all_rows, bench

ROUNDS = 5
QUICK_SCALE = 0.002
PEER = "kafka-connector"


def main(arguments: list[str] | None = None) -> int:
    rows = all_rows()
    options = _parse(arguments, [row.name for row in rows])
    chosen = _chosen(rows, options.rows)
    connector = _connector() if options.peer else None
    scale, rounds = (QUICK_SCALE, 1) if options.quick else (1.0, options.rounds)
    lines = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=os.environ.get("BENCH_DIR")) as directory,
        bench(Path(directory), connector, scale, rounds) as running,
    ):
        for row in chosen:
            print(f"{row.name} ...", file=sys.stderr, flush=True)
            lines += row.run(running)
    if options.json:
        told = {**machine(), "load": list(os.getloadavg())}
        print(json.dumps({"machine": told, "rows": [as_json(line) for line in lines]}, indent=2))
    else:
        print_tables(lines)
    missed = any(not goal.is_met for line in lines for goal in held(line))
    return 1 if options.goals and missed else 0


def _parse(arguments: list[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--rows", help=f"only these, separated by commas; all: {', '.join(names)}")
    parser.add_argument("--peer", choices=[PEER], help="run the same queries through it, in turns")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"that count, for each row; {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a little of the work, to see that it runs")
    parser.add_argument("--no-goals", dest="goals", action="store_false", help="a missed goal is no failure")
    parser.add_argument("--json", action="store_true", help="figures of all rounds instead of tables")
    return parser.parse_args(arguments)


def _chosen(rows: Sequence[Row], wanted: str | None) -> Sequence[Row]:
    if wanted is None:
        return rows
    by_name = {row.name: row for row in rows}
    unknown = [name for name in wanted.split(",") if name not in by_name]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in wanted.split(",")]


def _connector() -> Connector | None:
    """None where it cannot be had: then its goals are neither met nor missed."""
    try:
        return Connector.find()
    except ConnectorUnavailable as missing:
        print(f"without Spark's Kafka connector: {missing}", file=sys.stderr, flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main())
