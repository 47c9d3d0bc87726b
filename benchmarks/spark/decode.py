"""Record batches to Arrow and back, on one core: `python -m benchmarks.spark.decode`.

Each case is the best of many runs, in CPU time of this process: a busy machine only ever adds. Even so memory is
shared with whatever else runs, so copying the same bytes is measured in the same run and stands beside each case, and
so does the reader that goes record by record. Sizes of values vary by an eighth either way, for no decoder should live
on records that are all alike. Batches of 16 KB are what producers send by default, those of 1 MB what Spark's sink
writes.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.arrow.decode import Decoder
from penstock.arrow.encode import encode
from penstock.arrow.partition import partitions_of
from penstock.records import BatchBuilder, Codec, iter_batches

TIME_MS = 1_700_000_000_000
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
KB, MB = 1 << 10, 1 << 20

RECORDS_GOAL = 3.5e6
BYTES_GOAL = 1.5e9


class Case(NamedTuple):
    name: str
    value_bytes: int
    batch_bytes: int
    columns: Sequence[str] = ALL
    codec: Codec = Codec.NONE
    has_keys: bool = False
    has_headers: bool = False
    records_goal: float = 0
    bytes_goal: float = 0


CASES = (
    Case("100 B values, batches of 16 KB", 100, 16 * KB, records_goal=RECORDS_GOAL),
    Case("100 B values, batches of 1 MB", 100, MB, records_goal=RECORDS_GOAL),
    Case("100 B values with keys, 16 KB", 100, 16 * KB, has_keys=True, records_goal=RECORDS_GOAL),
    Case("1 KB values, batches of 16 KB", KB, 16 * KB, bytes_goal=BYTES_GOAL),
    Case("1 KB values, batches of 1 MB", KB, MB, bytes_goal=BYTES_GOAL),
    Case("100 KB values, batches of 1 MB", 100 * KB, MB),
    Case("100 B, value alone", 100, 16 * KB, columns=("value",)),
    Case("100 B, offset alone", 100, 16 * KB, columns=("offset",)),
    Case("100 B with two headers", 100, 16 * KB, columns=(*ALL, "headers"), has_headers=True),
    Case("100 B, lz4", 100, 16 * KB, codec=Codec.LZ4),
    Case("100 B, zstd", 100, 16 * KB, codec=Codec.ZSTD),
)


class Figure(NamedTuple):
    work: str
    records: float
    """A second."""
    bytes: float
    """A second, as they are before compression."""
    yardstick: str
    goal: str
    is_met: bool | None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it runs")
    parser.add_argument("--only", default="", help="run only cases whose name has this in it")
    options = parser.parse_args(arguments)
    total, repeats = (2 * MB, 2) if options.quick else (16 * MB, 25)
    table = Table(
        "work", "records/s a core", "GB/s", "same run", "goal", "", title="Records to Arrow and back"
    )
    missed = False
    for measure, case in [*((decoding, case) for case in CASES), *((encoding, case) for case in CASES[:5])]:
        if options.only not in case.name:
            continue
        figure = measure(case, total, repeats)
        mark = "" if figure.is_met is None else "[green]ok[/]" if figure.is_met else "[red]missed[/]"
        rates = f"{figure.records / 1e6:,.2f} M", f"{figure.bytes / 1e9:,.2f}"
        table.add_row(figure.work, *rates, figure.yardstick, figure.goal, mark)
        missed |= figure.is_met is False
    Console(width=max(Console().width, 150)).print(table)
    return 1 if missed else 0


def decoding(case: Case, total: int, repeats: int) -> Figure:
    data, count, size = batches(case, total)

    def work() -> int:
        decoder = Decoder("benchmark", 0, case.columns, start=0, stop=1 << 62)
        return sum(len(each) for each in decoder.stream(data)) + sum(len(each) for each in decoder.finish())

    assert work() == count
    seconds = least(work, repeats)
    copied = len(data) / least(lambda: bytearray(data), repeats)
    few = data[: max(next(iter_batches(data)).size, MB // 2)]
    counted = sum(batch.count for batch in iter_batches(few))
    reader = counted / least(lambda: [list(batch.records()) for batch in iter_batches(few)], min(repeats, 5))
    records, rate = count / seconds, size / seconds
    goal, is_met = "", None
    if case.records_goal:
        goal, is_met = f"{case.records_goal / 1e6} M records/s", records >= case.records_goal
    elif case.bytes_goal:
        goal, is_met = f"{case.bytes_goal / 1e9} GB/s", rate >= case.bytes_goal
    yardstick = f"copying {copied / 1e9:.1f} GB/s, one by one {reader / 1e6:.2f} M"
    return Figure(f"decode {case.name}", records, rate, yardstick, goal, is_met)


def encoding(case: Case, total: int, repeats: int) -> Figure:
    """From Arrow batches of 10,000 rows, as Spark's writers get them; the partitions of keys apart."""
    rng = random.Random(2)
    count = min(10_000, total // case.value_bytes)
    values = pa.array([rng.randbytes(varied(rng, case.value_bytes)) for _ in range(count)])
    keys = pa.array([b"key-%d" % rng.randrange(100_000) if case.has_keys else None for _ in range(count)])
    rows = pa.RecordBatch.from_arrays([keys.cast(pa.binary()), values], ["key", "value"])

    def work() -> int:
        found = encode(rows, timestamp_ms=TIME_MS, batch_bytes_max=case.batch_bytes, codec=case.codec)
        return sum(each.count for each in found)

    assert work() == count
    seconds = least(work, repeats)
    hashing = least(lambda: partitions_of(rows.column("key"), 12), repeats) / count
    yardstick = f"partitions of keys {hashing * 1e9:.0f} ns each" if case.has_keys else ""
    goal = "0.5 us a record" if case.value_bytes <= 100 else ""
    is_met = seconds / count <= 0.5e-6 if goal else None
    return Figure(f"encode {case.name}", count / seconds, values.nbytes / seconds, yardstick, goal, is_met)


def batches(case: Case, total: int) -> tuple[bytes, int, int]:
    """Batches one after the other, their records, and what these take unpacked."""
    rng = random.Random(1)
    words = [rng.randbytes(6) for _ in range(64)]  # so that codecs have something to find
    headers = (("trace", b"0123456789abcdef"), ("origin", b"web")) if case.has_headers else ()
    found = []
    offset = size = 0
    while size < total:
        builder = BatchBuilder(offset, codec=case.codec)
        while builder.records_bytes + case.value_bytes < case.batch_bytes or not len(builder):
            wanted = varied(rng, case.value_bytes)
            value = b"".join(rng.choices(words, k=wanted // 6 + 1))[:wanted]
            key = b"key-%d" % rng.randrange(100_000) if case.has_keys else None
            builder.append(key, value, TIME_MS + offset // 10 + len(builder) // 7, headers)
        found.append(builder.build())
        size += builder.records_bytes
        offset = builder.next_offset
    return b"".join(found), offset, size


def varied(rng: random.Random, size: int) -> int:
    return size + rng.randint(-size // 8, size // 8)


def least(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the quickest run."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return max(best, 1e-9)


if __name__ == "__main__":
    sys.exit(main())
