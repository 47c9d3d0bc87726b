"""`penstock lab crash`: kills a writer, recovers its log, and checks that no acknowledged record is lost.

SIGKILL does not affect the kernel's cache, so killing a process rarely tears a write; a power cut does. The lab
therefore appends half a batch to the log, as a power cut might, and says so.
"""

import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import crash_writer as writer
from penstock.cli.commands.log.check import summary
from penstock.cli.commands.log.dump import DumpOptions, dump, show_entry
from penstock.cli.commands.log.ls import describe, print_segments
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused
from penstock.storage.check import check_partition
from penstock.storage.checkpoint_reader import SavedPartition
from penstock.storage.directory import LogDirectory
from penstock.storage.errors import StorageError
from penstock.storage.findings import Tally
from penstock.storage.log import Log
from penstock.vfs import RealDisk

ACKNOWLEDGEMENTS = 60
"""The writer is killed after this many: by then several segments have rolled and a checkpoint is written."""


def crash_command(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Keep the data here: a new or empty directory, or one that this lab made.",
        ),
    ] = None,
) -> int:
    """Kill a writer with SIGKILL, recover, and look inside.

    A child process appends records, flushes now and then, and acknowledges flushed records. The lab kills it, damages
    the end of the log further, opens the directory again and shows what recovery did. The exit code is 0 only if all
    acknowledged records are present.
    """
    # Recovery's log lines are part of the output, not of standard error.
    logger, nowhere = logging.getLogger("penstock"), logging.NullHandler()
    logger.addHandler(nowhere)
    propagated, logger.propagate = logger.propagate, False
    try:
        if data is not None:
            _check_is_ours(str(data))
            return _show(str(data))
        with tempfile.TemporaryDirectory(prefix="penstock-lab-") as temporary:
            return _show(temporary)
    finally:
        logger.propagate = propagated
        logger.removeHandler(nowhere)


def _check_is_ours(path: str) -> None:
    vfs = RealDisk()
    stat = vfs.stat(path)
    if stat is None or (stat.is_dir and not vfs.list_dir(path)):
        return
    if not stat.is_dir or vfs.stat(f"{path}/logs/{writer.PARTITION}") is None:
        raise Refused(f"{path} has other files: expected a new or empty directory, or one that this lab made")


def _show(path: str) -> int:
    began = time.monotonic()
    print(f"1. A child process writes to {path}/logs/{writer.PARTITION}: segments of 10,000 bytes, an")
    print(
        f"   fsync and an acknowledgement every {writer.BATCHES_PER_FLUSH * writer.RECORDS_PER_BATCH} records."
    )
    acknowledged = _write_and_kill(path)
    print(f"   Killed with SIGKILL. It had acknowledged all offsets below {acknowledged}.")
    torn = _tear(path)
    print(
        f"\n2. The lab adds {torn} bytes, the first half of a batch, to the last segment: a kill alone leaves"
    )
    print("   complete writes behind, a power cut may leave half of one.")

    print("\n3. The directory is opened again.")
    try:
        directory = writer.open_lab(path)
    except StorageError as error:
        raise Refused(str(error)) from error
    try:
        log = directory.logs[writer.PARTITION]
        is_safe = _show_recovery(directory, log, acknowledged, torn)
        directory.close()
    finally:
        directory.abandon()
    print("\n4. Inside: penstock log ls")
    row = describe(
        RealDisk(), f"{path}/logs/{writer.PARTITION}", SavedPartition(clean=True), with_segments=True
    )
    row.segments = row.segments[-4:]
    print_segments(row)
    print("\n   penstock log dump --records, the last batch")
    _show_last_batch(log)
    print("\n   penstock log check")
    tally = Tally()
    for finding in check_partition(RealDisk(), row.path, SavedPartition(clean=True), deep=True, tally=tally):
        print(f"   {finding.severity}: {finding}")
    print(f"   {summary(tally)}")
    verdict = "No acknowledged record was lost." if is_safe else "ACKNOWLEDGED RECORDS WERE LOST."
    print(f"\n{verdict} ({time.monotonic() - began:.1f} s)")
    return 0 if is_safe and not tally.errors else EXIT_WRONG


def _write_and_kill(path: str) -> int:
    """Run the writer, kill it while it writes, and return the offset up to which it acknowledged records."""
    command = [sys.executable, "-m", writer.__name__, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            lines = [line for line, _ in zip(child.stdout, range(ACKNOWLEDGEMENTS), strict=False)]
        finally:
            child.kill()
        # Lines printed before the signal count as well; an incomplete line does not.
        lines += [line for line in child.stdout if line.endswith(b"\n")]
        if len(lines) < ACKNOWLEDGEMENTS:
            last = child.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise Refused(f"the writer ended early: {last or 'it printed nothing'}")
    return int(lines[-1])


def _tear(path: str) -> int:
    """Add half a batch to the end of the log."""
    vfs = RealDisk()
    directory = f"{path}/logs/{writer.PARTITION}"
    active = max(entry.name for entry in vfs.list_dir(directory) if entry.name.endswith(".log"))
    half = writer.new_batch(0, time.time_ns() // 1_000_000)
    half = half[: len(half) // 2]
    file = vfs.open(f"{directory}/{active}", write=True)
    file.pwrite([half], file.size())
    file.close()
    return len(half)


def _show_recovery(directory: LogDirectory, log: Log, acknowledged: int, torn: int) -> bool:
    report = directory.reports.get(log.partition)
    if report is not None:
        skipped = log.size_bytes - report.bytes_scanned
        print(
            f"   Scanned {report.bytes_scanned:,} bytes after the recovery point, skipped {skipped:,} before it;"
        )
        print(
            f"   truncated {report.bytes_cut} bytes{', as many as were added' if report.bytes_cut == torn else ''}."
        )
        for note in report.notes:
            print(f"   - {note.replace(log.directory + '/', '')}")
    found = wrong = 0
    for batch in log.batches():
        for record in batch.records():
            if (record.key, record.value) != writer.content(record.offset) or record.offset != found:
                wrong += 1
            found = record.offset + 1
    is_safe = found >= acknowledged and not wrong
    as_written = "all" if not wrong else f"{wrong} not"
    print(f"   Acknowledged: {acknowledged} records. Found: {found}, {as_written} of them unchanged.")
    return is_safe


def _show_last_batch(log: Log) -> None:
    segment = log.segments.active
    if not segment.size:
        segment = log.segments[-2]
    last_offset = max(batch.base_offset for batch in log.batches(log.log_end - 1))
    for entry in dump(RealDisk(), segment.ref.path, DumpOptions(records=True, from_offset=last_offset)):
        text = show_entry(entry)
        print(f"   {text if len(text) <= 110 else text[:107] + '...'}")
