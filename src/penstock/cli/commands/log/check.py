"""`penstock log check`: checks logs and prints each finding at once."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.log_paths import Directory, LogPath, locate
from penstock.cli.main import EXIT_WRONG
from penstock.cli.options import Json
from penstock.cli.output import print_json, printable, progress
from penstock.storage.check import check_directory, check_partition
from penstock.storage.findings import Finding, Progress, Tally
from penstock.vfs import RealDisk, Vfs


def check_command(
    directory: Directory,
    deep: Annotated[bool, typer.Option("--deep", help="Decompress and decode every record as well.")] = False,
    as_json: Json = False,
) -> int:
    """Check every file of a directory, and change nothing.

    Checks the header and CRC of every batch, the order of offsets, and indexes, leader epochs, producer snapshots and
    checkpoints against the log. Each finding names the file, the position, the value found and the value expected. The
    exit code is 1 if there is an error; notes, such as leftovers that the next start removes, do not count.

    Stop the broker first: the end of a log may change during the check.

    \b
    penstock log check penstock-data --deep
    penstock log check /var/lib/kafka/orders-0
    """
    path = str(directory)
    vfs = RealDisk()
    log_path = locate(vfs, path)
    tally = Tally()
    found: list[Finding] = []
    with progress("checking", lambda: log_path.log_bytes(vfs)) as report:
        for finding in _check(vfs, log_path, deep, tally, report):
            if as_json:
                found.append(finding)
            else:
                print(f"{finding.severity}: {printable(str(finding))}")
    if as_json:
        print_json(
            {
                "directory": path,
                "ok": not tally.errors,
                "findings": [finding._asdict() for finding in found],
                "checked": asdict(tally),
            }
        )
    else:
        print(summary(tally))
    sys.stdout.flush()
    return EXIT_WRONG if tally.errors else 0


def _check(vfs: Vfs, log_path: LogPath, deep: bool, tally: Tally, report: Progress) -> Iterator[Finding]:
    if not log_path.is_partition:
        assert log_path.logs is not None
        yield from check_directory(vfs, log_path.logs, log_path.meta, deep=deep, tally=tally, report=report)
        return
    marks = log_path.marks(vfs)
    for path in log_path.partitions:
        known = marks.known(log_path.partition_of(path))
        yield from check_partition(vfs, path, known, deep=deep, tally=tally, report=report)


def summary(tally: Tally) -> str:
    verdict = "no errors" if not tally.errors else _count(tally.errors, "error")
    notes = f", {_count(tally.notes, 'note')}" if tally.notes else ""
    return (
        f"Checked {_count(tally.partitions, 'partition')}, {_count(tally.segments, 'segment')}, "
        f"{_count(tally.batches, 'batch')}, {_count(tally.records, 'record')}, {tally.bytes:,} bytes: "
        f"{verdict}{notes}."
    )


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}es" if what.endswith("ch") else f"{number:,} {what}s"
