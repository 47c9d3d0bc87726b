"""The storage engine against the raw disk, in one run: `make bench`.

Every figure stands beside a yardstick measured here and now with plain system calls on the same disk, rounds
interleaved, because absolute speeds differ from machine to machine and from minute to minute. Files are
written once before anything is measured: the first touch of a page costs more than the log does.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import BatchBuilder, build_batch
from penstock.storage.cleaner import Cleaned, CleaningPlan, clean
from penstock.storage.compaction import install, plan_cleaning
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.log import Log
from penstock.vfs import RealDisk

MB = 1 << 20
BATCH_BYTES = 128 * 1024
PARTITION = TopicPartition("bench", 0)


class Figure(NamedTuple):
    work: str
    measured: str
    yardstick: str
    goal: str
    is_met: bool | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it runs")
    parser.add_argument("--only", help="run only benchmarks whose name has this in it")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    table = Table("work", "measured", "yardstick, same run", "goal", "", title="Penstock storage")
    missed = False
    for benchmark in (append_and_read, recovery, many_segments, lookup, compaction, compaction_memory):
        if options.only and options.only not in benchmark.__name__:
            continue
        with tempfile.TemporaryDirectory(
            prefix="penstock-bench-", dir=os.environ.get("BENCH_DIR")
        ) as directory:
            for figure in benchmark(Path(directory), scale):
                mark = "" if figure.is_met is None else "[green]ok[/]" if figure.is_met else "[red]missed[/]"
                table.add_row(*figure[:4], mark)
                missed |= figure.is_met is False
    Console(width=max(Console().width, 120)).print(table)
    return 1 if missed else 0


# -- appending and reading ----------------------------------------------------------------------------


def append_and_read(directory: Path, scale: float) -> Iterator[Figure]:
    total = int(512 * MB * scale)
    batch = opaque_batch(BATCH_BYTES)
    settings = LogSettings(segment_bytes=256 * MB)
    raw_file = directory / "raw"
    raw_write(raw_file, batch, total)  # both files' pages are touched before they are measured
    appends, writes = [], []
    with open_log(directory / "data", settings) as (_, log):
        append_all(log, batch, total)
        for _ in range(5):
            writes.append(raw_write(raw_file, batch, total))
            log.truncate(0)
            appends.append(append_all(log, batch, total))
        ratio = statistics.median(a / w for a, w in zip(appends, writes, strict=True))
        yield Figure(
            "append 128 KB batches, CRC included",
            f"{max(appends):,.0f} MB/s, {ratio:.0%} of raw",
            f"writev {max(writes):,.0f} MB/s",
            "60% of raw writev",
            ratio >= 0.6,
        )
        reads, preads = [], []
        for _ in range(5):
            preads.append(raw_read(raw_file, total))
            reads.append(read_all(log))
        ratio = statistics.median(r / p for r, p in zip(reads, preads, strict=True))
        yield Figure(
            "read back in 1 MB steps",
            f"{max(reads):,.0f} MB/s, {ratio:.0%} of raw",
            f"pread {max(preads):,.0f} MB/s",
            "70% of raw pread",
            ratio >= 0.7,
        )


def append_all(log: Log, batch: bytearray, total: int) -> float:
    def work() -> None:
        for _ in range(total // len(batch)):
            append(log, batch)

    return total / MB / timed(work)


def append(log: Log, batch: bytearray) -> None:
    batch[:8] = b"\0" * 8  # the log has put the offset there; a producer's batch comes with 0
    log.append(batch, leader_epoch=0, now_ms=1)


def read_all(log: Log) -> float:
    def work() -> None:
        offset = 0
        while offset < log.log_end:
            data = log.read(offset, MB)
            # The next offset, from the last whole batch: all have one record and the same size.
            offset += len(data) // BATCH_BYTES

    return log.size_bytes / MB / timed(work)


def raw_write(path: Path, batch: bytearray, total: int) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def work() -> None:
        for _ in range(total // len(batch)):
            os.writev(descriptor, [batch])

    try:
        return total / MB / timed(work)
    finally:
        os.close(descriptor)


def raw_read(path: Path, total: int) -> float:
    descriptor = os.open(path, os.O_RDONLY)

    def work() -> None:
        for position in range(0, total, MB):
            os.pread(descriptor, MB, position)

    try:
        return total / MB / timed(work)
    finally:
        os.close(descriptor)


# -- recovery -----------------------------------------------------------------------------------------


def recovery(directory: Path, scale: float) -> Iterator[Figure]:
    for work, batch, total, goal in (
        ("recover, 16 KB batches", opaque_batch(16 * 1024), int(512 * MB * scale), 500),
        ("recover, one-record batches of 100 bytes", small_batch(), int(64 * MB * scale), None),
    ):
        data = directory / str(len(batch))
        with open_log(data, LogSettings(segment_bytes=256 * MB), close=False) as (opened, log):
            append_all(log, batch, total // 2)
            opened.checkpoint()
            checkpointed = log.size_bytes
            append_all(log, batch, total // 2)
            past = log.size_bytes - checkpointed
        best = 0.0
        for number in range(3):
            crashed = directory / f"{len(batch)}-{number}"
            shutil.copytree(data, crashed)
            started = time.perf_counter()
            with open_log(crashed, LogSettings(segment_bytes=256 * MB), close=False) as (opened, _):
                seconds = time.perf_counter() - started
                scanned = opened.reports[PARTITION].bytes_scanned
            best = max(best, scanned / MB / seconds)
        yield Figure(
            work,
            f"{best:,.0f} MB/s, {scanned / MB:,.0f} MB read",
            f"{past / MB:,.0f} of {log.size_bytes / MB:,.0f} MB lie past the recovery point",
            f"{goal} MB/s, only past the point" if goal else "reported",
            (best >= goal and scanned == past) if goal else None,
        )


def many_segments(directory: Path, scale: float) -> Iterator[Figure]:
    """Opening 1,000 partitions of 10 segments after a clean stop."""
    partitions = int(1000 * scale)
    settings = LogSettings(segment_bytes=1000, index_interval_bytes=0)
    batch = bytearray(build_batch([(b"key", b"x" * 400, 1)]))
    opened = open_directory(
        RealDisk(), str(directory / "data"), now_ms=1, rng=random.Random(1), settings_of=lambda _: settings
    )
    for number in range(partitions):
        log = opened.create(TopicPartition("many", number), now_ms=1)
        while len(log.segments) < 10:
            append(log, batch)
    opened.close()
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        opened = open_directory(
            RealDisk(),
            str(directory / "data"),
            now_ms=1,
            rng=random.Random(1),
            settings_of=lambda _: settings,
        )
        seconds.append(time.perf_counter() - started)
        assert all(len(log.segments) == 10 for log in opened.logs.values())
        opened.close()
    best = min(seconds)
    yield Figure(
        f"open {partitions:,} partitions x 10 segments, clean", f"{best:.2f} s", "", "under 2 s", best < 2
    )


def lookup(directory: Path, scale: float) -> Iterator[Figure]:
    """Finding a batch among 10,000 segments."""
    wanted = int(10_000 * scale)
    settings = LogSettings(segment_bytes=20_000, index_interval_bytes=4096)
    rng = random.Random(2)
    with open_log(directory / "data", settings) as (opened, log):
        number = 0
        while len(log.segments) < wanted:
            log.append(
                build_batch([(b"key", b"x" * 900, 1000 + number)]), leader_epoch=0, now_ms=1000 + number
            )
            number += 1
        opened.checkpoint()
        offsets = [rng.randrange(log.log_end) for _ in range(5000)]
        for offset in offsets:  # files are in the kernel's cache, and small indexes in ours
            log.segments.find(offset)
            log.segments.find_timestamp(1000 + offset, 0)
        by_offset = timed(lambda: [log.segments.find(offset) for offset in offsets]) / len(offsets) * 1e6
        by_time = timed(lambda: [log.segments.find_timestamp(1000 + each, 0) for each in offsets])
        by_time = by_time / len(offsets) * 1e6
        segments = len(log.segments)
    yield Figure(
        f"look up an offset, {segments:,} segments", f"{by_offset:.1f} us", "", "under 30 us", by_offset < 30
    )
    yield Figure(
        f"look up a timestamp, {segments:,} segments", f"{by_time:.1f} us", "", "under 30 us", by_time < 30
    )


# -- compaction ---------------------------------------------------------------------------------------


def compaction(directory: Path, scale: float) -> Iterator[Figure]:
    """A child process cleans while this one appends."""
    records = int(2_000_000 * scale)
    settings = LogSettings(segment_bytes=32 * MB, cleanup_policy=("compact",))
    with open_log(directory / "data", settings) as (_, log), child() as pool:
        fill(log, records, records // 5)
        log.roll(1)
        plan = plan_cleaning(log, 10**9, log.log_end)
        assert plan is not None
        batch = bytearray(build_batch([(b"key", b"x" * 16_000, 1)]))
        alone = append_latencies(log, batch, until=seconds_from_now(4 * scale))
        running = pool.submit(clean_timed, plan)
        beside = append_latencies(log, batch, until=running.done)
        cleaned, seconds = running.result()
        started = time.perf_counter()
        install(log, plan, cleaned).run()
        swap_ms = (time.perf_counter() - started) * 1000
    rate = cleaned.records_read / seconds
    yield Figure(
        "compact 100-byte records, a child process",
        f"{rate:,.0f} records/s, {cleaned.records_kept:,} of {cleaned.records_read:,} kept, swap {swap_ms:.0f} ms",
        "",
        "200,000 records/s",
        rate >= 200_000,
    )
    slower = percentile(beside, 99) / percentile(alone, 99)
    yield Figure(
        "append 16 KB meanwhile, p99",
        f"{percentile(beside, 99):.0f} us, {slower:.2f} x",
        f"alone {percentile(alone, 99):.0f} us",
        "at most 2 x slower",
        slower <= 2,
    )


def compaction_memory(directory: Path, scale: float) -> Iterator[Figure]:
    """A log ten times as large as the buffer, every key its own."""
    buffer = int(32 * MB * max(scale, 0.5))
    settings = LogSettings(segment_bytes=64 * MB, cleanup_policy=("compact",))
    with open_log(directory / "data", settings) as (_, log), child() as pool:
        while log.size_bytes < 10 * buffer:
            fill(log, 100_000, 10**9)
        log.roll(1)
        plan = plan_cleaning(log, 10**9, log.log_end, memory_bytes=buffer)
        assert plan is not None
        grown = pool.submit(clean_measured, plan).result()
        size = log.size_bytes
    yield Figure(
        f"memory to compact {size / MB:,.0f} MB",
        f"{grown / MB:.1f} MB",
        f"log.cleaner.dedupe.buffer.size {buffer / MB:.0f} MB",
        "at most the buffer",
        grown <= buffer,
    )


def fill(log: Log, records: int, keys: int) -> None:
    rng = random.Random(records)
    for number in range(0, records, 150):
        rows = [(b"%010d" % rng.randrange(keys), b"x" * 75, 1000 + number) for _ in range(150)]
        log.append(build_batch(rows), leader_epoch=0, now_ms=1)


def clean_timed(plan: CleaningPlan) -> tuple[Cleaned, float]:
    started = time.perf_counter()
    cleaned = clean(RealDisk(), plan)
    return cleaned, time.perf_counter() - started


def clean_measured(plan: CleaningPlan) -> int:
    """Bytes by which the child's peak memory grew while it cleaned."""
    before = peak_bytes()
    clean(RealDisk(), plan)
    return peak_bytes() - before


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def append_latencies(log: Log, batch: bytearray, until: Callable[[], bool]) -> list[float]:
    """Microseconds for each append, 500 a second or so, until told to stop: a steady, moderate load."""
    latencies = []
    while not until():
        started = time.perf_counter()
        append(log, batch)
        latencies.append((time.perf_counter() - started) * 1e6)
        time.sleep(0.002)
    return latencies


# -- helpers ------------------------------------------------------------------------------------------


@contextmanager
def open_log(path: Path, settings: LogSettings, *, close: bool = True) -> Iterator[tuple[LogDirectory, Log]]:
    opened = open_directory(
        RealDisk(), str(path), now_ms=1, rng=random.Random(1), settings_of=lambda _: settings
    )
    log = opened.logs.get(PARTITION) or opened.create(PARTITION, now_ms=1)
    yield opened, log
    opened.close() if close else opened.abandon()


@contextmanager
def child() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(peak_bytes).result()  # it has started and imported everything
        yield pool


def opaque_batch(size: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(None, random.Random(0).randbytes(size - 61 - 12), 1)
    batch = bytearray(builder.build())
    while len(batch) != size:
        builder = BatchBuilder()
        builder.append(None, random.Random(0).randbytes(size - 61 - 12 - (len(batch) - size)), 1)
        batch = bytearray(builder.build())
    return batch


def small_batch() -> bytearray:
    return bytearray(build_batch([(b"0123456789", b"x" * 75, 1)]))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds_from_now(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


if __name__ == "__main__":
    sys.exit(main())
