"""Searches against a plain search of the same bytes, in one run: `python -m benchmarks.search`.

The floor is what any search of these files has to do: read them and look for the bytes (`bytes.find`), as `grep -F`
does. Rows measure the processor time of one core, which a busy machine does not change much. The last rows run a node,
and measure time to the first result and to the end, which a busy machine does change.
"""

import argparse
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table
from tests.processes import Process

from benchmarks.broker.frames import one_record, produce_error_at, produce_frame
from benchmarks.broker.load import receive_frame
from benchmarks.storage import MB, PARTITION, open_log
from penstock.base.settings import LogSettings
from penstock.records import BatchBuilder, Codec
from penstock.search.gram_index import build
from penstock.search.planning import plan
from penstock.search.progress import SearchRun
from penstock.search.query import SearchQuery, SearchSpan
from penstock.search.scanning import search
from penstock.testing import Broker
from penstock.vfs import RealDisk

BATCH_BYTES = 100_000
SEGMENT_BYTES = 64 * MB
NOWHERE = b"nowhere-to-be-found"


class Goal(NamedTuple):
    text: str
    is_met: bool


class Row(NamedTuple):
    work: str
    measured: str
    floor: str
    goal: Goal | None = None


class Measured(NamedTuple):
    cpu_s: float
    matches: int
    run: SearchRun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it runs")
    options = parser.parse_args()
    records = 1_000_000 if options.quick else 10_000_000
    table = Table("work", "measured", "floor, same run", "goal", "", title="Penstock search")
    missed = False
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=os.environ.get("BENCH_DIR")) as path:
        for row in rows(Path(path), records):
            mark = "" if row.goal is None else "[green]ok[/]" if row.goal.is_met else "[red]missed[/]"
            table.add_row(row.work, row.measured, row.floor, row.goal.text if row.goal else "", mark)
            missed |= row.goal is not None and not row.goal.is_met
    Console(width=max(Console().width, 120)).print(table)
    return 1 if missed else 0


def rows(path: Path, records: int) -> Iterator[Row]:
    small, large, packed = path / "small", path / "large", path / "packed"
    fill(small, records, 100)
    fill(large, records // 10, 1000)
    fill(packed, records // 2, 100, Codec.ZSTD)
    search_once(small, records, SearchQuery(contains=NOWHERE))  # modules are imported, pages are read
    yield on_a_core("contains, 100 bytes", small, records, SearchQuery(contains=NOWHERE), millions=1.5)
    yield on_a_core("contains, 1 KB", large, records // 10, SearchQuery(contains=NOWHERE), megabytes=400)
    yield on_a_core("contains, 100 bytes, zstd", packed, records // 2, SearchQuery(contains=NOWHERE))
    yield on_a_core("regex, 100 bytes", small, records, SearchQuery(regex="zz[0-9]+q"))
    tenth = SearchQuery(where="value.id < 0")
    yield on_a_core("CEL, 100 bytes", small, records, tenth, start=records - records // 50)
    yield from on_a_node(small, records)
    yield from produce_meanwhile(small)
    yield with_index(small)


def on_a_core(
    work: str,
    path: Path,
    records: int,
    query: SearchQuery,
    *,
    start: int = 0,
    millions: float | None = None,
    megabytes: float | None = None,
) -> Row:
    measured = search_once(path, records, query, start)
    size = measured.run.searched_bytes
    assert measured.run.searched_bytes == measured.run.total_bytes
    assert measured.matches == 0
    rate, mb = (records - start) / measured.cpu_s / 1e6, size / measured.cpu_s / 1e6
    goal = None
    if millions is not None:
        goal = Goal(f"at least {millions} million records/s", rate >= millions)
    elif megabytes is not None:
        goal = Goal(f"at least {megabytes:.0f} MB/s", mb >= megabytes)
    plain_s = floor(path) * size / log_bytes(path)
    shown = f"{rate:.2f} million records/s, {mb:.0f} MB/s a core"
    return Row(work, shown, f"{size / plain_s / 1e6:.0f} MB/s: {measured.cpu_s / plain_s:.1f} x", goal)


def search_once(path: Path, records: int, query: SearchQuery, start: int = 0) -> Measured:
    """Search in this process, as a helper does."""
    vfs, directory = RealDisk(), str(path / "logs" / f"{PARTITION.topic}-0")
    span = SearchSpan(PARTITION.topic, 0, directory, 0, start, records)
    began = time.process_time()
    run = SearchRun(100)
    run.add(plan(vfs, query, span))
    matches = 0
    while (work := run.take()) is not None:
        run.returned(work, search(vfs, query, [(span, each) for each in work.chunks], work.limit))
        matches += sum(1 for _ in run.drain())
    return Measured(time.process_time() - began, matches, run)


def floor(path: Path) -> float:
    """Processor time to read all segments and look for the bytes in them; the best of three."""
    best = float("inf")
    buffer = bytearray(8 * MB)
    for _ in range(3):
        began = time.process_time()
        for each in sorted(path.glob("logs/*/*.log")):
            with each.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    assert buffer.find(NOWHERE, 0, size) < 0
        best = min(best, time.process_time() - began)
    return best


def log_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("logs/*/*.log"))


# -- a node ---------------------------------------------------------------------------------------------


def on_a_node(path: Path, records: int) -> Iterator[Row]:
    with node_on(path) as broker:
        ask(broker, contains="warm-up-of-the-helpers")
        total_s, _, _ = ask(broker, contains=NOWHERE.decode())
        yield Row(
            f"a node searches {records / 1e6:.0f} million records",
            f"{total_s:.1f} s",
            "",
            Goal("at most 10 s", total_s <= 10),
        )
        _, first_s, _ = ask(broker, contains='"last":true')
        yield Row("the same: first result", f"{first_s:.2f} s", "", Goal("at most 1 s", first_s <= 1))


def with_index(path: Path) -> Row:
    directory = path / "logs" / f"{PARTITION.topic}-0"
    began = time.process_time()
    segments = sorted(directory.glob("*.log"))[:-1]
    for each in segments:
        build(RealDisk(), str(directory), int(each.stem))
    build_s = time.process_time() - began
    size = sum(each.stat().st_size for each in segments)
    indexes = sum(each.stat().st_size for each in directory.glob("*.searchindex"))
    with node_on(path) as broker:
        ask(broker, contains="warm-up-of-the-helpers")
        total_s, _, end = ask(broker, contains=NOWHERE.decode())
    assert end["bytes"]["skipped"] > 0
    return Row(
        "with the index, a word that is nowhere",
        f"{total_s:.2f} s; {100 * indexes / size:.1f} % of the log, {size / build_s / 1e6:.0f} MB/s to make",
        "",
        Goal("below 1 s", total_s < 1),
    )


def node_on(path: Path) -> Broker:
    """A node with the topic, whose partition directory is filled already."""
    data = path.parent / "node"
    shutil.rmtree(data, ignore_errors=True)
    broker = Broker(http=True, data=data)
    broker.start()
    broker.create_topic(PARTITION.topic, 1)
    broker.stop()
    partition = data / "logs" / f"{PARTITION.topic}-0"
    for each in partition.glob("0*"):
        each.unlink()
    for each in (path / "logs" / f"{PARTITION.topic}-0").glob("0*"):
        os.link(each, partition / each.name)
    return broker


def ask(broker: Broker, **query: str) -> tuple[float, float, dict[str, object]]:
    """Seconds to the end and to the first result, and the end."""
    began = time.perf_counter()
    first_s = 0.0
    with urlopen(f"{broker.http_url}/topics/{PARTITION.topic}/search?{urlencode(query)}") as response:
        for line in response:
            event = json.loads(line)
            if event["type"] == "result" and not first_s:
                first_s = time.perf_counter() - began
    assert event["reason"] in ("complete", "limit"), event
    return time.perf_counter() - began, first_s, event


# -- beside a search ------------------------------------------------------------------------------------

TURNS = 10
TURN_S = 2.0
PRODUCES_A_SECOND = 400


def produce_meanwhile(path: Path) -> Iterator[Row]:
    """Time of a Produce of one record, in turns without a search and with one over everything."""
    node_on(path).close()  # makes the data directory
    with Process(data=path.parent / "node", http=True) as node:
        body = json.dumps({"name": "latency", "partitions": 1}).encode()
        with urlopen(Request(f"{node.http_url}/topics", body, {"Content-Type": "application/json"})):
            pass
        host, port = node.bootstrap.split(":")
        for acks, name in ((1, "acks=1"), (-1, "acks=all, synced")):
            times: dict[bool, list[float]] = {False: [], True: []}
            with socket.create_connection((host, int(port))) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                produce_for(connection, acks, TURN_S)
                for _ in range(TURNS):
                    times[False] += produce_for(connection, acks, TURN_S)
                    with searching(node.http_url):
                        times[True] += produce_for(connection, acks, TURN_S)
            alone, beside = p99(times[False]), p99(times[True])
            load = os.getloadavg()[0]
            yield Row(
                f"produce one record beside a search, p99, {name}",
                f"{beside:.2f} ms",
                f"{alone:.2f} ms without: {beside / alone:.2f} x (load average {load:.0f})",
                Goal("at most 1.5 x", beside <= 1.5 * alone),
            )


def produce_for(connection: socket.socket, acks: int, seconds: float) -> list[float]:
    """Milliseconds of each Produce, one after the other at a steady rate."""
    frame, error_at = produce_frame("latency", [0], one_record(), acks), produce_error_at("latency")
    times = []
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        connection.sendall(frame)
        reply = receive_frame(connection)
        times.append((time.perf_counter() - began) * 1000)
        assert reply[error_at : error_at + 2] == b"\0\0", reply
        due = max(due + 1 / PRODUCES_A_SECOND, time.perf_counter())
    return times


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


@contextmanager
def searching(http_url: str) -> Iterator[None]:
    """One search over everything after the other, until the end of the block."""
    query = urlencode({"contains": NOWHERE.decode()})
    is_over, has_begun = threading.Event(), threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with urlopen(f"{http_url}/topics/{PARTITION.topic}/search?{query}") as response:
                for line in response:
                    if json.loads(line)["bytes"]["searched"]:
                        has_begun.set()
                    if is_over.is_set():
                        break

    thread = threading.Thread(target=run)
    thread.start()
    has_begun.wait(60)
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# -- data -----------------------------------------------------------------------------------------------


def fill(path: Path, records: int, size: int, codec: Codec = Codec.NONE) -> None:
    """Values are JSON with an id and words of a vocabulary; twenty different batches, in random order."""
    rng = random.Random(1)
    words = [b"w%05d" % rng.randrange(3000) for _ in range(5000)]
    each = BATCH_BYTES // size
    batches = []
    for _ in range(20):
        builder = BatchBuilder(codec=codec)
        for number in range(each):
            value = b'{"id":%d,"user":"%s","text":"' % (rng.randrange(10**9), rng.choice(words))
            while len(value) < size - 2:
                value += rng.choice(words) + b" "
            builder.append(b"k%d" % number, value[: size - 2] + b'"}', 1 + number)
        batches.append(bytes(builder.build()))
    with open_log(path, LogSettings(segment_bytes=SEGMENT_BYTES)) as (_, log):
        for _ in range(records // each):
            log.append(bytearray(rng.choice(batches)), leader_epoch=0, now_ms=1)
        builder = BatchBuilder()
        builder.append(b"k", b'{"id":1,"last":true}', 1)
        log.append(bytearray(builder.build()), leader_epoch=0, now_ms=1)


if __name__ == "__main__":
    sys.exit(main())
