"""The schema registry against its goals: `python -m benchmarks.registry`.

Look-ups by id are counted for each second of the node's processor time. The cost of `schema.validation=value` is that
of a one-record Produce to a topic with it, beside one without it on the same node, in turns.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

from benchmarks.broker import load as kafka
from benchmarks.broker.frames import VALUE_BYTES, now_ms, produce_error_at, produce_frame
from benchmarks.broker.servers import child
from benchmarks.doors.load import Load, drive
from penstock.records import build_batch
from penstock.records.schema_framing import write_frame

ROUNDS = 7
LOOKUPS, PRODUCED = 20_000, 40_000
CONNECTIONS = 16
LOOKUPS_GOAL = 2_000
VALIDATION_GOAL = 1.10
PLAIN, CHECKED = "plain", "typed"
"""Names of topics, of one length."""

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": f"field{number}", "type": "string"} for number in range(6)],
    }
)


class Node(NamedTuple):
    pid: int
    http: int
    kafka: int

    def call(self, method: str, path: str, body: object) -> dict[str, object]:
        request = Request(
            f"http://127.0.0.1:{self.http}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urlopen(request, timeout=30) as response:
            found: dict[str, object] = json.loads(response.read())
        return found


@contextmanager
def _node(directory: Path) -> Iterator[Node]:
    command = [str(Path(sys.executable).with_name("penstock")), "up", "--data", str(directory)]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", "off"]
    with child(command, "penstock ready ") as (process, line, _):
        at = dict(word.split("=", 1) for word in line.split() if "=" in word)
        yield Node(process.pid, *(int(at[name].rpartition(":")[2]) for name in ("http", "kafka")))


def _lookups(node: Node, schema_id: int, rounds: int, scale: float) -> list[float]:
    """Look-ups for a second of processor time, in each round."""
    request = (
        b"GET /schema-registry/schemas/ids/%d?fetchMaxId=false HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Accept: application/vnd.schemaregistry.v1+json\r\n\r\n" % schema_id
    )
    # "200 OK" has the only K of a reply, which arrives in one piece.
    load = Load([request], CONNECTIONS, 1, b"K", b"error_code")
    count = max(CONNECTIONS, int(LOOKUPS * scale))
    found = []
    for number in range(rounds):
        done = drive(node.http, node.pid, load, count, count // 4 if number == 0 else 0)
        found.append(done.requests / done.cpu_seconds)
    return found


def _produced(node: Node, schema_id: int, rounds: int, scale: float) -> tuple[list[float], list[float]]:
    """Processor microseconds of a one-record Produce, without and with validation."""
    value = write_frame(schema_id) + b"x" * (VALUE_BYTES - 5)
    batch = build_batch([(None, value, now_ms())])
    count = max(CONNECTIONS, int(PRODUCED * scale))
    costs: dict[str, list[float]] = {PLAIN: [], CHECKED: []}
    for number in range(rounds):
        for topic in (PLAIN, CHECKED) if number % 2 else (CHECKED, PLAIN):
            load = kafka.Load(
                [[produce_frame(topic, [0], batch)]],
                CONNECTIONS,
                1,
                count,
                count // 4,
                produce_error_at(topic),
            )
            done = kafka.drive(node.kafka, node.pid, load)
            costs[topic].append(done.cpu_seconds / done.requests * 1e6)
    return costs[PLAIN], costs[CHECKED]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.registry", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"for each row; {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the work, to see that it runs")
    parser.add_argument("--no-goals", dest="goals", action="store_false", help="a missed goal is no failure")
    parser.add_argument("--json", action="store_true", help="figures of all rounds instead of a table")
    options = parser.parse_args(arguments)
    rounds, scale = (1, 0.02) if options.quick else (options.rounds, 1.0)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, _node(Path(directory)) as node:
        for topic, settings in ((PLAIN, {}), (CHECKED, {"schema.validation": "value"})):
            node.call("POST", "/topics", {"name": topic, "partitions": 1, "configs": settings})
        reply = node.call("POST", f"/schema-registry/subjects/{CHECKED}-value/versions", {"schema": SCHEMA})
        schema_id = int(str(reply["id"]))
        lookups = _lookups(node, schema_id, rounds, scale)
        plain, checked = _produced(node, schema_id, rounds, scale)
    rate = statistics.median(lookups)
    ratio = statistics.median(checked) / statistics.median(plain)
    met = (rate >= LOOKUPS_GOAL, ratio <= VALIDATION_GOAL)
    if options.json:
        print(
            json.dumps({"lookups_a_core": lookups, "plain_us": plain, "checked_us": checked, "ratio": ratio})
        )
    else:
        _print(rate, statistics.median(plain), statistics.median(checked), met)
    return 1 if options.goals and not all(met) else 0


def _print(rate: float, plain_us: float, checked_us: float, met: tuple[bool, bool]) -> None:
    shown = {True: "[green]ok[/]", False: "[red]missed[/]"}
    table = Table("work", "measured", "beside", "goal", "", title="The schema registry")
    table.add_row(
        "look-ups by id, a core", f"{rate:,.0f}/s", "", f"at least {LOOKUPS_GOAL:,}/s", shown[met[0]]
    )
    table.add_row(
        "one-record Produce with schema.validation=value",
        f"{checked_us:.1f} us",
        f"{plain_us:.1f} us without",
        f"at most {VALIDATION_GOAL:g} x",
        shown[met[1]],
    )
    Console(width=max(Console().width, 110)).print(table)


if __name__ == "__main__":
    sys.exit(main())
