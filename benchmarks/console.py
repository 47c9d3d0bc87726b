"""What the console costs, in the browser and at the node: `python -m benchmarks.console`.

Chromium opens the pages of a real node, on loopback. Bytes and moments are the browser's own measurements; frame times
are the intervals between animation frames while a page scrolls from top to bottom. CPU and memory are those of the
node's process, from /proc; CPU without a page is measured before CPU with one, and taken off.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect, sync_playwright
from rich.console import Console
from rich.table import Table
from tests.console.conftest import ARGUMENTS, CHROMIUM
from tests.processes import Process

PARTITIONS, RECORDS = 5_000, 1_000_000
FIRST_VIEW_BYTES_MAX = 150_000
USABLE_MS_MAX = 1_000
CPU_SHARE_MAX = 0.01
MEMORY_MB_MAX = 30
LOADS = 20
"""How often more records are loaded before their list is scrolled."""
FRAME_MS_MAX = 50
"""A pause that one sees; at 60 frames a second a frame has 17 ms."""

PAGES = (
    "/",
    "/topics",
    "/topics/many",
    "/topics/many/messages",
    "/topics/wide/partitions",
    "/search",
    "/groups",
    "/pipelines",
    "/transactions",
    "/cluster",
    "/security",
    "/labs",
)

_NOTE_USABLE = """
    new MutationObserver((_, observer) => {
        if (!document.querySelector("main h1") || document.querySelector("main .skeleton")) return;
        observer.disconnect();
        window.usableMs = performance.now();
    }).observe(document, { childList: true, subtree: true });
"""

_SCROLL = """async ([selector, steps]) => {
    const scroller = document.querySelector(selector) ?? document.querySelector("main");
    const host = scroller.closest("p-table");
    const frames = [], work = [];
    let last = await new Promise(requestAnimationFrame);
    for (let step = 1; step <= steps; step++) {
        scroller.scrollTop = (scroller.scrollHeight - scroller.clientHeight) * step / steps;
        const before = performance.now();
        host?.draw();
        work.push(performance.now() - before);
        const now = await new Promise(requestAnimationFrame);
        frames.push(now - last);
        last = now;
    }
    return [work, frames, scroller.scrollTop];
}"""


class Row(NamedTuple):
    work: str
    measured: str
    goal: str
    is_met: bool


def rows(browser: Browser, node: Process, *, seconds: float, partitions: int, records: int) -> Iterator[Row]:
    idle_share = cpu_share(node.pid, seconds)
    size, usable_ms = first_view(browser, node.http_url)
    yield Row("first view, compressed", f"{size / 1000:.0f} KB", "below 150 KB", size < FIRST_VIEW_BYTES_MAX)
    yield Row(
        "first view usable, nothing cached", f"{usable_ms:.0f} ms", "at most 1 s", usable_ms <= USABLE_MS_MAX
    )

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{node.http_url}/console/")
    page.locator("main h1").wait_for()
    open_share = max(cpu_share(node.pid, seconds) - idle_share, 0)
    yield Row(
        "CPU of the node, Overview open",
        f"{open_share:.2%} of a core (without: {idle_share:.2%})",
        "below 1%",
        open_share < CPU_SHARE_MAX,
    )
    page.goto("about:blank")

    fill(node, partitions, records)
    before_mb = _rss_mb(node.pid)
    for name, path in (
        (f"scroll {partitions:,} partitions", "/topics/wide/partitions"),
        (f"scroll messages of {records:,} records", "/topics/many/messages"),
    ):
        work, frames = scroll(page, f"{node.http_url}/console{path}")
        p95 = statistics.quantiles(frames, n=20)[-1]
        yield Row(
            name,
            f"frames: p50 {statistics.median(frames):.0f} ms, p95 {p95:.0f} ms, longest {max(frames):.0f} ms; "
            f"the table's script: p50 {statistics.median(work):.1f} ms",
            f"p95 at most {FRAME_MS_MAX} ms",
            p95 <= FRAME_MS_MAX,
        )

    for _ in range(2):
        for path in PAGES:
            page.goto(f"{node.http_url}/console{path}")
            page.locator("main h1, main .problem").first.wait_for()
            expect(page.locator(".skeleton")).to_have_count(0)
            page.wait_for_timeout(1000)
    after_mb = _rss_mb(node.pid)
    page.close()
    yield Row(
        "memory of the node, console in use",
        f"{after_mb - before_mb:+.1f} MB (without: {before_mb:.1f} MB)",
        f"at most {MEMORY_MB_MAX} MB more",
        after_mb - before_mb <= MEMORY_MB_MAX,
    )


def first_view(browser: Browser, url: str) -> tuple[int, float]:
    """Bytes as sent, and the median of five times, each in a fresh context."""
    sizes, times = [], []
    for _ in range(5):
        context = browser.new_context()
        page = context.new_page()
        page.add_init_script(_NOTE_USABLE)
        page.goto(f"{url}/console/")
        page.locator("main h1").wait_for()
        while (usable_ms := page.evaluate("window.usableMs")) is None:
            page.wait_for_timeout(50)
        times.append(usable_ms)
        entries = (
            "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        )
        sizes.append(page.evaluate(f"{entries}.reduce((sum, each) => sum + each.transferSize, 0)"))
        context.close()
    return max(sizes), statistics.median(times)


def scroll(page: Page, url: str) -> tuple[list[float], list[float]]:
    """How long the table's script worked for each frame, and the intervals between frames."""
    page.goto(url)
    page.locator("p-table tbody tr[data-key]").first.wait_for()
    more = page.get_by_role("button", name="Load more")
    for _ in range(LOADS if more.count() else 0):
        more.click()
        expect(more).to_be_enabled()
    work, frames, top = page.evaluate(_SCROLL, [".table-scroll", 300])
    assert top > 0, f"{url} does not scroll"
    return work, frames


def cpu_share(pid: int, seconds: float) -> float:
    """Of a core, while `seconds` pass."""
    before = _cpu_s(pid)
    began = time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / (time.monotonic() - began)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def fill(node: Process, partitions: int, records: int) -> None:
    with httpx.Client(base_url=node.http_url, timeout=120) as client:
        client.post("/topics", json={"name": "wide", "partitions": partitions}).raise_for_status()
        client.post("/topics", json={"name": "many", "partitions": 4}).raise_for_status()
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 50})
    for number in range(records):
        value = json.dumps({"id": number, "text": "a record of the benchmark"}).encode()
        while True:
            try:
                producer.produce("many", value, b"%d" % (number % 1000))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="little data and short waits, to see that it runs"
    )
    given = parser.parse_args()
    seconds, partitions, records = (2, 200, 2_000) if given.quick else (60, PARTITIONS, RECORDS)
    table = Table("work", "measured", "goal", "", title="Penstock console")
    missed = False
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=os.environ.get("BENCH_DIR")) as path,
        Process(data=Path(path) / "data", http=True) as node,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for row in rows(browser, node, seconds=seconds, partitions=partitions, records=records):
            print(*row, flush=True)
            table.add_row(
                row.work, row.measured, row.goal, "[green]ok[/]" if row.is_met else "[red]missed[/]"
            )
            missed |= not row.is_met
        browser.close()
    Console(width=max(Console().width, 120)).print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
