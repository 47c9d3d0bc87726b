"""The broker on the wire against its yardsticks, and beside Apache Kafka: `python -m benchmarks.broker`."""

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from benchmarks.broker.report import Result, machine, print_table
from benchmarks.broker.rounds import Row, all_rows, bench

ROUNDS, WARM_SECONDS = 5, 8.0
QUICK_SCALE = 0.01


def main(arguments: list[str] | None = None) -> int:
    rows = all_rows()
    options = _parse(arguments, [row.name for row in rows])
    chosen = _chosen(rows, options.rows)
    _allow_many_files()
    servers = [*options.servers.split(","), *([options.peer] if options.peer else [])]
    results = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=os.environ.get("BENCH_DIR")) as directory:
        scale, rounds, warm = (QUICK_SCALE, 1, 0.0) if options.quick else (1.0, options.rounds, WARM_SECONDS)
        with bench(servers, Path(directory), scale, rounds, warm) as running:
            for row in chosen:
                print(f"{row.name} ...", file=sys.stderr, flush=True)
                figures = row.run(running)
                results += [Result(line, figures[line.key]) for line in row.lines]
    if options.json:
        print(json.dumps({"machine": machine(), "rows": [each.as_json() for each in results]}, indent=2))
    else:
        print_table(results, has_peer="kafka" in servers)
    return 1 if options.goals and any(each.is_met is False for each in results) else 0


def _parse(arguments: list[str] | None, names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.broker", description=__doc__)
    parser.add_argument("--rows", help=f"only these, separated by commas; all: {', '.join(names)}")
    parser.add_argument("--peer", choices=["kafka"], help="run the same rows on it, in turns")
    parser.add_argument("--servers", default="penstock", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"that count, for each row; {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the work, to see that it runs")
    parser.add_argument("--no-goals", dest="goals", action="store_false", help="a missed goal is no failure")
    parser.add_argument("--json", action="store_true", help="figures of all rounds instead of a table")
    return parser.parse_args(arguments)


def _chosen(rows: list[Row], wanted: str | None) -> list[Row]:
    if wanted is None:
        return rows
    by_name = {row.name: row for row in rows}
    unknown = [name for name in wanted.split(",") if name not in by_name]
    if unknown:
        sys.exit(f"no row {', '.join(unknown)}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in wanted.split(",")]


def _allow_many_files() -> None:
    """Thousands of connections need as many descriptors, here and in the servers, which inherit the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
